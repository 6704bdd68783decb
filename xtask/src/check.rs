//! `cargo x check`: the lints, then every test, a step at a time.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Args;

use crate::durations::Durations;

/// Everything that CI runs: lints, then every test
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Only the steps whose title contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// One part of the check.
struct Step {
    title: &'static str,
    program: PathBuf,
    arguments: Vec<&'static str>,
}

impl Check {
    /// Runs the steps in order and stops at the first that fails. Ends with the summary lines of all
    /// test runners, in their own words.
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let steps = chosen(steps(root), self.only.as_deref())?;
        let mut summaries = Vec::new();
        let mut durations = Durations::read(root.join("target/check-durations.tsv"));
        for step in &steps {
            let start = Instant::now();
            match durations.of(step.title) {
                Some(seconds) => println!("\n== {} ({seconds} s the last time)", step.title),
                None => println!("\n== {}", step.title),
            }
            step.run(root, &mut summaries)?;
            let seconds = start.elapsed().as_secs();
            println!("== {}: {seconds} s", step.title);
            durations.keep(step.title, seconds);
        }
        println!();
        summaries.iter().for_each(|summary| println!("{summary}"));
        Ok(())
    }
}

/// The tests of the boot once more, in the portable mode. Left out are random edits: it is one of their modes. What
/// does not depend on it is left out too: methods that a program patches, and the collector.
const PORTABLE_TESTS: [&str; 13] = [
    "-Itarget/debug/gem",
    "-Igem/lib",
    "-Igem/test",
    "-w",
    "-rdeadline",
    "-e",
    "ENV['THRUWAY_PORTABLE'] = '1'",
    "-e",
    "files = Dir['gem/test/boot/*_test.rb'].grep_v(/freshness|patches|collector/).sort",
    "-e",
    "files.each { |file| require \"./#{file}\" }",
    "--",
    "--no-plugins",
];

/// Every `examples/*/test/*_test.rb` in one process; applications run in processes of their own.
const EXAMPLE_TESTS: [&str; 8] = [
    "-Igem/test",
    "-w",
    "-rdeadline",
    "-e",
    "Dir['examples/*/test/*_test.rb'].sort.each { |file| require \"./#{file}\" }",
    "--",
    "--no-plugins",
    "--verbose",
];

/// The steps whose title contains `only`. None is a mistake, not a success.
fn chosen(mut steps: Vec<Step>, only: Option<&str>) -> Result<Vec<Step>, String> {
    let titles = steps.iter().map(|step| step.title).collect::<Vec<_>>().join(", ");
    steps.retain(|step| step.title.contains(only.unwrap_or("")));
    match only {
        Some(only) if steps.is_empty() => {
            Err(format!("no step has {only:?} in its title\n\nhint: the steps are {titles}"))
        }
        _ => Ok(steps),
    }
}

fn steps(root: &Path) -> Vec<Step> {
    let step = |title, program, arguments: &[&'static str]| Step {
        title,
        program,
        arguments: arguments.to_vec(),
    };
    vec![
        step("format", crate::command::cargo(), &["fmt", "--all", "--check"]),
        step("spelling", root.join("target/tools/bin/typos"), &[]),
        step(
            "lints",
            crate::command::cargo(),
            &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
        ),
        step("text", crate::command::cargo(), &["x", "text"]),
        step("rooms", crate::command::cargo(), &["x", "rooms"]),
        step("ruby style", "rubocop".into(), &["--format", "simple"]),
        // Tests of the binary start Ruby with it.
        step("gem", crate::command::cargo(), &["x", "gem", "--tests"]),
        step("tests", crate::command::cargo(), &["test", "--workspace"]),
        step(
            "suites",
            crate::command::cargo(),
            &["x", "suites", "--at-hand", "--operations", "1000"],
        ),
        step("instructions", crate::command::cargo(), &["x", "instructions"]),
        step("packages", crate::command::cargo(), &["x", "packages"]),
        step("windows", crate::command::cargo(), &["x", "windows"]),
        step("aarch64", crate::command::cargo(), &["x", "aarch64"]),
        step("portable", crate::command::cargo(), &["x", "portable"]),
        step("gem tests", crate::command::cargo(), &["x", "gem-tests"]),
        step("boot where calls are not answered", "ruby".into(), &PORTABLE_TESTS),
        step("examples", "ruby".into(), &EXAMPLE_TESTS),
    ]
}

