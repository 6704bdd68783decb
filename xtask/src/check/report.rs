//! The end of a check: the slowest steps, the skipped parts, and the summaries of test runners.

use std::collections::HashMap;

use super::runners;

/// The number of steps and tests that are listed.
const SLOWEST: usize = 10;

/// The lines and times of all steps for the end of the check.
#[derive(Default)]
pub(super) struct Report {
    steps: Vec<(String, f64)>,
    tests: Vec<(String, f64)>,
    /// The program that libtest runs now, by step.
    programs: HashMap<usize, String>,
    skips: Vec<String>,
    summaries: Vec<String>,
    /// Failed tests and the command that runs the first one alone, by step.
    failures: HashMap<usize, Failure>,
}

#[derive(Default)]
struct Failure {
    tests: Vec<String>,
    hint: Option<String>,
}

impl Report {
    /// Keeps the parts of a line that the end of the check repeats: durations, failed tests, skips and summaries.
    pub(super) fn line(&mut self, step: usize, line: &str) {
        if let Some(program) = runners::program_of_tests(line) {
            self.programs.insert(step, program.trim_start_matches("../").to_owned());
        }
        if let Some((test, seconds)) = runners::timed_test(line) {
            self.tests.push((test.to_owned(), seconds));
        }
        if let Some(seconds) = runners::program_seconds(line) {
            self.tests.extend(self.programs.remove(&step).map(|program| (program, seconds)));
        }
        if runners::is_skip(line) {
            self.skips.push(line.to_owned());
        }
        if runners::is_summary(line) {
            self.summaries.push(line.to_owned());
        }
        let failed = runners::failed_test(line).map(str::to_owned);
        let hint = line.strip_prefix("hint: ").map(str::to_owned);
        if failed.is_some() || hint.is_some() {
            let failure = self.failures.entry(step).or_default();
            failure.tests.extend(failed);
            failure.hint = hint.or(failure.hint.take());
        }
    }

    /// Records the duration of a step.
    pub(super) fn step(&mut self, title: &str, seconds: f64) {
        self.steps.push((title.to_owned(), seconds));
    }

    /// Returns the error of a failed step: its failed tests, and the command that runs them alone.
    pub(super) fn failure(&mut self, step: usize, title: &str, end: &str, alone: &str) -> String {
        let Failure { tests, hint } = self.failures.remove(&step).unwrap_or_default();
        let hint = hint.unwrap_or_else(|| alone.to_owned());
        match tests.is_empty() {
            true => format!("{title} failed ({end})\n\nhint: {hint}"),
            false => format!("{title} failed ({end}): {}\n\nhint: {hint}", tests.join(", ")),
        }
    }

    /// Returns the last lines of a successful check, with those of the runners at the very end.
    pub(super) fn lines(mut self) -> Vec<String> {
        let mut lines = vec![String::new(), "The slowest steps:".to_owned()];
        lines.extend(slowest(&mut self.steps));
        if !self.tests.is_empty() {
            lines.push("The slowest tests:".to_owned());
            lines.extend(slowest(&mut self.tests));
        }
        lines.push(String::new());
        lines.append(&mut self.skips);
        lines.append(&mut self.summaries);
        lines
    }
}

fn slowest(timed: &mut [(String, f64)]) -> Vec<String> {
    timed.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let lines = timed.iter().take(SLOWEST);
    lines.map(|(name, seconds)| format!("{seconds:8.1} s  {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runners_have_the_last_word() {
        let mut report = Report::default();
        let rust = "test result: ok. 17 passed; 0 failed; 0 ignored; finished in 12.50s";
        report.line(1, "     Running ../../tests/it/main.rs (target/debug/deps/it-0123)");
        report.line(2, "ATest#test_a = 1.25 s = .");
        report.line(1, rust);
        report.line(2, "ATest#test_b = 31.00 s = S");
        report.line(1, "skipped: /dev/fuse: No such file or directory");
        report.line(2, "2 runs, 30 assertions, 0 failures, 0 errors, 1 skips");
        report.step("lints", 7.0);
        report.step("tests", 70.0);
        let lines = report.lines();
        assert_eq!(
            lines[..4],
            ["", "The slowest steps:", "    70.0 s  tests", "     7.0 s  lints"]
        );
        assert_eq!(lines[4..6], ["The slowest tests:", "    31.0 s  ATest#test_b"]);
        assert_eq!(lines[6..8], ["    12.5 s  tests/it/main.rs", "     1.2 s  ATest#test_a"]);
        assert_eq!(lines[9], "skipped: /dev/fuse: No such file or directory");
        assert_eq!(lines[10..], [rust, "2 runs, 30 assertions, 0 failures, 0 errors, 1 skips"]);
    }

    #[test]
    fn a_failure_names_its_tests_and_their_command() {
        let mut report = Report::default();
        report.line(0, "test a::b ... FAILED");
        report.line(1, "ATest#test_a = 1.25 s = F");
        report.line(1, "hint: ruby gem/test/a_test.rb -n test_a");
        let alone = "cargo x check --only \"tests\"";
        assert_eq!(
            report.failure(0, "tests", "exit status: 101", alone),
            "tests failed (exit status: 101): a::b\n\nhint: cargo x check --only \"tests\""
        );
        assert_eq!(
            report.failure(1, "gem tests", "exit status: 1", alone),
            "gem tests failed (exit status: 1): ATest#test_a\n\nhint: ruby gem/test/a_test.rb -n test_a"
        );
        assert!(report.failure(2, "format", "exit status: 1", "c").ends_with("\n\nhint: c"));
    }
}
