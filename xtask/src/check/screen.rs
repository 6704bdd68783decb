//! The output of steps that run side by side, shown step by step, above a line of progress on a terminal.

use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

/// The longest time without a line.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The time after which the line of progress is drawn again.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

/// Returns to the first column and erases the line.
const ERASE_LINE: &str = "\r\x1b[K";

/// Shows the lines of one step as they arrive, and keeps those of the others until the step has
/// ended.
pub(super) struct Screen<W> {
    output: W,
    /// The first step is the one that is shown.
    steps: VecDeque<ShownStep>,
    last_line: Instant,
    /// The line of progress below all other lines; `None` if the output is no terminal.
    progress: Option<String>,
    last_progress: Instant,
}

struct ShownStep {
    number: usize,
    /// Lines that were not shown yet.
    lines: Vec<String>,
    has_ended: bool,
}

impl<W: Write> Screen<W> {
    pub(super) fn new(output: W, is_terminal: bool) -> Self {
        let progress = is_terminal.then(String::new);
        let (steps, now) = (VecDeque::new(), Instant::now());
        Self { output, steps, last_line: now, progress, last_progress: now }
    }

    /// Whether the screen has a line of progress.
    pub(super) fn has_progress(&self) -> bool {
        self.progress.is_some()
    }

    /// Replaces the line of progress.
    pub(super) fn set_progress(&mut self, line: String) {
        self.erase_progress();
        self.progress = Some(line);
        self.draw_progress();
        self.last_progress = Instant::now();
    }

    /// Removes the line of progress until the next line is written.
    pub(super) fn erase_progress(&mut self) {
        if self.progress.is_some() {
            let _ = write!(self.output, "{ERASE_LINE}");
        }
    }

    fn draw_progress(&mut self) {
        if let Some(line) = &self.progress {
            let _ = write!(self.output, "{line}");
        }
        let _ = self.output.flush();
    }

    /// Adds a step that has started, with its heading.
    pub(super) fn start(&mut self, number: usize, heading: String) {
        self.steps.push_back(ShownStep { number, lines: vec![heading], has_ended: false });
        self.show();
    }

    /// Adds a line of a running step.
    pub(super) fn line(&mut self, number: usize, line: String) {
        if let Some(step) = self.steps.iter_mut().find(|step| step.number == number) {
            step.lines.push(line);
        }
        self.show();
    }

    /// Adds the last line of a step, and moves on to the next step.
    pub(super) fn end(&mut self, number: usize, line: String) {
        if let Some(step) = self.steps.iter_mut().find(|step| step.number == number) {
            step.lines.push(line);
            step.has_ended = true;
        }
        self.show();
    }

    /// Shows all output of a failed step, whatever step is shown otherwise.
    pub(super) fn fail(&mut self, number: usize, line: String) {
        if let Some(at) = self.steps.iter().position(|step| step.number == number) {
            let failed = self.steps.remove(at);
            let lines = failed.into_iter().flat_map(|step| step.lines);
            lines.for_each(|line| self.note(&line));
        }
        self.note(&line);
        self.show();
    }

    /// Writes all output that can be shown now. A failed write does not end the check: no reader
    /// may be left.
    fn show(&mut self) {
        self.erase_progress();
        while let Some(step) = self.steps.front_mut() {
            for line in step.lines.drain(..) {
                let _ = writeln!(self.output, "{line}");
                self.last_line = Instant::now();
            }
            if !step.has_ended {
                break;
            }
            self.steps.pop_front();
        }
        self.draw_progress();
    }

    /// Returns the time left until some line must be shown.
    pub(super) fn silence_left(&self) -> Duration {
        match self.has_progress() {
            true => PROGRESS_PERIOD.saturating_sub(self.last_progress.elapsed()),
            false => SILENCE_MAX.saturating_sub(self.last_line.elapsed()),
        }
    }

    /// Shows a line that belongs to no step.
    pub(super) fn note(&mut self, line: &str) {
        self.erase_progress();
        let _ = writeln!(self.output, "{line}");
        self.last_line = Instant::now();
        self.draw_progress();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_shown_at_once() {
        let mut output = Vec::new();
        let mut screen = Screen::new(&mut output, false);
        screen.start(1, "== a".into());
        screen.start(2, "== b".into());
        screen.line(2, "b 1".into());
        screen.fail(2, "b failed".into());
        screen.line(1, "a 1".into());
        let text = String::from_utf8(output).expect("text");
        assert_eq!(text, "== a\n== b\nb 1\nb failed\na 1\n");
    }

    #[test]
    fn the_line_of_progress_stays_below_all_others() {
        let mut output = Vec::new();
        let mut screen = Screen::new(&mut output, true);
        screen.set_progress("10 %".into());
        screen.note("a note");
        screen.set_progress("20 %".into());
        screen.erase_progress();
        let text = String::from_utf8(output).expect("text");
        let lines = ["", "10 %", "a note\n10 %", "20 %", ""];
        assert_eq!(text, lines.join(ERASE_LINE));
    }

    #[test]
    fn the_output_of_each_step_stays_in_one_piece() {
        let mut output = Vec::new();
        let mut screen = Screen::new(&mut output, false);
        screen.start(4, "== a".into());
        screen.start(7, "== b".into());
        screen.line(7, "b 1".into());
        screen.line(4, "a 1".into());
        screen.start(9, "== c".into());
        screen.end(7, "b ends".into());
        screen.line(4, "a 2".into());
        screen.line(9, "c 1".into());
        screen.end(4, "a ends".into());
        screen.line(9, "c 2".into());
        screen.end(9, "c ends".into());
        let text = String::from_utf8(output).expect("text");
        let lines: Vec<_> = text.lines().collect();
        let expected = ["== a", "a 1", "a 2", "a ends", "== b", "b 1", "b ends"];
        assert_eq!(lines[..7], expected);
        assert_eq!(lines[7..], ["== c", "c 1", "c 2", "c ends"]);
    }
}
