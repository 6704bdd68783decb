//! Prints names for people.
//!
//! A terminal interprets control sequences, and a file name may contain almost any byte. So every name that a person
//! reads passes through a function of this module. Output for programs (JSON, NUL-terminated lines, pipes) contains the
//! unchanged name.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;

/// Returns a name in which control characters, invalid UTF-8 and characters that change the direction of text are
/// escaped as `ls -b` does: `\n`, `\033`, `\377`. A backslash stays unchanged.
#[must_use]
pub fn bytes(name: &[u8]) -> Cow<'_, str> {
    if let Ok(name) = std::str::from_utf8(name) {
        return text(name);
    }
    let mut printed = String::new();
    for chunk in name.utf8_chunks() {
        printed.push_str(&text(chunk.valid()));
        chunk.invalid().iter().for_each(|byte| push_octal(&mut printed, *byte));
    }
    Cow::Owned(printed)
}

/// Escapes a text as [`bytes`] does.
#[must_use]
pub fn text(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut printed = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            character if !is_obeyed(character) => printed.push(character),
            '\x07' => printed.push_str(r"\a"),
            '\x08' => printed.push_str(r"\b"),
            '\t' => printed.push_str(r"\t"),
            '\n' => printed.push_str(r"\n"),
            '\x0b' => printed.push_str(r"\v"),
            '\x0c' => printed.push_str(r"\f"),
            '\r' => printed.push_str(r"\r"),
            other => {
                let mut buffer = [0; 4];
                other.encode_utf8(&mut buffer).bytes().for_each(|b| push_octal(&mut printed, b));
            }
        }
    }
    Cow::Owned(printed)
}

/// Escapes a path or another string of the system as [`bytes`] does.
#[must_use]
pub fn path<P: AsRef<OsStr> + ?Sized>(path: &P) -> Cow<'_, str> {
    bytes(path.as_ref().as_encoded_bytes())
}

/// Whether the character controls a terminal or the layout of a line, and so shows nothing itself.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Marks, embeddings, overrides and isolates of direction (Unicode, UAX 9).
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Separators of lines and paragraphs.
            | '\u{2028}' | '\u{2029}'
        )
}

fn push_octal(text: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\{byte:03o}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_as_ls_does() {
        let vectors: [(&[u8], &str); 8] = [
            (b"/nope/\x1b]0;title\x07\rx", r"/nope/\033]0;title\a\rx"),
            (b"a\nb\tc", r"a\nb\tc"),
            (b"\x7f\x00\x01", r"\177\000\001"),
            ("\u{9b}31m".as_bytes(), r"\302\23331m"),
            (b"\xffend\xc3", r"\377end\303"),
            ("gpj\u{202e}exe".as_bytes(), r"gpj\342\200\256exe"),
            ("\u{2066}a\u{2028}".as_bytes(), r"\342\201\246a\342\200\250"),
            (b"\xc2\x9b\xff", r"\302\233\377"),
        ];
        for (name, printed) in vectors {
            assert_eq!(bytes(name), printed);
        }
    }

    #[test]
    fn ordinary_names_are_not_copied() {
        for name in ["/usr/lib", "größe 日本 👩‍👩‍👧", r"C:\Users", ""] {
            assert!(matches!(bytes(name.as_bytes()), Cow::Borrowed(same) if same == name));
        }
    }

    #[test]
    fn escaping_twice_changes_nothing() {
        let once = bytes(b"\xff\x1b\\").into_owned();
        assert_eq!(text(&once), once);
    }
}
