//! The report as JSON.

use serde::Serialize;
use thruway_load::{Bucket, Histogram, Report};

use super::limits::{LimitVerdict, error_rate};
use crate::output::Failure;

/// The percentiles of a report if the user chooses none.
const PERCENTILES_DEFAULT: [f64; 8] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    report: &'a Report,
    error_rate: f64,
    percentiles: Vec<Percentile>,
    histogram: Vec<Bin>,
    limits: &'a [LimitVerdict],
}

#[derive(Serialize)]
struct Percentile {
    percent: f64,
    latency_ns: u64,
}

#[derive(Serialize)]
struct Bin {
    from_ns: u64,
    to_ns: u64,
    requests: u64,
}

/// Returns the whole report, with a newline.
pub(super) fn report(
    report: &Report,
    percentiles: &[f64],
    limits: &[LimitVerdict],
) -> Result<Vec<u8>, Failure> {
    let chosen = if percentiles.is_empty() { &PERCENTILES_DEFAULT } else { percentiles };
    let bin = |Bucket { from, to, count }| Bin { from_ns: from, to_ns: to, requests: count };
    let whole = Whole {
        report,
        error_rate: error_rate(report),
        percentiles: chosen.iter().map(|percent| of(&report.histogram, *percent)).collect(),
        histogram: report.histogram.buckets().map(bin).collect(),
        limits,
    };
    let mut json = serde_json::to_vec_pretty(&whole)
        .map_err(|error| Failure::new(format_args!("cannot write JSON: {error}")))?;
    json.push(b'\n');
    Ok(json)
}

fn of(histogram: &Histogram, percent: f64) -> Percentile {
    Percentile { percent, latency_ns: histogram.quantile(percent / 100.0) }
}
