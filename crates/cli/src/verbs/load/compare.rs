//! Compares a run with an earlier run, whose report `--json` has written.

use std::io::BufReader;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thruway_load::Report;
use thruway_sys::printable;

use super::page::Page;
use super::source::Source;
use crate::output::Failure;
use crate::units::{time, whole};

/// The largest report that is read. A report on a million connections is half as large.
const REPORT_BYTES_MAX: u64 = 1 << 30;

/// A figure: its name, its place in a report, and its format.
type Row = (&'static str, &'static str, fn(f64) -> String);

/// The figures to compare.
const ROWS: [Row; 6] = [
    ("requests/s", "/requests_per_second", whole),
    ("p50", "/latency/p50_ns", nanoseconds),
    ("p99", "/latency/p99_ns", nanoseconds),
    ("p99.9", "/latency/p999_ns", nanoseconds),
    ("Jain", "/fairness/index", fraction),
    ("lost", "/failed", whole),
];

/// The parts of an earlier report that are compared. All other parts are skipped, and take no memory.
#[derive(Debug, Deserialize)]
struct Earlier {
    total: Total,
}

#[derive(Debug, Deserialize, Serialize)]
struct Total {
    requests_per_second: Option<f64>,
    latency: Latency,
    fairness: Option<Fairness>,
    failed: Option<f64>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Latency {
    p50_ns: f64,
    p99_ns: Option<f64>,
    p999_ns: Option<f64>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Fairness {
    index: Option<f64>,
}

/// Returns the URL to compare with, if `path` is a URL and not a file.
pub(super) fn url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| {
        text.split_once("://").is_some_and(|(scheme, _)| scheme.chars().all(char::is_alphanumeric))
    })
}

/// Reads the totals of an earlier run's report.
pub(super) fn read(path: &Path) -> Result<Value, Failure> {
    let shown = printable::path(&path);
    let unreadable = |error| Failure::new(format_args!("cannot read {shown}: {error}"));
    let source = Source::open(path, REPORT_BYTES_MAX).map_err(unreadable)?;
    match serde_json::from_reader::<_, Earlier>(BufReader::new(source)) {
        Ok(earlier) => Ok(serde_json::to_value(earlier.total).unwrap_or_default()),
        Err(error) if error.is_io() => Err(unreadable(error.into())),
        Err(_) => Err(Failure::new(format_args!("{shown} is not a report of thruway load"))
            .hint("write one with: thruway load URL --json > FILE")),
    }
}

/// Writes a row for each figure: earlier, now, and now ÷ earlier.
pub(super) fn text(page: &mut Page, earlier: &Value, report: &Report, path: &Path) {
    let now = serde_json::to_value(&report.total).unwrap_or_default();
    let mut rows =
        vec![["", &printable::path(path), "now", "now ÷ then"].map(str::to_owned).to_vec()];
    for (name, pointer, write) in ROWS {
        let value = |report: &Value| report.pointer(pointer).and_then(Value::as_f64);
        if let (Some(then), Some(now)) = (value(earlier), value(&now)) {
            let ratio = if then > 0.0 { format!("{:.2} ×", now / then) } else { String::new() };
            rows.push(vec![name.to_owned(), write(then), write(now), ratio]);
        }
    }
    page.table(rows, &[]);
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
    use std::fs;

    #[test]
    fn what_is_no_report_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let times = "{\"total\":{\"latency\":{\"p50_ns\":\"5\"}}}";
        for (name, text) in
            [("a", "{}"), ("b", "no JSON"), ("c", "{\"total\":1}"), ("d", times), ("e", "")]
        {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            assert!(read(&path).is_err(), "{text}");
        }
        assert!(read(&folder.path().join("none")).is_err());
    }
}
