//! The description of a command to start.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use thruway_resolve::expand::windows::Form;
use thruway_resolve::native;
use thruway_resolve::search::{Places, Plan, Rules};

use crate::environment::Environment;
use crate::stdio::{Direction, Ends};
use crate::{Error, Stdio};

/// A command to start. Built step by step, and started any number of times.
#[derive(Debug)]
pub struct Command {
    pub(crate) name: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Environment,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) group: Option<i32>,
    pub(crate) stdio: [Stdio; 3],
    rules: Rules,
    path: Option<OsString>,
}

/// A command with open streams, ready to start.
pub(crate) struct PreparedCommand<'a> {
    pub(crate) command: &'a Command,
    pub(crate) name: Vec<u8>,
    pub(crate) stdio: [Ends; 3],
}

impl Command {
    /// Creates the command `name` without arguments, in the current working directory and environment. The
    /// search follows the rules of the host: `execvp`, or `cmd.exe` without a search of the working directory.
    #[must_use]
    pub fn new(name: impl AsRef<OsStr>) -> Self {
        Self {
            name: name.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Environment::default(),
            folder: None,
            group: None,
            stdio: Default::default(),
            rules: Rules::of_host(),
            path: None,
        }
    }

    /// Adds an argument. The program receives every byte unchanged.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable of the program.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.change(key.as_ref(), Some(value.as_ref()));
        self
    }

    /// Removes an environment variable of the program.
    #[must_use]
    pub fn env_remove(mut self, key: impl AsRef<OsStr>) -> Self {
        self.environment.change(key.as_ref(), None);
        self
    }

    /// Clears the environment of the program. Later calls of [`env`](Self::env) add variables.
    #[must_use]
    pub fn env_clear(mut self) -> Self {
        self.environment.clear();
        self
    }

    /// Sets the program's working directory. On POSIX, relative candidates start there too. By the rules of
    /// Zig, names and relative candidates start there, but `PATH` entries do not.
    #[must_use]
    pub fn current_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().to_owned());
        self
    }

    /// Sets the standard input. Default: inherited.
    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdio[0] = stdin.into();
        self
    }

    /// Sets the standard output. Default: inherited.
    #[must_use]
    pub fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdio[1] = stdout.into();
        self
    }

    /// Sets the standard error. Default: inherited.
    #[must_use]
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stdio[2] = stderr.into();
        self
    }

    /// Sets the process group to join. 0 creates a new group, the only possibility on Windows, where the
    /// program then gets no Ctrl-C.
    #[must_use]
    pub fn process_group(mut self, group: i32) -> Self {
        self.group = Some(group);
        self
    }

    /// Sets the rules of the search for the program.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets the folders to search, in the form of `PATH`, in place of any environment's.
    #[must_use]
    pub fn search_path(mut self, path: impl AsRef<OsStr>) -> Self {
        self.path = Some(path.as_ref().to_owned());
        self
    }

    /// Returns the candidates in order, without touching the disk.
    ///
    /// # Errors
    /// The name or the folders contain a NUL byte.
    pub fn plan(&self) -> Result<Plan, Error> {
        let mut name = native::bytes(&self.name);
        let mut before = self.folders_before_path();
        let mut rules = self.rules.clone();
        if let Some(folder) = self.folder.as_ref().filter(|_| rules.searches_child_folder()) {
            let folder = native::bytes(folder.as_os_str());
            if Form::of(&name) == Form::Relative && name.iter().any(|byte| b"/\\".contains(byte)) {
                name = [&*folder, b"\\", &name].concat().into();
            }
            before.insert(0, folder.into_owned());
            rules = rules.current_first(false);
        }
        let before: Vec<_> = before.iter().map(Vec::as_slice).collect();
        let path = self.path();
        let places = Places { path: &native::bytes(&path), before: &before };
        Plan::new(&rules, &name, &places).map_err(|error| Error::search(&name, error))
    }

    /// Returns the folders to search: the caller's own list, or else the `PATH` of the parent or of the child, as the
    /// rules demand.
    fn path(&self) -> OsString {
        if let Some(path) = &self.path {
            return path.clone();
        }
        let own = || std::env::var_os("PATH");
        let path = match self.child_path() {
            Some(path) if self.rules.searches_child_path() => path.map(OsStr::to_owned),
            _ => own(),
        };
        path.unwrap_or_else(|| native::os_string(self.rules.default_path().to_vec()))
    }

    /// Returns the folders before `PATH` in the order of the rules.
    fn folders_before_path(&self) -> Vec<Vec<u8>> {
        if self.path.is_some() || !self.rules.searches_own_folders() {
            return Vec::new();
        }
        let child_path = self.child_path().flatten().unwrap_or_default();
        let child_path = native::bytes(child_path);
        let folders = self.rules.split_path(&child_path).into_iter().map(Cow::into_owned);
        folders.chain(own_folders()).collect()
    }

    /// Returns the child's own `PATH`: `None` if unchanged, `Some(None)` if removed.
    fn child_path(&self) -> Option<Option<&OsStr>> {
        self.environment.changed("PATH")
    }

    pub(crate) fn prepare(&self) -> Result<PreparedCommand<'_>, Error> {
        let [stdin, stdout, stderr] = &self.stdio;
        let ends = |stdio: &Stdio, direction| {
            stdio.ends(direction).map_err(|error| self.failed("open a stream", error))
        };
        let stdio = [
            ends(stdin, Direction::Reads)?,
            ends(stdout, Direction::Writes)?,
            ends(stderr, Direction::Writes)?,
        ];
        Ok(PreparedCommand { command: self, name: native::bytes(&self.name).into_owned(), stdio })
    }

    pub(crate) fn failed(&self, doing: &'static str, error: std::io::Error) -> Error {
        Error::step(&native::bytes(&self.name), doing, error)
    }
}

/// Returns the folder of the running program and, on Windows, the folders of the system.
fn own_folders() -> impl Iterator<Item = Vec<u8>> {
    let program = std::env::current_exe().ok();
    let own = program.as_ref().and_then(|program| program.parent());
    let own = own.map(|folder| native::bytes(folder.as_os_str()).into_owned());
    #[cfg(windows)]
    return own.into_iter().chain(thruway_resolve::search::nt::system_folders());
    #[cfg(not(windows))]
    return own.into_iter();
}
/// Returns every environment variable of the command's program.
#[must_use]
pub fn variables_of(command: &Command) -> Vec<(OsString, OsString)> {
    command.environment.variables()
}
