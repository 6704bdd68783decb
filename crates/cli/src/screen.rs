//! The screen of people: its width, its characters, and lines that fit.

use std::borrow::Cow;
use std::fmt::Write;
use std::io::IsTerminal;

use thruway_sys::printable;

/// Characters of reports, and their substitutes where the locale is not UTF-8. Bars have one character each.
const SUBSTITUTES: [(char, &str); 18] = [
    ('µ', "u"),
    ('×', "x"),
    ('÷', "/"),
    ('±', "+-"),
    ('≈', "~"),
    ('–', "-"),
    ('−', "-"),
    ('…', "..."),
    ('·', "."),
    ('→', "->"),
    ('▁', "_"),
    ('▂', "."),
    ('▃', "-"),
    ('▄', "~"),
    ('▅', "="),
    ('▆', "+"),
    ('▇', "*"),
    ('█', "#"),
];
/// The last column in which a value may begin: a folded value continues below its first character.
const VALUE_COLUMN_MAX: usize = 30;
/// The indentation of what continues a line without columns.
const CONTINUATION: usize = 4;
/// The least room for a folded value. A narrower column continues at [`CONTINUATION`].
const ROOM_MIN: usize = 20;

/// Whether output for people has to be ASCII: the locale names a character set other than UTF-8. If no locale is set,
/// as in most containers, the terminal is assumed to show UTF-8.
pub(crate) fn is_ascii() -> bool {
    cfg!(unix) && is_ascii_in(|name| std::env::var(name).ok())
}

fn is_ascii_in(variable: impl Fn(&str) -> Option<String>) -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable);
    let said = said.map(|name| name.to_ascii_lowercase()).find(|name| !name.is_empty());
    said.is_some_and(|name| !name.contains("utf-8") && !name.contains("utf8"))
}

/// Escapes control characters. If `is_ascii`, also replaces the characters of reports, and escapes those of names.
pub(crate) fn printable(text: &str, is_ascii: bool) -> Cow<'_, str> {
    match printable::text(text) {
        Cow::Borrowed(text) => substituted(text, is_ascii),
        Cow::Owned(text) => Cow::Owned(substituted(&text, is_ascii).into_owned()),
    }
}

/// Replaces the characters of reports, and escapes those of names, if `is_ascii`. The text may contain colours.
pub(crate) fn substituted(text: &str, is_ascii: bool) -> Cow<'_, str> {
    if !is_ascii || text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len());
    for character in text.chars() {
        match SUBSTITUTES.iter().find(|(other, _)| *other == character) {
            _ if character.is_ascii() => written.push(character),
            Some((_, substitute)) => written.push_str(substitute),
            None => character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| {
                // Writing to a string cannot fail.
                let _ = write!(written, "\\{byte:03o}");
            }),
        }
    }
    Cow::Owned(written)
}

/// Returns the number of columns of a terminal: the value of `COLUMNS`, or else the terminal's own width.
#[cfg(target_os = "linux")]
pub(crate) fn width(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    let own = || rustix::termios::tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col));
    stream.is_terminal().then(|| columns().or_else(own)).flatten().filter(|width| *width > 0)
}

/// Returns the number of columns of a terminal, if `COLUMNS` has it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn width(stream: &impl IsTerminal) -> Option<usize> {
    stream.is_terminal().then(columns).flatten().filter(|width| *width > 0)
}

/// Returns the value of `COLUMNS`.
pub(crate) fn columns() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}

/// Folds a line of a report at spaces, so that each piece fits. A value in columns continues in its column. A word that
/// is too long, such as a path, stays whole.
pub(crate) fn folded(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let column = value_column(line);
    let indent = if column + ROOM_MIN <= width { column } else { CONTINUATION };
    let (start, value) = split(line, column);
    let mut lines = vec![start.to_owned()];
    let mut used = column;
    for (place, word) in value.split(' ').enumerate() {
        let length = word.chars().count();
        if place > 0 && used + 1 + length > width {
            lines.push(" ".repeat(indent));
            used = indent;
        } else if place > 0 {
            used += 1;
            lines.last_mut().into_iter().for_each(|line| line.push(' '));
        }
        used += length;
        lines.last_mut().into_iter().for_each(|line| line.push_str(word));
    }
    lines
}

/// Returns the column in which the last value of a line begins. Columns are set apart by two spaces or more.
fn value_column(line: &str) -> usize {
    let (mut column, mut spaces, mut has_word) = (0, 0, false);
    for (place, character) in line.chars().enumerate().take(VALUE_COLUMN_MAX + 1) {
        match character {
            ' ' => spaces += 1,
            _ => {
                if spaces >= 2 || !has_word {
                    column = place;
                }
                (spaces, has_word) = (0, true);
            }
        }
    }
    column
}

/// Splits a line at a character.
fn split(line: &str, column: usize) -> (&str, &str) {
    let at = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
    line.split_at(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_whether_a_terminal_shows_ascii_only() {
        let locale = |all: &'static str, lang: &'static str| {
            is_ascii_in(move |name| match name {
                "LC_ALL" => Some(all.to_owned()),
                "LANG" => Some(lang.to_owned()),
                _ => None,
            })
        };
        assert!(
            locale("C", "en_US.UTF-8") && locale("", "POSIX") && locale("de_DE.ISO-8859-1", "")
        );
        assert!(!locale("C.UTF-8", "C") && !locale("", "en_US.utf8") && !locale("", ""));
    }

    #[test]
    fn ascii_keeps_what_reports_say_and_escapes_what_names_contain() {
        assert_eq!(
            printable("▁█ 5 µs – …/größe\u{1b}", true),
            r"_# 5 us - .../gr\303\266\303\237e\033"
        );
        assert_eq!(printable("5 µs\u{202e}", false), r"5 µs\342\200\256");
    }

    #[test]
    fn a_folded_value_continues_in_its_column() {
        let cases: [(&str, usize, &[&str]); 5] = [
            ("short", 5, &["short"]),
            (
                "ok     fuse  one two three four five",
                33,
                &["ok     fuse  one two three four", "             five"],
            ),
            ("  data  one two three", 12, &["  data  one", "    two", "    three"]),
            ("one two three", 8, &["one two", "    three"]),
            ("/a/path/that/is/long b", 8, &["/a/path/that/is/long", "    b"]),
        ];
        for (line, width, expected) in cases {
            assert_eq!(folded(line, width), expected, "{line}");
        }
    }
}
