//! Times as people read them.

use std::time::SystemTime;

use time::OffsetDateTime;

/// Formats a time in UTC, to the minute: `2026-11-28 14:05 UTC`.
#[must_use]
pub fn date(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", time.hour(), time.minute())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn a_time_is_shown_in_utc() {
        let time = super::SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_660);
        assert_eq!(super::date(time), "2026-01-01 00:01 UTC");
    }
}
