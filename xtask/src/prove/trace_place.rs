//! The commands of the proofs of `thruway trace`, and the place where they run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The commands, one shell line each. `$SCRATCH` is a folder that a command may change.
pub(super) const COMMANDS: &str = include_str!("trace_commands.txt");

/// The programs and folders of a proof.
pub(super) struct TracePlace<'a> {
    root: &'a Path,
    /// The folder with `thruway`.
    pub(super) programs: PathBuf,
    pub(super) folder: tempfile::TempDir,
    /// The variables of all commands, besides those of the proof itself.
    variables: Vec<(&'static str, String)>,
}

impl<'a> TracePlace<'a> {
    pub(super) fn new(root: &'a Path) -> Result<Self, String> {
        crate::gem::build(root, "ruby".as_ref(), "dev")?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        Ok(Self { root, programs: crate::gem::folder(root, "dev"), folder, variables: Vec::new() })
    }

    /// Sets variables for all commands.
    pub(super) fn set(&mut self, variables: Vec<(&'static str, String)>) {
        self.variables = variables;
    }

    pub(super) fn thruway(&self) -> Command {
        Command::new(self.programs.join("thruway"))
    }

    /// The folder that commands may change. It is empty at the start of each.
    pub(super) fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }

    /// Whether the first word of a command is an installed program or a word of the shell.
    pub(super) fn is_installed(&self, command: &str) -> bool {
        let word = command.split(' ').next().unwrap_or_default();
        let mut sh = Command::new("sh");
        sh.args(["-c", "command -v \"$0\" || test \"$0\" = for", word]).stdout(Stdio::null());
        sh.current_dir(self.root).status().is_ok_and(|status| status.success())
    }

    /// Runs a command in a shell, in the same environment each time. `shell` is the start of the command line, which
    /// the option `-c` and the command end.
    pub(super) fn run(&self, shell: &mut Command, command: &str) -> Result<Output, String> {
        let scratch = self.scratch();
        // Most commands leave nothing in the folder.
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir_all(&scratch)
            .map_err(|error| format!("{}: {error}", scratch.display()))?;
        shell.args(["-c", command]).current_dir(self.root).env("SCRATCH", scratch);
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        shell
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run {shell:?}: {error}"))
    }
}
