//! A fast parser for the lines that [`Writer`](super::Writer) produces, which are nearly all lines of a
//! recording. Any deviation is left to the JSON parser.

use crate::call::Call;
use crate::event::{Event, EventKind, Syscall};

/// Parses the event of a line; `None` if the line needs the JSON parser or is damaged.
pub(super) fn event(line: &[u8]) -> Option<Event<'_>> {
    let mut rest = Rest(line);
    let at_ns = rest.number_after(b"{\"at_ns\":")?;
    let process = rest.id_after(b",\"process\":")?;
    let thread = rest.id_after(b",\"thread\":");
    let call = rest.text_after(b",\"call\":\"")?;
    let duration_ns = rest.number_after(b",\"took_ns\":").unwrap_or(0);
    let result = rest.result()?;
    let flags = rest.number_after(b",\"flags\":").unwrap_or(0);
    let name = rest.text_after(b",\"name\":\"").unwrap_or_default();
    let second = rest.text_after(b",\"second\":\"").unwrap_or_default();
    let syscall = Syscall {
        call: Call::named(str::from_utf8(call).ok()?)?,
        duration_ns,
        result,
        flags: flags.try_into().ok()?,
        names: [name, second],
        stack: None,
    };
    let event = Event {
        at_ns,
        process,
        thread: thread.unwrap_or(process),
        kind: EventKind::Syscall(syscall),
    };
    // A field that could not be parsed is still here, so that the rest differs.
    (rest.0 == b"}\n").then_some(event)
}

/// The unparsed rest of a line. A failed parse leaves the rest unchanged.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Parses a number without leading zeros, of no more digits than fit in any case.
    fn number_after(&mut self, key: &[u8]) -> Option<u64> {
        const DIGITS_MAX: usize = 19;
        let after = self.0.strip_prefix(key)?;
        let mut number: u64 = 0;
        for (length, byte) in after.iter().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                let has_zero_before = length > 1 && after[0] == b'0';
                if !(1..=DIGITS_MAX).contains(&length) || has_zero_before {
                    return None;
                }
                self.0 = &after[length..];
                return Some(number);
            }
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        }
        None
    }

    /// Parses the ID of a process or thread, which is never 0.
    fn id_after(&mut self, key: &[u8]) -> Option<i32> {
        let before = self.0;
        let id = self.number_after(key).and_then(|number| number.try_into().ok());
        let id = id.filter(|id| *id != 0);
        if id.is_none() {
            self.0 = before;
        }
        id
    }

    fn result(&mut self) -> Option<i64> {
        let failed = self.number_after(b",\"result\":-").filter(|number| *number > 0);
        match failed {
            Some(number) => i64::try_from(number).ok().map(|number| -number),
            None => self.number_after(b",\"result\":")?.try_into().ok(),
        }
    }

    /// Parses ASCII text up to its closing quote; `None` if it contains a character that JSON escapes.
    fn text_after(&mut self, key: &[u8]) -> Option<&'a [u8]> {
        let after = self.0.strip_prefix(key)?;
        let length = plain_length(after)?;
        let (text, rest) = after.split_at(length);
        self.0 = rest.strip_prefix(b"\"")?;
        Some(text)
    }
}

/// Returns the length of the plain prefix: printable ASCII except quotes and backslashes. `None` if all bytes
/// are plain.
fn plain_length(bytes: &[u8]) -> Option<usize> {
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for (index, word) in words.enumerate() {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        let not_plain = marks_of_not_plain(word);
        if not_plain != 0 {
            return Some(8 * index + not_plain.trailing_zeros() as usize / 8);
        }
    }
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    let end = rest.iter().position(|byte| !is_plain(byte))?;
    Some(bytes.len() - rest.len() + end)
}

/// Returns the highest bit of each byte that is not plain. Because of borrows, bytes after the first one may
/// be marked wrongly.
fn marks_of_not_plain(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHEST: u64 = ONES << 7;
    let is_zero = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes;
    let is = |byte: u8| is_zero(word ^ (ONES * u64::from(byte)));
    let is_control = word.wrapping_sub(ONES * u64::from(b' ')) & !word;
    (word | is_control | is(b'"') | is(b'\\') | is(0x7f)) & HIGHEST
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::line::Line;
    use super::*;

    const LINES: [&str; 4] = [
        r#"{"at_ns":12,"process":3,"call":"newfstatat","took_ns":346,"result":-2,"name":"/a b/c.rb"}"#,
        r#"{"at_ns":12,"process":3,"thread":10,"call":"rename","result":0,"name":"/a","second":"/b"}"#,
        r#"{"at_ns":1,"process":3,"call":"openat","took_ns":5,"result":7,"flags":512,"name":"/"}"#,
        r#"{"at_ns":1,"process":3,"call":"getcwd","took_ns":5,"result":-9223372036854775807}"#,
    ];

    /// Returns the result of the JSON parser for a line.
    fn parsed(line: &[u8]) -> Option<String> {
        let line: Line<'_> = serde_json::from_slice(line).ok()?;
        line.event(&mut Vec::new(), &HashMap::new()).map(|event| format!("{event:?}"))
    }

    #[test]
    fn our_own_lines_are_plain() {
        for line in LINES {
            let line = format!("{line}\n").into_bytes();
            assert_eq!(event(&line).map(|event| format!("{event:?}")), parsed(&line));
            assert!(parsed(&line).is_some());
        }
    }

    #[test]
    fn unusual_lines_are_left_to_the_parser() {
        let [line, ..] = LINES;
        for (from, to) in [
            ("/a b", "/a\\u0020b"),
            ("/a b", "/\u{e4}"),
            ("{\"at_ns\"", "{\"at\""),
            (":12,", ":12.0,"),
            (":3,", ": 3,"),
            ("newfstatat", "fly"),
            ("\"took_ns\":346", "\"took_ns\":99999999999999999999"),
            ("}", ",\"flags\":4}"),
            ("}", ",\"ended\":true}"),
        ] {
            let changed = format!("{}\n", line.replace(from, to));
            assert_ne!(changed.trim(), line);
            assert_eq!(event(changed.as_bytes()), None, "{changed}");
        }
    }

    #[test]
    fn no_damage_is_read_as_something_else_than_the_parser_reads() {
        let mut read = 0;
        for line in LINES {
            let whole = format!("{line}\n").into_bytes();
            for (place, byte) in
                (0..whole.len()).flat_map(|place| (0..=255).map(move |b| (place, b)))
            {
                let mut damaged = whole.clone();
                damaged[place] = byte;
                if let Some(event) = event(&damaged) {
                    let text = String::from_utf8_lossy(&damaged);
                    assert_eq!(Some(format!("{event:?}")), parsed(&damaged), "{text}");
                    read += 1;
                }
            }
        }
        assert!(read > 1000, "{read}");
    }

    #[test]
    fn the_first_byte_that_is_not_plain_is_found_wherever_it_stands() {
        for byte in 0..=255 {
            let is_plain = (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
            for place in 0..20 {
                let mut text = [b'~'; 24];
                text[place] = byte;
                // Any byte may follow.
                text[place + 1] = b'"';
                text[place + 2] = byte.wrapping_add(1);
                let expected = if is_plain { place + 1 } else { place };
                assert_eq!(plain_length(&text), Some(expected), "{byte} at {place}");
            }
        }
        assert_eq!(plain_length(b"/usr/lib/ruby"), None);
    }
}
