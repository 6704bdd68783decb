//! The text of sizes, times and names on a page.

/// A length in units of 1024, for people to read.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // Tenths of a unit are exact enough.
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 {
        tenths /= 1024;
        unit += 1;
    }
    if tenths < 100 {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{} {}", tenths / 10, UNITS[unit])
    }
}

const DAY_SECONDS: i64 = 86_400;

/// `HH:MM`
pub(super) fn time(seconds: i64) -> String {
    let minutes = seconds.rem_euclid(DAY_SECONDS) / 60;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// `YYYY-MM-DD` in the Gregorian calendar. Years begin in March here, so that a leap day comes last.
pub(super) fn day(seconds: i64) -> String {
    let days = seconds.div_euclid(DAY_SECONDS) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let leaps = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Escapes HTML's special characters, for use between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Encodes one component of a URL's path: only unreserved characters stay unchanged.
pub(crate) fn percent_encode(component: &[u8]) -> String {
    let mut encoded = String::with_capacity(component.len());
    for byte in component {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(*byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let shown = [0, 1023, 1024, 1536, 10_239, 10_240, 1 << 20, u64::MAX].map(size);
        let expected =
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "9.9 KiB", "10 KiB", "1.0 MiB", "15 EiB"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn days_and_times_are_those_of_the_calendar() {
        let shown = |seconds| format!("{} {}", day(seconds), time(seconds));
        assert_eq!(shown(0), "1970-01-01 00:00");
        assert_eq!(shown(-1), "1969-12-31 23:59");
        assert_eq!(shown(951_782_400), "2000-02-29 00:00");
        assert_eq!(shown(4_107_542_399), "2100-02-28 23:59");
        assert_eq!(shown(4_107_542_400), "2100-03-01 00:00");
        assert_eq!(shown(1_795_336_980), "2026-11-22 08:43");
    }
}
