//! Reports progress during long commands, if requested.

use std::time::{Duration, Instant};

use thruway_trace::analysis::Analysis;

use crate::output::print_error;
use crate::units::thousands;

/// Reports the progress of an analysis on stderr, in whole lines. The traced command writes to the same terminal and
/// may have written half a line, so the progress does not erase lines.
pub(super) struct Progress {
    start: Instant,
    last: Duration,
}

const INTERVAL: Duration = Duration::from_secs(2);

impl Progress {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), last: Duration::ZERO }
    }

    pub(super) fn show(&mut self, analysis: &Analysis) {
        let elapsed = self.start.elapsed();
        if elapsed < self.last + INTERVAL {
            return;
        }
        let (calls, missed) = analysis.progress();
        let (calls, missed) = (thousands(calls), thousands(missed));
        let seconds = elapsed.as_secs_f64();
        let text = format!("{seconds:6.1} s  {calls:>11} file calls  {missed:>11} not there\n");
        print_error(text.as_bytes());
        self.last = elapsed;
    }
}
