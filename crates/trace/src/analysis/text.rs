//! Names as text, for reports and for shells.

use std::borrow::Cow;

use thruway_sys::printable;

/// Returns a name as text, with replacement characters for bytes that are not UTF-8.
pub(super) fn text(bytes: &[u8]) -> String {
    str::from_utf8(bytes)
        .map_or_else(|_| String::from_utf8_lossy(bytes).into_owned(), str::to_owned)
}

/// Returns words as a shell command on one line.
#[must_use]
pub fn shell_line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a shell, and escapes characters that a terminal cannot show.
pub(super) fn quoted(word: &str) -> String {
    let is_plain =
        |character: char| character.is_alphanumeric() || "-_./:=,+@%".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if matches!(printable::text(word), Cow::Borrowed(_)) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let escaped = word.replace('\\', r"\\").replace('\'', r"\'");
    format!("$'{}'", printable::text(&escaped))
}

/// Returns the last component of a path.
pub(super) fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Returns the suffix with its dot; empty if the only dot is the first character.
pub(super) fn suffix(component: &[u8]) -> &[u8] {
    let dot = component.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
    dot.map_or(b"", |dot| &component[dot..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_a_shell_needs_it() {
        let words = ["ruby", "-e", "puts 'x'"].map(str::to_owned);
        assert_eq!(shell_line(&words), r"ruby -e 'puts '\''x'\'''");
        let words = ["sh", "-c", "a='1'\nb=\\\x1b"].map(str::to_owned);
        assert_eq!(shell_line(&words), r"sh -c $'a=\'1\'\nb=\\\033'");
        // A shell would replace the tilde by the user's folder.
        assert_eq!(shell_line(&["ls", "~", "a=~/b"].map(str::to_owned)), "ls '~' 'a=~/b'");
    }
}
