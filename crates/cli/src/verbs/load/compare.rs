//! A run beside an earlier one, whose report `--json` has written.

use std::fs;
use std::path::Path;

use serde_json::Value;
use thruway_load::Report;

use super::text::table;
use crate::output::Failure;
use crate::units::{time, whole};

/// A figure: its name, where a report has it, and how it is written.
type Row = (&'static str, &'static str, fn(f64) -> String);

/// What is compared.
const ROWS: [Row; 6] = [
    ("requests/s", "/total/requests_per_second", whole),
    ("p50", "/total/latency/p50_ns", nanoseconds),
    ("p99", "/total/latency/p99_ns", nanoseconds),
    ("p99.9", "/total/latency/p999_ns", nanoseconds),
    ("Jain", "/total/fairness/index", fraction),
    ("lost", "/total/failed", whole),
];

/// Reads an earlier run's report.
pub(super) fn read(path: &Path) -> Result<Value, Failure> {
    let shown = path.display();
    let bytes = fs::read(path)
        .map_err(|error| Failure::new(format_args!("cannot read {shown}: {error}")))?;
    let report = serde_json::from_slice::<Value>(&bytes).ok();
    let is_report = |report: &Value| report.pointer("/total/latency/p50_ns").is_some();
    report.filter(is_report).ok_or_else(|| {
        Failure::new(format_args!("{shown} is no report of thruway load"))
            .hint("write one with: thruway load URL --json > FILE")
    })
}

/// A row for each figure: earlier, now, and now ÷ earlier.
pub(super) fn text(earlier: &Value, report: &Report, path: &Path) -> String {
    let now = serde_json::to_value(report).unwrap_or_default();
    let mut rows =
        vec![["", &path.display().to_string(), "now", "now ÷ then"].map(str::to_owned).to_vec()];
    for (name, pointer, write) in ROWS {
        let value = |report: &Value| report.pointer(pointer).and_then(Value::as_f64);
        if let (Some(then), Some(now)) = (value(earlier), value(&now)) {
            let ratio = if then > 0.0 { format!("{:.2} ×", now / then) } else { String::new() };
            rows.push(vec![name.to_owned(), write(then), write(now), ratio]);
        }
    }
    table(&rows)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it was a whole number"
)]
fn nanoseconds(value: f64) -> String {
    time(value as u64)
}

fn fraction(value: f64) -> String {
    format!("{value:.4}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_report_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("a", "{}"), ("b", "no JSON"), ("c", "{\"total\":1}")] {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            assert!(read(&path).is_err(), "{text}");
        }
        assert!(read(&folder.path().join("none")).is_err());
    }
}
