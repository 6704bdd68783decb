//! The time at which a proxy has received a request, as reported by the proxy.

use std::time::{SystemTime, UNIX_EPOCH};

use thruway_http1::Request;

/// The field in which a proxy reports the time: `X-Request-Start: t=1700000000.123`.
const REQUEST_START: &[u8] = b"x-request-start";

/// The maximum age in microseconds of a start that can belong to the request.
const AGE_US_MAX: u64 = 3_600_000_000;

/// Returns the age of `request` since a proxy received it, in microseconds, if the proxy has reported the time. Of
/// several times, the earliest plausible one counts.
pub(crate) fn age_us(request: &Request<'_>) -> Option<u64> {
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_micros();
    let now_us = u64::try_from(now_us).ok()?;
    let values = request
        .fields()
        .filter_map(|(name, value)| name.eq_ignore_ascii_case(REQUEST_START).then_some(value));
    let ages = values.filter_map(|value| now_us.checked_sub(start_us(value)?));
    ages.filter(|age_us| *age_us < AGE_US_MAX).max()
}

/// Parses the time in the forms that proxies write: seconds with a fraction, milliseconds or microseconds, with or
/// without `t=`. Returns microseconds since 1970.
fn start_us(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let text = text.strip_prefix("t=").unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let number: u64 = whole.parse().ok()?;
    // Until the year 2286, seconds have ten digits.
    match whole.len() {
        10 => {
            let micros = format!("{fraction:0<6}").get(..6)?.parse::<u64>().ok()?;
            Some(number * 1_000_000 + micros)
        }
        13 => Some(number * 1_000),
        16 => Some(number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thruway_http1::{Head, Limits};

    #[test]
    fn a_start_that_is_none_of_this_request_hides_no_other_one() {
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        let start = now_us / 1_000 - 20_000;
        for (fields, is_known) in [
            (format!("X-Request-Start: {start}\r\n"), true),
            (format!("X-Request-Start: t=1000000000\r\nX-Request-Start: {start}\r\n"), true),
            (format!("X-Request-Start: {start}\r\nX-Request-Start: t=9999999999\r\n"), true),
            ("X-Request-Start: t=1000000000\r\n".into(), false),
            ("X-Request-Start: t=9999999999\r\n".into(), false),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let mut head = Head::new();
            assert_eq!(head.parse(text.as_bytes(), 0, &Limits::default()), Ok(true));
            let age_us = age_us(&head.request(text.as_bytes()));
            assert_eq!(age_us.is_some_and(|age_us| age_us >= 20_000_000), is_known, "{fields}");
        }
    }

    #[test]
    fn a_start_is_read_as_proxies_write_it() {
        for (text, us) in [
            ("t=1700000000.123", Some(1_700_000_000_123_000)),
            ("t=1700000000", Some(1_700_000_000_000_000)),
            ("1700000000123", Some(1_700_000_000_123_000)),
            ("t=1700000000123456", Some(1_700_000_000_123_456)),
            ("t=1700000000.1234567", Some(1_700_000_000_123_456)),
            ("t=-1", None),
            ("t=1700000000.12x", None),
            ("yesterday", None),
            ("t=17", None),
        ] {
            assert_eq!(start_us(text.as_bytes()), us, "{text}");
        }
    }
}
