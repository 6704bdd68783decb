//! HTTP dates, formatted once per second.

use std::time::{SystemTime, UNIX_EPOCH};

/// The length of every HTTP date, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const DATE_BYTES: usize = 29;

/// The last second of the year 9999, which is the last that an HTTP date can represent.
const LAST_SECOND: u64 = 253_402_300_799;

/// 1 January 1970 was a Thursday.
const WEEKDAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// An HTTP date that is formatted again only when its second has passed.
#[derive(Debug, Clone)]
pub struct Date {
    seconds: u64,
    text: [u8; DATE_BYTES],
}

impl Date {
    /// Creates the date of `seconds` since 1970.
    #[must_use]
    pub fn new(seconds: u64) -> Self {
        Self { seconds, text: format(seconds) }
    }

    /// Returns the date of `seconds` since 1970 as text.
    pub fn at(&mut self, seconds: u64) -> &[u8; DATE_BYTES] {
        if seconds != self.seconds {
            *self = Self::new(seconds);
        }
        &self.text
    }
}

/// Formats `seconds` since 1970 as an HTTP date.
#[must_use]
pub fn format(seconds: u64) -> [u8; DATE_BYTES] {
    let seconds = seconds.min(LAST_SECOND);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = calendar_day(days);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    text[..3].copy_from_slice(WEEKDAYS[index(days % 7)]);
    text[8..11].copy_from_slice(MONTHS[index(month)]);
    let twos = [(5, day), (12, year / 100), (14, year % 100)];
    let clock = [(17, of_day / 3_600), (20, of_day / 60 % 60), (23, of_day % 60)];
    for (at, number) in twos.into_iter().chain(clock) {
        text[at] = digit(number / 10);
        text[at + 1] = digit(number % 10);
    }
    text
}

/// Returns the year, the month (counted from zero) and the day that is `days` after 1 January 1970.
///
/// Internally, years start in March, so that a leap day is the last day of its year, century and cycle.
fn calendar_day(days: u64) -> (u64, u64, u64) {
    /// Days from 1 March of the year zero to 1970.
    const TO_1970: u64 = 719_468;
    /// Days of 400 years, and of 100 and of 4 years without a leap day at their end.
    const CYCLE: u64 = 146_097;
    const CENTURY: u64 = 36_524;
    const FOUR_YEARS: u64 = 1_461;
    let (cycle, days) = ((days + TO_1970) / CYCLE, (days + TO_1970) % CYCLE);
    let century = (days / CENTURY).min(3);
    let days = days - century * CENTURY;
    let (four_years, days) = (days / FOUR_YEARS, days % FOUR_YEARS);
    let year = (days / 365).min(3);
    let days = days - year * 365;
    let year = 400 * cycle + 100 * century + 4 * four_years + year;
    // From March on, any five months have 153 days: 31, 30, 31, 30, 31.
    let month = (5 * days + 2) / 153;
    let day = days - (153 * month + 2) / 5 + 1;
    if month < 10 { (year, month + 2, day) } else { (year + 1, month - 10, day) }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Returns the last digit of a number.
fn digit(number: u64) -> u8 {
    b'0' + u8::try_from(number % 10).unwrap_or(0)
}

/// Parses an HTTP date in any of its three forms. Returns the seconds since 1970, or `None` if the date is malformed.
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
    fn each_day_is_spelled_as_httpdate_spells_it() {
        // The calendar repeats after 400 years.
        for day in (0..146_097).chain([LAST_SECOND / 86_400]) {
            let seconds = day * 86_400 + day * 7 % 86_400;
            let time = UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let theirs = httpdate::HttpDate::from(time).to_string();
            assert_eq!(str::from_utf8(&format(seconds)), Ok(&*theirs));
        }
    }

    #[test]
    fn the_text_follows_the_second() {
        let mut date = Date::new(0);
        assert_eq!(date.at(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date.at(1), b"Thu, 01 Jan 1970 00:00:01 GMT");
    }
}
