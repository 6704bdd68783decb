//! The line that tells on a terminal how far a check is.

/// Columns of the bar between its brackets.
const BAR_COLUMNS: usize = 20;

/// The seconds of a step whose duration is not known yet.
const UNKNOWN_SECONDS: u64 = 20;

/// A step as far as it matters for the progress.
#[derive(Debug, Clone, Copy)]
pub(super) enum StepProgress {
    Waiting,
    Running { seconds: u64 },
    Ended,
}

/// Returns the share of the work that is done, in percent. A step weighs as much as it took the last time. A running
/// step that takes longer counts as nearly done.
pub(super) fn percent(steps: impl Iterator<Item = (Option<u64>, StepProgress)>) -> u64 {
    let (mut done, mut all) = (0, 0);
    for (expected, progress) in steps {
        let expected = 100 * expected.unwrap_or(UNKNOWN_SECONDS).max(1);
        all += expected;
        done += match progress {
            StepProgress::Waiting => 0,
            StepProgress::Running { seconds } => (100 * seconds).min(expected * 95 / 100),
            StepProgress::Ended => expected,
        };
    }
    (100 * done).checked_div(all).unwrap_or(100)
}

/// Returns the line, cut to a terminal of `columns` columns.
pub(super) fn line(
    percent: u64,
    ended: usize,
    steps: usize,
    running: &str,
    columns: usize,
) -> String {
    let filled = (percent.min(100) as usize) * BAR_COLUMNS / 100;
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR_COLUMNS - filled));
    let line = format!("[{bar}] {percent:>2} %, {ended} of {steps} steps; running: {running}");
    // A line as wide as the terminal would wrap, and its first part could not be erased.
    line.chars().take(columns.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use StepProgress::{Ended, Running, Waiting};

    #[test]
    fn steps_weigh_as_much_as_they_took_the_last_time() {
        let steps = [(Some(30), Ended), (Some(60), Running { seconds: 30 }), (Some(10), Waiting)];
        assert_eq!(percent(steps.into_iter()), 60);
        let late = [(Some(60), Running { seconds: 600 })];
        assert_eq!(percent(late.into_iter()), 95);
        let unknown = [(None, Ended), (None, Waiting)];
        assert_eq!(percent(unknown.into_iter()), 50);
        assert_eq!(percent([].into_iter()), 100);
    }

    #[test]
    fn a_line_does_not_wrap() {
        let whole = line(45, 9, 20, "lints (3 s)", 80);
        assert_eq!(whole, "[#########...........] 45 %, 9 of 20 steps; running: lints (3 s)");
        assert_eq!(line(45, 9, 20, "lints (3 s)", 30).len(), 29);
        assert_eq!(line(100, 20, 20, "", 0), "");
    }
}
