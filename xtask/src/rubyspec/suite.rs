//! The public specs: their places, their runs, and the verdict on their output.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The specs that define the loading of features.
const SPECS: [&str; 5] = [
    "core/kernel/require_spec.rb",
    "core/kernel/require_relative_spec.rb",
    "core/kernel/load_spec.rb",
    "core/kernel/autoload_spec.rb",
    "core/module/autoload_spec.rb",
];

/// The folders of files that the specs load.
const FIXTURES: [&str; 3] = ["fixtures/code", "core/kernel/fixtures", "core/module/fixtures"];

/// The paths of the programs and of the specs.
pub(super) struct Suite {
    pub(super) program: PathBuf,
    pub(super) learn: PathBuf,
    pub(super) library: PathBuf,
    pub(super) runner: PathBuf,
    pub(super) spec: PathBuf,
    pub(super) ruby: PathBuf,
    /// The folder of the pack, and of files that the specs write.
    pub(super) folder: PathBuf,
}

impl Suite {
    /// Runs all specs, with a pack or with plain Ruby.
    pub(super) fn specs(&self, pack: Option<&[&str]>) -> Result<Output, String> {
        let mut command = self.ruby(pack);
        command.arg(&self.runner).args(SPECS);
        // The specs start Rubies, too.
        command.env("RUBY_EXE", &self.ruby).env("SPEC_TEMP_DIR", self.folder.join("temp"));
        output(command.current_dir(&self.spec))
    }

    /// A command of Ruby, under `thruway run` with the options if a pack is wanted.
    fn ruby(&self, pack: Option<&[&str]>) -> Command {
        let Some(options) = pack else { return Command::new(&self.ruby) };
        let mut command = Command::new(&self.program);
        command.args(["run", "--explain", "--pack"]).arg(self.folder.join("fixtures.pack"));
        command.args(options).arg("--").arg(&self.ruby);
        command
    }

    /// Puts every fixture into the pack. Returns the paths of the fixtures in the pack: all except those with a syntax
    /// error.
    pub(super) fn learn(&self) -> Result<BTreeSet<String>, String> {
        let learn = |warnings| {
            let mut ruby = self.ruby(Some(&["--digest"]));
            let ruby = ruby.arg(warnings).arg(&self.learn);
            output(ruby.args(FIXTURES.map(|folder| self.spec.join(folder))))
        };
        // Code that was compiled without warnings is used only if no warnings are wanted; the specs want those of
        // deprecated features.
        learn("-w")?;
        learn("-W:deprecated")?;
        let again = learn("-W:deprecated")?;
        let left: BTreeSet<_> = compiled_paths(&again).map(str::to_owned).collect();
        let fixtures = String::from_utf8_lossy(&again.stdout);
        let fixtures: BTreeSet<_> = fixtures.lines().map(str::to_owned).collect();
        let missing: Vec<_> = fixtures.intersection(&left).map(String::as_str).collect();
        if fixtures.is_empty() || !missing.is_empty() {
            return Err(format!("not every fixture was learned: {}", missing.join(" ")));
        }
        Ok(fixtures)
    }

    /// Shows the runner's own summary, which must have no failures.
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

    /// Checks that no fixture was compiled by Ruby, which would prove nothing.
    pub(super) fn all_came_from_the_pack(
        &self,
        fixtures: &BTreeSet<String>,
        output: &Output,
    ) -> Result<(), String> {
        let compiled: Vec<_> =
            compiled_paths(output).filter(|path| fixtures.contains(*path)).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        let counts = errors.lines().rfind(|line| line.contains("features from the pack"));
        println!("{:13} {}", "", counts.unwrap_or_default());
        if compiled.is_empty() && counts.is_some() {
            return Ok(());
        }
        Err(format!("these fixtures did not come from the pack: {}", compiled.join(" ")))
    }
}

/// The paths that Ruby compiled itself, according to `--explain`.
fn compiled_paths(output: &Output) -> impl Iterator<Item = &str> {
    let report = std::str::from_utf8(&output.stderr).unwrap_or_default();
    let lines = report.lines().filter_map(|line| line.strip_prefix("thruway: "));
    lines.filter_map(|line| line.split_once(": ").map(|(_, path)| path))
}

pub(super) fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("cannot start {command:?}: {error}"))
}
