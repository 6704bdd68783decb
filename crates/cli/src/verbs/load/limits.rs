//! Limits on a run's results, which decide the exit status.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use thruway_load::Report;

use super::number::{duration, rate, share};
use crate::units::{time, whole};

/// The limits of a run. A run that exceeds a limit ends with the exit status 1.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits, which exit with 1 if they are exceeded")]
pub(super) struct Limits {
    /// The share of requests that may be lost or answered with 4xx or 5xx, such as 0.1%
    #[arg(long, value_name = "SHARE", value_parser = share)]
    max_error_rate: Option<f64>,
    /// The mean latency
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_mean: Option<Duration>,
    /// The latency that 50 % of the requests may reach
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_p50: Option<Duration>,
    /// The same for 75 %
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_p75: Option<Duration>,
    /// The same for 90 %
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_p90: Option<Duration>,
    /// The same for 95 %
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_p95: Option<Duration>,
    /// The same for 99 %
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_p99: Option<Duration>,
    /// The same for 99.9 %
    #[arg(long = "max-p99.9", visible_alias = "max-p999", value_name = "TIME", value_parser = duration)]
    max_p999: Option<Duration>,
    /// The longest latency
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_latency: Option<Duration>,
    /// Requests a second that must be answered
    #[arg(long, value_name = "R", value_parser = rate)]
    min_rate: Option<f64>,
}

/// A limit, the measured value, and whether the value exceeds the limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LimitVerdict {
    /// The option without its dashes.
    pub(super) name: &'static str,
    /// The unit of both numbers: `ns`, `share` or `requests_per_second`.
    pub(super) unit: &'static str,
    pub(super) limit: f64,
    pub(super) value: f64,
    pub(super) is_exceeded: bool,
}

impl Limits {
    /// Whether at least one limit is given.
    pub(super) fn are_given(&self) -> bool {
        let times = [
            self.max_mean,
            self.max_p50,
            self.max_p75,
            self.max_p90,
            self.max_p95,
            self.max_p99,
            self.max_p999,
            self.max_latency,
        ];
        let has_time = times.iter().any(Option::is_some);
        has_time || self.max_error_rate.is_some() || self.min_rate.is_some()
    }

    /// Compares a report with each given limit.
    #[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
    pub(super) fn check(&self, report: &Report) -> Vec<LimitVerdict> {
        let histogram = &report.histogram;
        let times = [
            ("max-p50", self.max_p50, 0.5),
            ("max-p75", self.max_p75, 0.75),
            ("max-p90", self.max_p90, 0.9),
            ("max-p95", self.max_p95, 0.95),
            ("max-p99", self.max_p99, 0.99),
            ("max-p99.9", self.max_p999, 0.999),
            ("max-latency", self.max_latency, 1.0),
        ];
        let mut checked = Vec::new();
        if let Some(limit) = self.max_error_rate {
            checked.push(LimitVerdict::at_most(
                "max-error-rate",
                "share",
                limit,
                error_rate(report),
            ));
        }
        if let Some(limit) = self.max_mean {
            let limit = limit.as_nanos() as f64;
            checked.push(LimitVerdict::at_most("max-mean", "ns", limit, histogram.mean()));
        }
        for (name, limit, share) in times {
            if let Some(limit) = limit {
                let value =
                    if share < 1.0 { histogram.quantile(share) } else { histogram.largest() };
                checked.push(LimitVerdict::at_most(
                    name,
                    "ns",
                    limit.as_nanos() as f64,
                    value as f64,
                ));
            }
        }
        if let Some(limit) = self.min_rate {
            let value = report.total.requests_per_second;
            let (name, unit) = ("min-rate", "requests_per_second");
            checked.push(LimitVerdict { name, unit, limit, value, is_exceeded: value < limit });
        }
        checked
    }
}

impl LimitVerdict {
    fn at_most(name: &'static str, unit: &'static str, limit: f64, value: f64) -> Self {
        Self { name, unit, limit, value, is_exceeded: value > limit }
    }

    /// Formats the limit, the result, and whether the result is within the limit.
    pub(super) fn text(&self) -> String {
        let written = |number: f64| match self.unit {
            "share" => format!("{} %", trimmed(number * 100.0)),
            "ns" => time(nanoseconds(number)),
            _ => format!("{}/s", whole(number)),
        };
        let (name, value, limit) = (self.name, written(self.value), written(self.limit));
        let sign = if self.name.starts_with("min") { "at least" } else { "at most" };
        match self.is_exceeded {
            true => format!("failed: {name}: {value}, asked for: {sign} {limit}"),
            false => format!("kept: {name}: {value}, {sign} {limit}"),
        }
    }
}

/// Returns the share of requests that were lost or answered with an error.
#[expect(clippy::cast_precision_loss, reason = "2^53 requests are never made")]
pub(super) fn error_rate(report: &Report) -> f64 {
    let total = &report.total;
    let errors: u64 =
        total.statuses.iter().filter(|(status, _)| **status >= 400).map(|(_, count)| count).sum();
    (errors + total.failed) as f64 / (total.requests + total.failed).max(1) as f64
}

/// Formats a percentage with up to four decimals, without trailing zeros.
pub(super) fn trimmed(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time is positive")]
fn nanoseconds(time: f64) -> u64 {
    time as u64
}