impl Step {
    /// Shows the command's output as it comes and keeps the runners' summary lines. An error names the tests
    /// that failed, too: it is the last line, and all that some see of the output.
    fn run(&self, root: &Path, summaries: &mut Vec<String>) -> Result<(), String> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .current_dir(root)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                format!("{}: cannot start {}: {error}", self.title, self.program.display())
            })?;
        let output = child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines());
        let mut failed = Vec::new();
        for line in output.map_while(Result::ok) {
            println!("{line}");
            failed.extend(failed_test(&line).map(str::to_owned));
            if is_summary(&line) {
                summaries.push(line);
            }
        }
        let status = child.wait().map_err(|error| format!("{}: {error}", self.title))?;
        match status.success() {
            true => Ok(()),
            false if failed.is_empty() => Err(format!("{} failed ({status})", self.title)),
            false => Err(format!("{} failed ({status}): {}", self.title, failed.join(", "))),
        }
    }
}

/// The name of the test that this line of libtest's or minitest's says to have failed.
pub(crate) fn failed_test(line: &str) -> Option<&str> {
    let libtest = || line.strip_prefix("test ")?.strip_suffix(" ... FAILED");
    let minitest = || {
        let line = line.strip_suffix(" s = F").or_else(|| line.strip_suffix(" s = E"))?;
        Some(line.rsplit_once(" = ")?.0)
    };
    libtest().or_else(minitest)
}

/// The last line of a test runner that ran at least one test, libtest's or minitest's; and what was left
/// out, with its reason.
fn is_summary(line: &str) -> bool {
    let left_out = line.contains("skipped: ") || line.contains(": skipped, because ");
    let libtest = line.starts_with("test result:") && !line.contains(" 0 passed; 0 failed");
    left_out || libtest || (line.contains(" runs, ") && line.contains(" assertions, "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_not_there_is_an_error() {
        let titles = |only| -> Result<Vec<_>, String> {
            Ok(chosen(steps(Path::new("/")), only)?.iter().map(|step| step.title).collect())
        };
        assert_eq!(titles(Some("gem t")), Ok(vec!["gem tests"]));
        assert_eq!(titles(None).map(|all| all.len()), Ok(steps(Path::new("/")).len()));
        let message = titles(Some("nosuch")).unwrap_err();
        assert!(
            message
                .starts_with("no step has \"nosuch\" in its title\n\nhint: the steps are format, ")
        );
    }

    #[test]
    fn a_failure_is_known_by_its_name() {
        assert_eq!(failed_test("test serve::a_page ... FAILED"), Some("serve::a_page"));
        assert_eq!(failed_test("BootTest#test_a_page = 0.10 s = F"), Some("BootTest#test_a_page"));
        assert_eq!(failed_test("BootTest#test_a = b = 0.10 s = E"), Some("BootTest#test_a = b"));
        assert_eq!(failed_test("BootTest#test_a_page = 0.10 s = ."), None);
        assert_eq!(failed_test("BootTest#test_a_page = 0.10 s = S"), None);
        assert_eq!(failed_test("test serve::a_page ... ok"), None);
    }

    #[test]
    fn summaries_are_told_from_other_lines() {
        assert!(is_summary("test result: ok. 17 passed; 0 failed; 0 ignored; 0 measured"));
        assert!(is_summary("12 runs, 30 assertions, 0 failures, 0 errors, 0 skips"));
        assert!(!is_summary("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured"));
        assert!(is_summary("skipped: /dev/fuse: No such file or directory"));
        assert!(is_summary("test mount::a_test ... skipped: /dev/fuse: No such file or directory"));
        assert!(is_summary("windows: skipped, because this machine lacks wine"));
        assert!(!is_summary("running 17 tests"));
    }
}
