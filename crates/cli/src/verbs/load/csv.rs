//! The figures of each second of a run as comma-separated values (RFC 4180). The names of the columns contain the
//! units.

use std::fmt::Write;

use thruway_load::TimelineRow;

const HEAD: &str = "from_seconds,to_seconds,requests,requests_per_second,errors,failed,bytes_per_second,\
                    p50_ns,p90_ns,p99_ns,p999_ns,max_ns,mean_ns,deviation_ns\r\n";

/// Returns a row for each second.
pub(super) fn rows(timeline: &[TimelineRow]) -> String {
    let mut text = HEAD.to_owned();
    for row in timeline {
        let latency = &row.latency;
        let _ = write!(
            text,
            "{:.3},{:.3},{},{:.3},{},{},{:.3},{},{},{},{},{},{},{}\r\n",
            row.from_seconds,
            row.to_seconds,
            row.requests,
            row.requests_per_second,
            row.errors,
            row.failed,
            row.bytes_per_second,
            latency.p50_ns,
            latency.p90_ns,
            latency.p99_ns,
            latency.p999_ns,
            latency.max_ns,
            latency.mean_ns,
            latency.deviation_ns,
        );
    }
    text
}
