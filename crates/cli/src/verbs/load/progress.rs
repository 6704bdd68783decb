//! A line on the terminal with the progress of a run.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use thruway_load::{Progress, jain};

use super::text::sparkline;
use crate::units::whole;

/// Back to the first column, and away with what stands there.
const CLEAR: &str = "\r\x1b[2K";

/// The line. It is written on stderr, and only to a terminal.
pub(super) struct Line {
    is_shown: bool,
    /// The responses and the time at the last write.
    answered: u64,
    elapsed: Duration,
}

impl Line {
    pub(super) fn new() -> Self {
        Self { is_shown: io::stderr().is_terminal(), answered: 0, elapsed: Duration::ZERO }
    }

    /// Writes the rate since the last time, and how fair the run has been so far.
    #[expect(clippy::cast_precision_loss, reason = "a line for people")]
    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        if !self.is_shown {
            return;
        }
        let shares: Vec<_> = progress.shares().collect();
        let answered: u64 = shares.iter().sum();
        let seconds = (progress.elapsed - self.elapsed).as_secs_f64();
        let rate = whole((answered - self.answered) as f64 / seconds);
        let index = jain(shares.iter().copied()).unwrap_or(0.0);
        let (elapsed, bars) = (progress.elapsed.as_secs_f64(), sparkline(&shares));
        self.write(&format!("{CLEAR}{elapsed:5.1} s  {rate:>9}/s  Jain {index:.3}  {bars}"));
        (self.answered, self.elapsed) = (answered, progress.elapsed);
    }

    pub(super) fn clear(&self) {
        if self.is_shown {
            self.write(CLEAR);
        }
    }

    fn write(&self, text: &str) {
        // A terminal that has gone away misses nothing.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}
