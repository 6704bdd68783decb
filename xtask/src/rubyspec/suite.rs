//! The public specs, where they are and what they need, and how they are judged.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The specs that say what loading a feature is.
const SPECS: [&str; 5] = [
    "core/kernel/require_spec.rb",
    "core/kernel/require_relative_spec.rb",
    "core/kernel/load_spec.rb",
    "core/kernel/autoload_spec.rb",
    "core/module/autoload_spec.rb",
];

/// The folders of files that the specs load.
const FIXTURES: [&str; 3] = ["fixtures/code", "core/kernel/fixtures", "core/module/fixtures"];

/// Where everything is.
pub(super) struct Suite {
    pub(super) program: PathBuf,
    pub(super) learn: PathBuf,
    pub(super) library: PathBuf,
    pub(super) runner: PathBuf,
    pub(super) spec: PathBuf,
    pub(super) ruby: PathBuf,
    /// Holds the pack, and what the specs write.
    pub(super) folder: PathBuf,
}

impl Suite {
    /// All specs, with a pack or as Ruby is.
    pub(super) fn specs(&self, pack: Option<&[&str]>) -> Result<Output, String> {
        let mut command = self.ruby(pack);
        command.arg(&self.runner).args(SPECS);
        // The specs start Rubies too.
        command.env("RUBY_EXE", &self.ruby).env("SPEC_TEMP_DIR", self.folder.join("temp"));
        output(command.current_dir(&self.spec))
    }

    /// Ruby, below `thruway run` with those options if there is to be a pack.
    fn ruby(&self, pack: Option<&[&str]>) -> Command {
        let Some(options) = pack else { return Command::new(&self.ruby) };
        let mut command = Command::new(&self.program);
        command.args(["run", "--explain", "--pack"]).arg(self.folder.join("fixtures.pack"));
        command.args(options).arg("--").arg(&self.ruby);
        command
    }

    /// Puts every fixture into the pack. Answers with the paths of those that are in it: all but the
    /// ones with a syntax error.
    pub(super) fn learn(&self) -> Result<BTreeSet<String>, String> {
        let learn = |warnings| {
            let mut ruby = self.ruby(Some(&["--digest"]));
            let ruby = ruby.arg(warnings).arg(&self.learn);
            output(ruby.args(FIXTURES.map(|folder| self.spec.join(folder))))
        };
        // Code that was compiled without warnings is used only where none are wanted; the
        // specs want those of deprecated features.
        learn("-w")?;
        learn("-W:deprecated")?;
        let again = learn("-W:deprecated")?;
        let left: BTreeSet<_> = left(&again).map(str::to_owned).collect();
        let fixtures = String::from_utf8_lossy(&again.stdout);
        let fixtures: BTreeSet<_> = fixtures.lines().map(str::to_owned).collect();
        let missing: Vec<_> = fixtures.intersection(&left).map(String::as_str).collect();
        if fixtures.is_empty() || !missing.is_empty() {
            return Err(format!("not every fixture was learned: {}", missing.join(" ")));
        }
        Ok(fixtures)
    }

    /// Shows the runner's own summary, which has to be one without failures.
    pub(super) fn judge(&self, how: &str, output: &Output) -> Result<(), String> {
        let text = String::from_utf8_lossy(&output.stdout);
        let summary = text.lines().find(|line| line.contains(" examples, ")).unwrap_or_default();
        println!("{how:13} {summary}");
        if output.status.success() && summary.contains(" 0 failures, 0 errors") {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("{how}: {}\n{text}\n{errors}", output.status))
    }

    /// A fixture that Ruby compiled proves nothing.
    pub(super) fn all_came_from_the_pack(
        &self,
        fixtures: &BTreeSet<String>,
        output: &Output,
    ) -> Result<(), String> {
        let compiled: Vec<_> = left(output).filter(|path| fixtures.contains(*path)).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        let counts = errors.lines().rfind(|line| line.contains("features from the pack"));
        println!("{:13} {}", "", counts.unwrap_or_default());
        if compiled.is_empty() && counts.is_some() {
            return Ok(());
        }
        Err(format!("these fixtures did not come from the pack: {}", compiled.join(" ")))
    }
}

/// The paths that `--explain` says were left to Ruby.
fn left(output: &Output) -> impl Iterator<Item = &str> {
    let report = std::str::from_utf8(&output.stderr).unwrap_or_default();
    let lines = report.lines().filter_map(|line| line.strip_prefix("thruway: "));
    lines.filter_map(|line| line.split_once(": ").map(|(_, path)| path))
}

pub(super) fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("cannot start {command:?}: {error}"))
}
