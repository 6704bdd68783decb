//! Shows the progress of a run on stderr: a view that is redrawn on a terminal, or lines elsewhere.

use std::io::{self, Write};
use std::time::Duration;

use thruway_load::{Histogram, Progress, jain};

use super::page::{Page, width};
use super::text::sparkline;
use crate::output::is_capable;
use crate::units::{thousands, time, whole};

/// The interval between two drawings of a terminal's view.
const REDRAWN: Duration = Duration::from_millis(500);
/// The label of the shares.
const SHARES: &str = "shares  ";
/// The room for a note behind the shares.
const NOTE_WIDTH: usize = 26;
/// The width of a terminal that does not report one.
const WIDTH_USUAL: usize = 80;

/// The progress since the last display.
pub(super) struct Live {
    is_shown: bool,
    is_terminal: bool,
    /// The time between two lines if stderr is not a terminal.
    interval: Duration,
    /// The text before each line.
    name: String,
    /// The number of rows on the terminal.
    rows: usize,
    shown: Duration,
    requests: u64,
    /// The number of requests since the start that were lost or answered with an error.
    errors: u64,
    latency: Histogram,
}

impl Live {
    /// Creates the progress of a run. `interval` is the time between two lines if stderr is not a terminal.
    pub(super) fn new(is_quiet: bool, interval: Duration) -> Self {
        Self {
            is_shown: !is_quiet,
            is_terminal: is_capable(&io::stderr()),
            interval,
            name: String::new(),
            rows: 0,
            shown: Duration::ZERO,
            requests: 0,
            errors: 0,
            latency: Histogram::default(),
        }
    }

    /// Creates the progress of one visit of several.
    pub(super) fn named(name: String, is_quiet: bool, interval: Duration) -> Self {
        Self { name: name + "  ", ..Self::new(is_quiet, interval) }
    }

    /// Adds progress, and shows the sum when the interval has passed.
    pub(super) fn show(&mut self, progress: &Progress) {
        if !self.is_shown {
            return;
        }
        self.requests += progress.requests;
        self.errors += progress.failed + progress.errors;
        self.latency.merge(&progress.latency);
        let interval = if self.is_terminal { REDRAWN } else { self.interval };
        let since = progress.elapsed.saturating_sub(self.shown);
        // A tick comes some microseconds late, or shortly before the next interval.
        if since + Duration::from_millis(50) < interval {
            return;
        }
        let page = Page::of(&io::stderr());
        let line = |room| page.printable(&self.line(progress, since, room));
        let text = if self.is_terminal {
            let room = width(&io::stderr()).unwrap_or(WIDTH_USUAL) - 1;
            let line = line(room);
            self.view(&page, line, &progress.shares)
        } else {
            line(usize::MAX) + "\n"
        };
        self.write(&text);
        (self.shown, self.requests) = (progress.elapsed, 0);
        self.latency.clear();
    }

    /// Formats the rate, the latency, the errors and the fairness so far. A narrow `room` leaves out latencies, because
    /// errors and fairness tell more.
    #[expect(clippy::cast_precision_loss, reason = "the line shows rounded numbers")]
    fn line(&self, progress: &Progress, since: Duration, room: usize) -> String {
        let rate = whole(self.requests as f64 / since.as_secs_f64().max(1e-9));
        let elapsed = progress.elapsed.as_secs_f64();
        let warm_up = if progress.is_warm { "" } else { "warm-up  " };
        let (p50, p99) = (time(self.latency.quantile(0.5)), time(self.latency.quantile(0.99)));
        let index = jain(progress.shares.iter().copied())
            .map_or_else(String::new, |index| format!("  Jain {index:.3}"));
        let (name, errors) = (&self.name, thousands(self.errors));
        let begin = format!("{name}{elapsed:5.1} s  {warm_up}{rate:>8}/s");
        let end = format!("  {errors} errors{index}");
        let latencies = [format!("  p50 {p50}  p99 {p99}"), format!("  p99 {p99}"), String::new()];
        let lines = latencies.map(|latencies| format!("{begin}{latencies}{end}"));
        let [.., narrowest] = &lines;
        let fits = |line: &&String| line.chars().count() <= room;
        lines.iter().find(fits).unwrap_or(narrowest).clone()
    }

    /// Returns the line and, below it, a bar for each client's share of the requests, both cut to the terminal's width.
    fn view(&mut self, page: &Page, line: String, shares: &[u64]) -> String {
        let width = width(&io::stderr()).unwrap_or(WIDTH_USUAL) - 1;
        let room = width.saturating_sub(SHARES.len());
        let is_long = shares.len() > room;
        let room = if is_long { room.saturating_sub(NOTE_WIDTH) } else { room };
        let (bars, each) = sparkline(shares, room);
        let note = if is_long { format!("  each the least of {each}") } else { String::new() };
        let shares = format!("{SHARES}{}{note}", page.printable(&bars));
        let cut = |line: String| line.chars().take(width).collect::<String>();
        let text = format!("{}{}\n{}", self.erased(), cut(line), cut(shares));
        self.rows = 2;
        text
    }

    /// Returns the escape sequence that removes the rows on the terminal.
    fn erased(&self) -> String {
        match self.rows {
            0 => "\r\x1b[K".to_owned(),
            rows => format!("\r\x1b[{}A\x1b[J", rows - 1),
        }
    }

    pub(super) fn clear(&mut self) {
        if self.rows > 0 {
            self.write(&self.erased());
            self.rows = 0;
        }
    }

    fn write(&self, text: &str) {
        // A failure to write means that the terminal is gone.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_line_keeps_the_errors_and_the_fairness() {
        let mut live = Live::new(false, Duration::from_secs(1));
        (live.requests, live.errors) = (123_456, 1_234);
        live.latency.record(1_230_000);
        let progress = Progress {
            elapsed: Duration::from_secs(5),
            is_warm: true,
            shares: vec![1, 1],
            requests: 0,
            errors: 0,
            failed: 0,
            latency: Histogram::default(),
        };
        let line = |room| live.line(&progress, Duration::from_secs(1), room);
        for room in [usize::MAX, 119, 79, 59, 40] {
            let line = line(room);
            assert!(line.chars().count() <= room.max(50), "{line}");
            assert!(line.ends_with("  1,234 errors  Jain 1.000"), "{line}");
            assert_eq!(line.contains("p50"), room > 70, "{line}");
            assert_eq!(line.contains("p99"), room > 55, "{line}");
        }
    }
}
