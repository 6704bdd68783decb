//! The specs of processes, whose results as forks of a template must equal those without a template.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::suite::{Suite, output};

/// The specs of processes and of their environment.
const SPECS: [&str; 19] = [
    "core/process",
    "core/signal",
    "core/env",
    "core/io",
    "core/argf",
    "core/kernel/abort_spec.rb",
    "core/kernel/at_exit_spec.rb",
    "core/kernel/backtick_spec.rb",
    "core/kernel/caller_spec.rb",
    "core/kernel/exec_spec.rb",
    "core/kernel/exit_spec.rb",
    "core/kernel/fork_spec.rb",
    "core/kernel/rand_spec.rb",
    "core/kernel/spawn_spec.rb",
    "core/kernel/system_spec.rb",
    "core/kernel/trap_spec.rb",
    "language/file_spec.rb",
    "language/predefined_spec.rb",
    "command_line",
];
/// The number of forks to compare.
const FORKS: usize = 3;
/// The maximum number of checks for a template, one per second.
const LOOKS_MAX: usize = 60;

/// Runs the specs plain, with a pack, and as forks.
pub(super) fn compare(suite: &Suite) -> Result<(), String> {
    let plain = Findings::of(suite, "plain", &[])?;
    let packed = Findings::of(suite, "pack", &["run"])?;
    plain.check_equal(&packed)?;
    let mut forks = 0;
    for _ in 0..LOOKS_MAX {
        let found = Findings::of(suite, "preload", &["run", "--preload", "--explain"])?;
        plain.check_equal(&found)?;
        forks += usize::from(found.was_forked);
        if forks == FORKS {
            stop(suite)?;
            return Ok(());
        }
        sleep(Duration::from_secs(1));
    }
    Err("they never ran as forks: see `thruway run --preload --explain`".to_owned())
}

/// The results of the runner. On some machines a few specs fail, even plain.
struct Findings {
    how: &'static str,
    /// The number of examples.
    examples: String,
    /// The titles of failed examples.
    failed: Vec<String>,
    was_forked: bool,
}

impl Findings {
    fn of(suite: &Suite, how: &'static str, verb: &[&str]) -> Result<Self, String> {
        let temporary = suite.folder.join("temp");
        let _ = fs::remove_dir_all(&temporary);
        let output = output(command(suite, verb)?.env("SPEC_TEMP_DIR", temporary))?;
        let found = Self::in_output(how, &output)?;
        let form = if found.was_forked { "fork" } else { how };
        println!("{form:13} {} examples, {} of them fail", found.examples, found.failed.len());
        Ok(found)
    }

    fn in_output(how: &'static str, output: &Output) -> Result<Self, String> {
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let summary = text.lines().rev().find(|line| line.contains(" examples, "));
        let summary = summary.ok_or_else(|| format!("{how}: no summary\n{text}\n{errors}"))?;
        let examples = summary.split(", ").find_map(|part| part.strip_suffix(" examples"));
        // A failure is a number followed by a bracket, with its title on the next line.
        let is_number = |line: &str| {
            line.strip_suffix(')').is_some_and(|number| number.parse::<usize>().is_ok())
        };
        let lines: Vec<_> = text.lines().collect();
        let titles = lines.windows(2).filter(|pair| is_number(pair[0])).map(|pair| pair[1]);
        Ok(Self {
            how,
            examples: examples.unwrap_or_default().to_owned(),
            failed: titles.map(str::to_owned).collect(),
            was_forked: errors.contains("thruway: preload: forked from template"),
        })
    }

    fn check_equal(&self, other: &Self) -> Result<(), String> {
        if self.examples == other.examples && self.failed == other.failed {
            return Ok(());
        }
        let shown = |one: &Self| format!("{}: {} {:#?}", one.how, one.examples, one.failed);
        Err(format!("they differ\n{}\n{}", shown(self), shown(other)))
    }
}

/// The runner's command, plain or under a verb. The runner's library is in the load path from the start: a template
/// loads what it finds there.
fn command(suite: &Suite, verb: &[&str]) -> Result<Command, String> {
    let mut command = match verb {
        [] => Command::new(&suite.ruby),
        verb => {
            let mut command = thruway(suite)?;
            command.args(verb).arg("--").arg(&suite.ruby);
            command
        }
    };
    command.arg("-I").arg(&suite.library).arg(&suite.runner).args(SPECS);
    command.env("RUBY_EXE", &suite.ruby).env("LC_ALL", "C.UTF-8");
    command.current_dir(&suite.spec).stdin(Stdio::null());
    Ok(command)
}

/// A command of thruway with folders of its own for templates and packs.
fn thruway(suite: &Suite) -> Result<Command, String> {
    let templates = suite.folder.join("templates");
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&templates);
    made.map_err(|error| format!("{}: {error}", templates.display()))?;
    let mut command = Command::new(&suite.program);
    command.env("XDG_RUNTIME_DIR", templates);
    command.env("THRUWAY_PACK", suite.folder.join("processes.pack"));
    command.env_remove("CI").env_remove("THRUWAY_PRELOAD");
    Ok(command)
}

/// Stops all templates.
fn stop(suite: &Suite) -> Result<(), String> {
    let mut command = thruway(suite)?;
    output(command.args(["preload", "stop", "--all"]).current_dir(&suite.spec)).map(drop)
}
