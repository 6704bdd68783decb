//! `cargo x gem-tests`: the gem's tests, one process per file, as many at once as there are processors.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Args;

use crate::durations::Durations;

/// Run the gem's tests, as many files at once as there are processors
///
/// The tests run against the extension of the test profile, which `cargo x gem` builds.
#[derive(Debug, Args)]
pub(crate) struct GemTests {
    /// Run only tests whose names contain NAME
    name: Option<String>,

    /// Seed of the order within each file
    #[arg(long)]
    seed: Option<u32>,
}

/// Ruby's arguments before those of a file, and minitest's. The name of each test is shown at its end. Plugins of
/// installed gems are disabled: that of Rails would keep the details of failures from being shown once more at the end.
const RUBY: [&str; 5] = ["-Itarget/debug/gem", "-Igem/lib", "-Igem/test", "-w", "-rdeadline"];
const MINITEST: [&str; 2] = ["--no-plugins", "--verbose"];

/// The counts of minitest, in the order of its last line.
const COUNTS: [&str; 5] = ["runs", "assertions", "failures", "errors", "skips"];

/// The files that are left to run, and the results so far.
struct Work {
    /// Files, in the order of their runs.
    files: VecDeque<String>,
    durations: Durations,
    counts: [u64; COUNTS.len()],
    /// Failed tests, each with its file. A file alone ended without a summary.
    failed: Vec<String>,
}

impl GemTests {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let durations = Durations::read(root.join("target/gem-test-durations.tsv"));
        let mut files = Vec::new();
        list(root, "gem/test", &mut files);
        files.sort();
        // The longest file runs first, so that no processor is idle at the end. A new file may be long.
        files.sort_by_key(|file| std::cmp::Reverse(durations.of(file).unwrap_or(u64::MAX)));
        let counts = [0; COUNTS.len()];
        let work = Work { files: files.into(), durations, counts, failed: Vec::new() };
        let work = Mutex::new(work);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..processors {
                scope.spawn(|| self.run_files(root, &work));
            }
        });
        let Work { counts, failed, .. } = work.into_inner().unwrap_or_else(PoisonError::into_inner);
        let summary: Vec<_> =
            counts.iter().zip(COUNTS).map(|(count, name)| format!("{count} {name}")).collect();
        println!("{}", summary.join(", "));
        if failed.is_empty() { Ok(()) } else { Err(report(&failed)) }
    }

    /// Runs files until none is left.
    fn run_files(&self, root: &Path, work: &Mutex<Work>) {
        let lock = || work.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(file) = lock().files.pop_front() else { return };
            let start = Instant::now();
            let (counts, failed) = self.run_file(root, &file);
            let mut work = lock();
            if let Some(counts) = counts {
                work.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            if failed.is_empty() && self.name.is_none() {
                work.durations.keep(&file, start.elapsed().as_secs());
            }
            work.failed.extend(failed);
        }
    }

    /// Shows the output of a file's tests as it arrives. Returns the counts of the summary and the failed tests.
    fn run_file(&self, root: &Path, file: &str) -> (Option<[u64; COUNTS.len()]>, Vec<String>) {
        let mut ruby = Command::new("ruby");
        ruby.current_dir(root).args(RUBY).arg(file).args(MINITEST).stdout(Stdio::piped());
        if let Some(seed) = self.seed {
            ruby.args(["--seed", &seed.to_string()]);
        }
        if let Some(name) = &self.name {
            ruby.args(["--name", &format!("/{name}/")]);
        }
        let mut child = match ruby.spawn() {
            Ok(child) => child,
            Err(error) => return (None, vec![format!("cannot start ruby: {error}: {file}")]),
        };
        let output = child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines());
        let (mut counts, mut failed) = (None, Vec::new());
        for line in output.map_while(Result::ok) {
            counts = counts.or(summary(&line));
            failed.extend(
                crate::check::runners::failed_test(&line).map(|test| format!("{test} {file}")),
            );
            // The output of a file without a matching test is of no use.
            if self.name.is_none() || !line.is_empty() {
                println!("{line}");
            }
        }
        let succeeded = child.wait().is_ok_and(|status| status.success());
        // minitest 6 fails if no test of a file matches.
        let has_none = self.name.is_some() && counts.is_some_and(|counts| counts[0] == 0);
        if !succeeded && failed.is_empty() && !has_none {
            failed.push(format!("a run without a failed test {file}"));
        }
        (counts, failed)
    }
}

/// Lists the test files below a folder, by their paths in the checkout.
fn list(root: &Path, folder: &str, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(root, &path, files);
        } else if path.ends_with("_test.rb") {
            files.push(path);
        }
    }
}

/// The counts in minitest's last line.
fn summary(line: &str) -> Option<[u64; COUNTS.len()]> {
    let mut counts = [0; COUNTS.len()];
    let mut parts = line.split(", ");
    for (count, name) in counts.iter_mut().zip(COUNTS) {
        *count = parts.next()?.strip_suffix(name)?.trim_end().parse().ok()?;
    }
    Some(counts)
}

/// Lists the failed tests, with the command that runs the first one alone.
fn report(failed: &[String]) -> String {
    let (name, file) = failed[0].rsplit_once(' ').unwrap_or_default();
    let name = name.rsplit('#').next().unwrap_or_default();
    format!(
        "{} failed:\n{}\n\nhint: ruby {} {file} -n {name}",
        failed.len(),
        failed.join("\n"),
        RUBY.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_last_line() {
        let line = "8 runs, 93 assertions, 1 failures, 2 errors, 3 skips";
        assert_eq!(summary(line), Some([8, 93, 1, 2, 3]));
        assert_eq!(summary("ATest#test_a = 0.01 s = ."), None);
        assert_eq!(summary("8 runs, 93 assertions"), None);
    }

    #[test]
    fn a_failure_comes_with_the_command_for_it() {
        let report = report(&["ATest#test_a gem/test/a_test.rb".to_owned()]);
        assert!(report.starts_with("1 failed:\nATest#test_a gem/test/a_test.rb\n\nhint: ruby "));
        assert!(report.ends_with(" -rdeadline gem/test/a_test.rb -n test_a"), "{report}");
    }

    #[test]
    fn every_file_of_tests_is_found() {
        let mut files = Vec::new();
        list(&crate::root(), "gem/test", &mut files);
        assert!(files.iter().any(|file| file == "gem/test/expand_path_test.rb"));
        assert!(files.iter().any(|file| file == "gem/test/boot/fresh_test.rb"));
        assert!(files.iter().all(|file| !file.ends_with("/booting.rb")));
    }
}
