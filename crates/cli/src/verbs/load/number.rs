//! Numbers in the arguments, each with its range.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// A whole number in that range.
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

/// How many connections.
pub(super) fn connections(text: &str) -> Result<u32, String> {
    whole(text, 1..=1_000_000)
}

/// How often a URL is asked beside the others.
pub(super) fn weight(text: &str) -> Result<u32, String> {
    whole(text, 1..=1000)
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be more than 0 seconds".to_owned()),
    }
}

/// Requests a second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (1e-3..=1e8).contains(&rate) { Ok(rate) } else { Err("not a rate that can be kept".into()) }
}

/// Jain's index.
pub(super) fn index(text: &str) -> Result<f64, String> {
    let index: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&index) { Ok(index) } else { Err("must be between 0 and 1".into()) }
}
