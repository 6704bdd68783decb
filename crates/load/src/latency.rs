//! The figures of a histogram of latencies.

use std::time::Duration;

use serde::Serialize;

use crate::Histogram;

/// The figures of a latency, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "each is the quantile of its name")]
pub struct Latency {
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    pub mean_ns: u64,
    /// The standard deviation.
    pub deviation_ns: u64,
}

impl Latency {
    /// Returns the figures of a histogram.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "they lie between 0 and the largest value"
    )]
    pub fn of(histogram: &Histogram) -> Self {
        Self {
            p50_ns: histogram.quantile(0.5),
            p90_ns: histogram.quantile(0.9),
            p99_ns: histogram.quantile(0.99),
            p999_ns: histogram.quantile(0.999),
            max_ns: histogram.largest(),
            mean_ns: histogram.mean().round() as u64,
            deviation_ns: histogram.deviation().round() as u64,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "2^53 requests or bytes are never reached")]
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64().max(1e-9)
}
