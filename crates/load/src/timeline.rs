//! The results of a run second by second, and its progress.

use std::sync::Mutex;
use std::time::Duration;

use serde::Serialize;

use crate::Histogram;
use crate::latency::{Latency, per_second};
use crate::plan::nanoseconds;

/// The length of a row, in nanoseconds.
const ROW_NS: u64 = 1_000_000_000;
/// The interval in which each thread reports, in nanoseconds.
pub(crate) const TICK_NS: u64 = 100_000_000;
/// Rows that are not summarized yet. A thread that is later than this only adds to the counts of a row.
const OPEN_ROWS: usize = 3;

/// The counts of an interval.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interval {
    pub(crate) requests: u64,
    /// Responses with 4xx or 5xx, which are among the requests.
    pub(crate) errors: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
    pub(crate) latency: Histogram,
}

impl Interval {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
    }

    /// Forgets all counts and keeps the memory.
    pub(crate) fn clear(&mut self) {
        (self.requests, self.errors, self.failed, self.bytes) = (0, 0, 0, 0);
        self.latency.clear();
    }
}

/// The results of one second of a run; the last one may be shorter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimelineRow {
    /// When the interval begins, in seconds since the start of the run.
    pub from_seconds: f64,
    /// When the interval ends.
    pub to_seconds: f64,
    /// Requests answered in full, whatever the status.
    pub requests: u64,
    /// `requests`, per second.
    pub requests_per_second: f64,
    /// Responses with 4xx or 5xx, which are among the requests.
    pub errors: u64,
    /// Requests that were lost.
    pub failed: u64,
    /// Bytes received per second, including heads.
    pub bytes_per_second: f64,
    /// Latencies of answered requests.
    pub latency: Latency,
}

#[derive(Debug, Default)]
struct Row {
    interval: Interval,
    /// The latencies, once the row is summarized.
    latency: Option<Latency>,
}

/// All rows of a run, which several threads fill.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Mutex<Vec<Row>>);

impl Timeline {
    /// Adds an interval that ends at `end_ns`.
    pub(crate) fn add(&self, interval: &Interval, end_ns: u64) {
        let mut rows = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let index = usize::try_from(end_ns.saturating_sub(1) / ROW_NS).unwrap_or(usize::MAX);
        while rows.len() <= index {
            rows.push(Row::default());
            let over = rows.len().checked_sub(OPEN_ROWS + 1);
            over.into_iter().for_each(|over| rows[over].summarize());
        }
        rows[index].interval.merge(interval);
    }

    /// Returns the rows of a run of this duration.
    pub(crate) fn rows(&self, elapsed: Duration) -> Vec<TimelineRow> {
        let mut rows = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let end_ns = nanoseconds(elapsed);
        // A run ends some microseconds late, which is no row of its own.
        if let [.., last, over] = rows.as_mut_slice()
            && end_ns % ROW_NS < TICK_NS
            && last.latency.is_none()
        {
            last.interval.merge(&over.interval);
            rows.pop();
        }
        let count = rows.len();
        let row = |(index, row): (usize, &mut Row)| {
            row.summarize();
            let from = index as u64 * ROW_NS;
            let to = if index + 1 == count { end_ns } else { from + ROW_NS };
            row.report(Duration::from_nanos(from), Duration::from_nanos(to))
        };
        rows.iter_mut().enumerate().map(row).collect()
    }
}

impl Row {
    /// Replaces the histogram by its quantiles, which take less memory.
    fn summarize(&mut self) {
        if self.latency.is_none() {
            self.latency = Some(Latency::of(&self.interval.latency));
            self.interval.latency = Histogram::default();
        }
    }

    fn report(&self, from: Duration, to: Duration) -> TimelineRow {
        let Interval { requests, errors, failed, bytes, .. } = self.interval;
        let length = to.saturating_sub(from);
        TimelineRow {
            from_seconds: from.as_secs_f64(),
            to_seconds: to.as_secs_f64(),
            requests,
            requests_per_second: per_second(requests, length),
            errors,
            failed,
            bytes_per_second: per_second(bytes, length),
            latency: self.latency.unwrap_or_else(|| Latency::of(&self.interval.latency)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(requests: u64, latency_ns: u64) -> Interval {
        let mut interval = Interval { requests, ..Interval::default() };
        (0..requests).for_each(|_| interval.latency.record(latency_ns));
        interval
    }

    #[test]
    fn intervals_of_all_threads_add_up_by_second() {
        let timeline = Timeline::default();
        timeline.add(&interval(3, 5), TICK_NS);
        timeline.add(&interval(4, 9), ROW_NS);
        timeline.add(&interval(2, 7), ROW_NS + TICK_NS);
        timeline.add(&interval(1, 8), 6 * ROW_NS);
        // Too late for the quantiles of the first row.
        timeline.add(&interval(1, 100), ROW_NS);
        let rows = timeline.rows(Duration::from_millis(5500));
        let requests: Vec<_> = rows.iter().map(|row| row.requests).collect();
        assert_eq!(requests, [8, 2, 0, 0, 0, 1]);
        assert_eq!((rows[0].latency.max_ns, rows[1].latency.max_ns), (9, 7));
        assert!((rows[5].requests_per_second - 2.0).abs() < 1e-9, "{:?}", rows[5]);
    }

    #[test]
    fn the_microseconds_after_the_last_second_are_no_row() {
        let timeline = Timeline::default();
        timeline.add(&interval(3, 5), ROW_NS);
        timeline.add(&interval(1, 6), ROW_NS + 1000);
        let rows = timeline.rows(Duration::from_nanos(ROW_NS + 1000));
        assert_eq!((rows.len(), rows[0].requests, rows[0].latency.max_ns), (1, 4, 6));
    }
}
