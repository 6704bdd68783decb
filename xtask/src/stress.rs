//! `cargo x stress`: many runs of the tests beside other work, to find tests that fail by chance.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use clap::Args;

use crate::check::runners::failed_test;

/// Run tests many times beside busy loops, and report those that fail by chance
///
/// Nothing compiles during the runs. The output of each failed run stays in target/stress.
#[derive(Debug, Args)]
pub(crate) struct Stress {
    /// Run only tests whose names contain NAME
    name: Option<String>,

    /// Number of runs of each test
    #[arg(long, default_value_t = 10)]
    times: u32,

    /// Number of busy loops beside the tests
    #[arg(long, default_value_t = 4)]
    busy: u32,

    /// Seed of the order of gem tests in the first run; later runs use the next seeds
    #[arg(long, default_value_t = 1)]
    seed: u32,
}

impl Stress {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let mut gem = Command::new(crate::command::cargo());
        crate::command::succeed(gem.current_dir(root).args(["x", "gem", "--tests"]))?;
        let mut build = crate::linting::cargo(root);
        crate::command::succeed(build.args(["test", "--workspace", "--no-run"]))?;
        let folder = root.join("target/stress");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let _busy = Busy::start(self.busy);
        let mut failures = Vec::new();
        for seed in self.seed..self.seed.saturating_add(self.times) {
            for (kind, mut tests) in [("rust", self.rust(root)), ("gem", self.gem(root, seed))] {
                let output = folder.join(format!("{kind}-{seed}.txt"));
                let failed = failed_in(&mut tests, &output)?;
                println!("{kind} tests, seed {seed}: {} failed", failed.len());
                for test in failed {
                    println!("    {test}: {}", output.display());
                    failures.push(test);
                }
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(format!("{} failures", failures.len())) }
    }

    fn rust(&self, root: &Path) -> Command {
        // The flags equal those of the build. Examples in the documentation are left out: they would be compiled each
        // time.
        let mut tests = crate::linting::cargo(root);
        tests.args(["test", "--workspace", "--lib", "--bins", "--tests"]);
        tests.arg("--no-fail-fast").args(&self.name);
        tests
    }

    fn gem(&self, root: &Path, seed: u32) -> Command {
        let mut tests = Command::new(crate::command::cargo());
        tests.current_dir(root).args(["x", "gem-tests", "--seed", &seed.to_string()]);
        tests.args(&self.name);
        tests
    }
}

/// Runs the tests with their output in a file, and returns the failed ones. If all passed, the file is removed.
fn failed_in(tests: &mut Command, output: &PathBuf) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", output.display());
    let file = fs::File::create(output).map_err(failed)?;
    tests.stderr(file.try_clone().map_err(failed)?).stdout(file);
    let status = tests.status().map_err(|error| format!("cannot start {tests:?}: {error}"))?;
    if status.success() {
        fs::remove_file(output).map_err(failed)?;
        return Ok(Vec::new());
    }
    let text = fs::read(output).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    let names: Vec<_> = text.lines().filter_map(failed_test).map(str::to_owned).collect();
    // A run may end before the first name, for example if a test ends the process.
    Ok(if names.is_empty() { vec![format!("a run that ended with {status}")] } else { names })
}

/// Threads that only consume processor time until the value is dropped.
struct Busy {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn start(count: u32) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || while !ends.load(Ordering::Relaxed) {})
        };
        let threads = (0..count).map(spin).collect();
        Self { ends, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_that_failed_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let output = folder.path().join("gem-1.txt");
        let run = |script: &str| failed_in(Command::new("sh").args(["-c", script]), &output);
        let said = "echo 'test a::b ... FAILED'; echo 'CTest#test_d = 0.01 s = F'; exit 1";
        assert_eq!(run(said), Ok(vec!["a::b".into(), "CTest#test_d".into()]));
        assert!(output.is_file());
        assert_eq!(run("echo 'test a::b ... ok'"), Ok(Vec::new()));
        assert!(!output.is_file());
        assert_eq!(run("exit 3").map(|failed| failed.len()), Ok(1));
    }
}
