//! Times and sizes as users write them, alike in all options.

#[cfg(target_os = "linux")]
use std::time::Duration;

/// The units of a time, and how many seconds each has.
#[cfg(target_os = "linux")]
const TIME_UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    ("d", DAY_S),
];
#[cfg(target_os = "linux")]
const DAY_S: f64 = 86_400.0;

/// The units of a size, and how many bits it is shifted by.
const SIZE_UNITS: [(&str, u32); 6] =
    [("", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)];

/// Adds up parts of a number and a unit. A number without a unit stands alone, and counts in `bare` seconds.
#[cfg(target_os = "linux")]
pub(crate) fn time_in(text: &str, bare: f64) -> Result<Duration, String> {
    let refused = || format!("{text:?} is not a time: write it as in 500ms, 10s or 1m");
    let is_unit = |letter: char| !(letter.is_ascii_digit() || letter == '.');
    let (mut seconds, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let at = rest.find(is_unit).unwrap_or(rest.len());
        let (number, after) = rest.split_at(at);
        let end = after.find(|letter| !is_unit(letter)).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let size = match unit {
            "" if number.len() == text.len() => bare,
            _ => TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?.1,
        };
        let number: f64 = number.parse().map_err(|_| refused())?;
        seconds += number * size;
        rest = next;
    }
    Duration::try_from_secs_f64(seconds).ok().filter(|_| !text.is_empty()).ok_or_else(refused)
}

/// A time; a bare number is seconds.
#[cfg(target_os = "linux")]
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    time_in(text, 1.0)
}

/// A time; a bare number is days.
#[cfg(target_os = "linux")]
pub(crate) fn days(text: &str) -> Result<Duration, String> {
    time_in(text, DAY_S)
}

/// A size in bytes, such as `64M`, `1.5GiB` or `1048576`. Units are powers of 1,024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let refused = || "must be a size, such as 64M or 1048576".to_owned();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit);
    let (_, shift) = SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return Err(refused());
    }
    let scale = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let parts = format!("{whole}{fraction}").parse::<u128>().ok();
    let bytes = parts.and_then(|parts| parts.checked_mul(1 << shift)).map(|size| size / scale);
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(refused)
}

/// The bytes of the shortest request line, `GET / HTTP/1.1` with its line end.
#[cfg(target_os = "linux")]
const REQUEST_LINE_BYTES_MIN: u32 = 16;

/// A size in bytes that limits the heads of requests, and lets the shortest one pass.
#[cfg(target_os = "linux")]
pub(crate) fn bytes_of_head(text: &str) -> Result<u32, String> {
    let size = u32::try_from(bytes(text)?).ok().filter(|size| *size >= REQUEST_LINE_BYTES_MIN);
    size.ok_or_else(|| format!("must be {REQUEST_LINE_BYTES_MIN} bytes or more, and less than 4G"))
}

/// A size in megabytes, of which there is at least one; a bare number is megabytes.
pub(crate) fn megabytes(text: &str) -> Result<u32, String> {
    let megabytes = match text.parse::<u64>() {
        Ok(megabytes) => megabytes,
        Err(_) => bytes(text)?.div_ceil(1 << 20),
    };
    u32::try_from(megabytes)
        .ok()
        .filter(|megabytes| *megabytes > 0)
        .ok_or_else(|| format!("{text} is not in 1..={} megabytes", u32::MAX))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_number_and_a_unit() {
        for (text, expected) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("64K", 64 << 10),
            ("64kb", 64 << 10),
            ("1.5GiB", 3 << 29),
            ("2T", 2 << 40),
            ("10B", 10),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "M", "1X", "1 M", "-1", "1e3", "0x10", "99999999P", "1.2.3", "64MM"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(bytes_of_head("16"), Ok(16));
        for text in ["15", "4G"] {
            let refused = "must be 16 bytes or more, and less than 4G".to_owned();
            assert_eq!(bytes_of_head(text), Err(refused), "{text}");
        }
        assert_eq!(
            [megabytes("64"), megabytes("64M"), megabytes("1G")],
            [Ok(64), Ok(64), Ok(1024)]
        );
        assert!(megabytes("0").is_err());
    }

    #[test]
    fn a_bare_number_has_the_unit_of_its_option() {
        assert_eq!(seconds("90"), Ok(Duration::from_secs(90)));
        assert_eq!(seconds("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(days("1"), Ok(Duration::from_secs(86_400)));
        assert_eq!(days("1d12h"), Ok(Duration::from_secs(129_600)));
        for text in ["", "s", "-1", "1 s", "1x", "inf", "1e3"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
