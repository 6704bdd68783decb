//! Conditions on the content of a file: bytes at an offset, or a regular expression.

use regex::bytes::{Regex, RegexBuilder};

/// The number of bytes that are searched by default. Almost every file format identifies itself near the beginning.
pub(super) const WITHIN_DEFAULT: usize = 1 << 20;
/// The maximum number of bytes to read for an open: a quarter of a second from a slow disk.
pub(super) const WITHIN_MAX: usize = 64 << 20;
/// The maximum memory of a compiled regular expression.
const REGEX_BYTES_MAX: usize = 10 << 20;

/// A condition on the content of a file.
#[derive(Debug)]
pub(crate) struct Content {
    criterion: Criterion,
    /// The condition's bit among the conditions of all rules.
    pub(crate) bit: u64,
    /// The number of bytes from the start of the file that the condition needs.
    pub(crate) within: usize,
}

#[derive(Debug)]
enum Criterion {
    /// These bytes at this offset.
    Magic { bytes: Vec<u8>, at: usize },
    /// A match at any position.
    Pattern(Regex),
}

impl Content {
    pub(super) fn pattern(text: &str, within: usize) -> Result<Self, String> {
        let mut builder = RegexBuilder::new(text);
        let regex = builder.unicode(false).size_limit(REGEX_BYTES_MAX).build();
        let regex = regex.map_err(|error| last_line(&error.to_string()))?;
        Ok(Self { criterion: Criterion::Pattern(regex), bit: 0, within })
    }

    /// Parses a condition on bytes. `text` is hexadecimal; blanks are ignored.
    pub(super) fn magic(text: &str, at: usize) -> Result<Self, String> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        let bytes = bytes.ok_or("magic bytes are written in hexadecimal, as in \"7f 45 4c 46\"")?;
        let within = at.saturating_add(bytes.len());
        if within > WITHIN_MAX {
            return Err(format!(
                "magic bytes must lie within the first {WITHIN_MAX} bytes of the file"
            ));
        }
        Ok(Self { criterion: Criterion::Magic { bytes, at }, bit: 0, within })
    }

    /// Whether a file that starts with these bytes meets the condition.
    pub(crate) fn is_in(&self, start: &[u8]) -> bool {
        match &self.criterion {
            Criterion::Magic { bytes, at } => {
                start.get(*at..).is_some_and(|rest| rest.starts_with(bytes))
            }
            Criterion::Pattern(regex) => regex.is_match(start),
        }
    }
}

fn byte(digits: &[u8]) -> Option<u8> {
    let [high, low] = *digits else { return None };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Returns the message of the regex parser without its drawing of the position, since the policy's own message gives
/// line and column.
fn last_line(text: &str) -> String {
    let line = text.lines().last().unwrap_or("not a regular expression");
    line.trim_start_matches("error: ").to_owned()
}
