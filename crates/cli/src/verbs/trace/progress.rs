//! One line on the terminal that tells how far a long command has come.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use thruway_trace::analysis::Analysis;

use crate::output::print_error;
use crate::units::thousands;

/// The line. It is written on stderr, and only to a terminal.
pub(super) struct Progress {
    is_shown: bool,
    start: Instant,
    last: Duration,
    is_written: bool,
}

/// Back to the first column, and away with what stands there.
const CLEAR: &str = "\r\x1b[2K";
/// A command that is done by then is not worth the line.
const QUIET: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(200);

impl Progress {
    pub(super) fn new() -> Self {
        let is_shown = io::stderr().is_terminal();
        Self { is_shown, start: Instant::now(), last: QUIET, is_written: false }
    }

    pub(super) fn show(&mut self, analysis: &Analysis) {
        let elapsed = self.start.elapsed();
        if !self.is_shown || elapsed < self.last + INTERVAL {
            return;
        }
        let (calls, missed) = analysis.progress();
        let (calls, missed) = (thousands(calls), thousands(missed));
        let seconds = elapsed.as_secs_f64();
        let text =
            format!("{CLEAR}{seconds:6.1} s  {calls:>11} file calls  {missed:>11} not there");
        print_error(text.as_bytes());
        (self.last, self.is_written) = (elapsed, true);
    }

    pub(super) fn clear(&self) {
        if self.is_written {
            print_error(CLEAR.as_bytes());
        }
    }
}
