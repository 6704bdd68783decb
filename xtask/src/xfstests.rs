//! `cargo x xfstests`: the generic tests of xfstests, on a mount over ext4 in memory.
//!
//! xfstests has to be built elsewhere. A failing test is a fault unless `xfstests.tsv` lists it with a reason.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

/// Run the generic tests of xfstests on a mount
///
/// Needs root, Debian's attr, acl, bc, e2fsprogs and xfsprogs, 16 GB of memory for a few of the tests, and half an
/// hour. The output of the tests stays in target/xfstests.
#[derive(Debug, Args)]
pub(crate) struct XfsTests {
    /// Folder in which xfstests was built
    #[arg(value_name = "XFSTESTS")]
    folder: PathBuf,
    /// Tests to run, such as generic/001 [default: the group "quick"]
    #[arg(value_name = "TEST")]
    tests: Vec<String>,
    /// Options of the mount, as in fstab
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    with: String,
    /// Time limit of one test in seconds
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Test the release build instead of the debug build
    #[arg(long)]
    release: bool,
}

const SCRIPT: &str = include_str!("xfstests.sh");

/// Tests that fail or take too long, with the reasons.
const EXCUSED: &str = include_str!("xfstests.tsv");

/// The counts of tests that passed, failed, and were left out.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    excused: usize,
    /// The number of tests left out, by reason.
    left_out: BTreeMap<String, usize>,
    faults: Vec<String>,
    /// Excused tests that passed.
    needless: Vec<String>,
}

impl XfsTests {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let tests = if self.tests.is_empty() { self.quick()? } else { self.tests.clone() };
        let mut tally = Tally::default();
        self.each_verdict(root, &tests, |line| tally.note(line))?;
        tally
            .left_out
            .iter()
            .for_each(|(why, count)| println!("xfstests: {count} left out: {why}"));
        tally.needless.iter().for_each(|test| println!("xfstests: passes, though excused: {test}"));
        println!(
            "xfstests: {} of {} passed, {} left out, {} failed with an excuse, {} without",
            tally.passed,
            tests.len(),
            tally.left_out.values().sum::<usize>(),
            tally.excused,
            tally.faults.len()
        );
        if tally.faults.is_empty() { Ok(()) } else { Err(tally.faults.join("\n")) }
    }

    /// The tests of the group "quick".
    fn quick(&self) -> Result<Vec<String>, String> {
        let path = self.folder.join("tests/generic/group.list");
        let list = fs::read_to_string(&path).map_err(|error| {
            format!("{}: {error}\n\nhint: build xfstests there", path.display())
        })?;
        let quick = |line: &str| {
            let mut words = line.split_whitespace();
            let number = words.next().filter(|number| !number.starts_with('#'))?;
            words.any(|group| group == "quick").then(|| format!("generic/{number}"))
        };
        Ok(list.lines().filter_map(quick).collect())
    }

    /// Runs the tests in a namespace of their own, and calls `note` with each line of output.
    fn each_verdict(
        &self,
        root: &Path,
        tests: &[String],
        mut note: impl FnMut(&str),
    ) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot run xfstests: {error}");
        let results = root.join("target/xfstests");
        fs::create_dir_all(&results).map_err(failed)?;
        let folder = tempfile::tempdir_in("/dev/shm").map_err(failed)?;
        let profile = if self.release { "release" } else { "debug" };
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "xfstests.sh"]);
        command.arg(root.join("target").join(profile).join("thruway")).arg(&self.folder);
        command.arg(folder.path()).arg(results).arg(self.seconds.to_string());
        let mut child =
            command.arg(&self.with).args(tests).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let output = child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines());
        for line in output.map_while(Result::ok) {
            println!("{line}");
            note(&line);
        }
        let status = child.wait().map_err(failed)?;
        if status.success() { Ok(()) } else { Err(format!("xfstests.sh failed ({status})")) }
    }
}

impl Tally {
    /// Counts a line of the script: a test, its verdict, and the reason if it was left out.
    fn note(&mut self, line: &str) {
        let mut parts = line.splitn(3, ' ');
        let (Some(test), Some(verdict)) = (parts.next(), parts.next()) else { return };
        let excuse = excuses().get(test).copied();
        match (verdict, excuse) {
            ("passed", None) => self.passed += 1,
            ("passed", Some(why)) => {
                self.passed += 1;
                self.needless.push(format!("{test} ({why})"));
            }
            ("left-out", _) => {
                *self.left_out.entry(parts.next().unwrap_or_default().to_owned()).or_default() += 1;
            }
            (_, Some(_)) => self.excused += 1,
            (_, None) => self.faults.push(line.to_owned()),
        }
    }
}

/// The tests that may fail, each with the reason.
fn excuses() -> HashMap<&'static str, &'static str> {
    EXCUSED.lines().filter_map(|line| line.split_once('\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_fault_unless_it_is_listed_with_its_reason() {
        let mut tally = Tally::default();
        for line in ["generic/001 passed", "generic/020 failed", "generic/002 failed"] {
            tally.note(line);
        }
        tally.note("generic/003 left-out Reflink not supported");
        tally.note("generic/020 passed");
        assert_eq!((tally.passed, tally.excused), (2, 1));
        assert_eq!(tally.faults, ["generic/002 failed"]);
        assert_eq!(tally.left_out["Reflink not supported"], 1);
        assert_eq!(tally.needless.len(), 1);
    }

    #[test]
    fn every_excuse_has_a_test_and_a_reason() {
        for line in EXCUSED.lines() {
            let (test, why) = line.split_once('\t').expect(line);
            assert!(test.starts_with("generic/") && why.len() > 20, "{line}");
        }
    }
}
