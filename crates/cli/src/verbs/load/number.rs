//! Parses numbers in the arguments, each within a range.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::quantities::time_in;

/// Parses a whole number in `range`.
pub(super) fn whole<N: FromStr + PartialOrd + Display>(
    text: &str,
    range: RangeInclusive<N>,
) -> Result<N, String> {
    let number: N = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if range.contains(&number) {
        return Ok(number);
    }
    Err(format!("{number} is not in {}..={}", range.start(), range.end()))
}

/// Parses a number of connections.
pub(super) fn connections(text: &str) -> Result<u32, String> {
    whole(text, 1..=1_000_000)
}

/// Parses the weight of a URL among all URLs.
pub(super) fn weight(text: &str) -> Result<u32, String> {
    whole(text, 1..=1000)
}

/// The longest time. A longer time is probably a mistake.
const TIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Parses a time such as `500ms`, `10s` or `1m30s`. A number without a unit counts in seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match time_in(text, 1.0)? {
        time if time.is_zero() => Err("must be more than 0 seconds".to_owned()),
        time if time > TIME_MAX => Err("must be at most a year".to_owned()),
        time => Ok(time),
    }
}

/// Parses a number of milliseconds, or a time with a unit.
pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    let refused = |_| format!("{text:?} is not a time: write it as in 20 (ms), 20ms or 1s");
    let time = time_in(text, 1e-3).map_err(refused)?;
    if time > Duration::from_secs(86_400) {
        return Err("must be at most a day".to_owned());
    }
    Ok(time)
}

/// Parses a share of all requests: `0.1%`, or `0.001`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 0.01),
        None => (text, 1.0),
    };
    let number: f64 =
        number.parse().map_err(|_| "not a share: write it as in 0.1% or 0.001".to_owned())?;
    let share = number * unit;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("must be between 0% and 100%".into()) }
}

/// Parses a percentile.
pub(super) fn percentile(text: &str) -> Result<f64, String> {
    let number = text.strip_prefix('p').unwrap_or(text);
    let number: f64 = number.parse().map_err(|_| "not a number".to_owned())?;
    let is_one = number > 0.0 && number <= 100.0;
    if is_one { Ok(number) } else { Err("must be above 0 and at most 100".into()) }
}

/// Parses a rate in requests per second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (1e-3..=1e8).contains(&rate) { Ok(rate) } else { Err("not a rate that can be kept".into()) }
}

/// Parses Jain's index.
pub(super) fn index(text: &str) -> Result<f64, String> {
    let index: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&index) { Ok(index) } else { Err("must be between 0 and 1".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_and_a_unit() {
        for (text, expected_ms) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("1m", 60_000),
            ("1m30s", 90_000),
            ("0.5", 500),
            ("2h", 7_200_000),
            ("1500us", 1),
            ("1.5s", 1500),
        ] {
            assert_eq!(duration(text).map(|time| time.as_millis()), Ok(expected_ms), "{text}");
        }
        assert_eq!(milliseconds("20"), Ok(Duration::from_millis(20)));
        assert_eq!(milliseconds("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(milliseconds("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in
            ["", "s", "-1", "-1s", "1 s", "1x", "1s2", "nan", "inf", "1e3", "0", "0ms", "ms"]
        {
            assert!(duration(text).is_err(), "{text:?}");
        }
        for text in ["9999999h", "99999999999999999999999"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
        assert!(milliseconds("25h").is_err() && milliseconds("x").is_err());
    }

    #[test]
    fn a_share_is_a_percentage_or_a_fraction() {
        for (text, expected) in [("0.1%", 0.001), ("0.001", 0.001), ("100%", 1.0), ("0", 0.0)] {
            assert!(share(text).is_ok_and(|share| (share - expected).abs() < 1e-12), "{text}");
        }
        for text in ["101%", "-1%", "1.5", "NaN", "%", "", "nan%"] {
            assert!(share(text).is_err(), "{text:?}");
        }
        assert!(percentile("p99.9").is_ok() && percentile("100").is_ok());
        assert!(
            percentile("0").is_err() && percentile("101").is_err() && percentile("NaN").is_err()
        );
    }
}
