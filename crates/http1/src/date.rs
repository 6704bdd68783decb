//! The date of a response, written once a second.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// `Sun, 06 Nov 1994 08:49:37 GMT`: the length of every HTTP date.
pub const DATE_BYTES: usize = 29;

/// The last second of the year 9999, the last that an HTTP date can spell.
const LAST_SECOND: u64 = 253_402_300_799;

/// An HTTP date that is written again only when its second has passed.
#[derive(Debug, Clone)]
pub struct Date {
    seconds: u64,
    text: [u8; DATE_BYTES],
}

impl Date {
    /// The date of `seconds` since 1970.
    #[must_use]
    pub fn new(seconds: u64) -> Self {
        Self { seconds, text: format(seconds) }
    }

    /// The text for `seconds` since 1970.
    pub fn at(&mut self, seconds: u64) -> &[u8; DATE_BYTES] {
        if seconds != self.seconds {
            *self = Self::new(seconds);
        }
        &self.text
    }
}

/// `seconds` since 1970 as an HTTP date.
#[must_use]
pub fn format(seconds: u64) -> [u8; DATE_BYTES] {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_SECOND));
    let mut text = [b' '; DATE_BYTES];
    // It writes exactly as many bytes as there is room for.
    let _ = write!(&mut text[..], "{}", HttpDate::from(time));
    text
}

/// Seconds since 1970 of an HTTP date in any of its three forms; none if it is no date.
#[must_use]
pub fn parse(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let time: SystemTime = httpdate::parse_http_date(text).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_what_the_standard_shows() {
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parse(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse(b"Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse(b"yesterday"), None);
        assert_eq!(&format(u64::MAX)[12..16], b"9999");
    }

    #[test]
    fn the_text_follows_the_second() {
        let mut date = Date::new(0);
        assert_eq!(date.at(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date.at(1), b"Thu, 01 Jan 1970 00:00:01 GMT");
    }
}
