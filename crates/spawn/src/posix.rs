//! Starts programs on POSIX systems other than Linux, with the standard library, one candidate at a time.
//!
//! Each candidate costs a process. Of the failures before the program runs (streams, group, folder), only a missing
//! folder is told from a failure of the candidate.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command as System, ExitStatus, Stdio};

use thruway_resolve::search::Plan;

use crate::command::PreparedCommand;
use crate::stdio::Ends;
use crate::{Command, Error, TriedCandidate};

/// A started process.
pub(crate) type StartedProcess = std::process::Child;

impl Command {
    /// Replaces the running program by the command, in the same process. Returns only on failure.
    ///
    /// Destructors are not run, and buffered output is lost.
    pub fn replace(&self) -> Error {
        let replace = || {
            let (plan, prepared) = (self.plan()?, self.prepare()?);
            prepared.try_each(&plan, |path| {
                let error = prepared.system(path)?.exec();
                Ok(Err::<Infallible, _>(match is_unknown_format(&error) {
                    true => prepared.script(path)?.exec(),
                    false => error,
                }))
            })
        };
        match replace() {
            Err(error) => error,
            Ok(replaced) => match replaced {},
        }
    }
}

impl PreparedCommand<'_> {
    /// Starts the first startable candidate.
    pub(crate) fn start_any(&self, plan: &Plan) -> Result<StartedProcess, Error> {
        self.try_each(plan, |path| self.start(path))
    }

    /// Tries the candidates in order, as `execvp` does, until a candidate starts or fails with a final error by the
    /// rules.
    fn try_each<T>(
        &self,
        plan: &Plan,
        mut start: impl FnMut(&[u8]) -> Result<io::Result<T>, Error>,
    ) -> Result<T, Error> {
        let mut tried = Vec::new();
        for path in plan.candidates().map(|parts| parts.concat()) {
            let error = match start(&path)? {
                Ok(started) => return Ok(started),
                Err(error) => error,
            };
            let goes_on = plan.rules().passes_over(&path, error.raw_os_error().unwrap_or(0));
            tried.push(TriedCandidate { path, error });
            if !goes_on {
                break;
            }
        }
        Err(Error::candidates(&self.name, tried, plan.bases().len()))
    }

    /// Starts a single candidate. The inner error concerns the candidate alone; the outer error would be the same for
    /// every candidate.
    pub(crate) fn start(&self, path: &[u8]) -> Result<io::Result<StartedProcess>, Error> {
        let started = match self.system(path)?.spawn() {
            Err(error) if is_unknown_format(&error) => self.script(path)?.spawn(),
            started => started,
        };
        match (&started, &self.command.folder) {
            (Err(_), Some(folder)) => match std::fs::metadata(folder) {
                Ok(found) if found.is_dir() => Ok(started),
                Ok(_) => Err(self.no_folder(io::ErrorKind::NotADirectory.into())),
                Err(error) => Err(self.no_folder(error)),
            },
            _ => Ok(started),
        }
    }

    fn no_folder(&self, error: io::Error) -> Error {
        Error::step(&self.name, "enter the current folder", error)
    }

    /// Refuses texts with a NUL, at which the system would cut the text off.
    fn check_texts(&self) -> Result<(), Error> {
        let has_nul = |text: &OsStr| text.as_bytes().contains(&0);
        let refused = |what: &str| Err(Error::input(&self.name, format!("a NUL byte in {what}")));
        let command = self.command;
        let variables = command.environment.variables();
        if command.arguments.iter().any(|argument| has_nul(argument)) {
            return refused("an argument");
        }
        if variables.iter().any(|(key, value)| has_nul(key) || has_nul(value)) {
            return refused("its environment");
        }
        match &command.folder {
            Some(folder) if has_nul(folder.as_os_str()) => refused("its folder"),
            _ => Ok(()),
        }
    }

    /// Returns the program at `path` as a command of the standard library.
    fn system(&self, path: &[u8]) -> Result<System, Error> {
        // The standard library would search for a path without a separator.
        let path = if path.contains(&b'/') { path.to_vec() } else { [b"./", path].concat() };
        let mut system = System::new(OsStr::from_bytes(&path));
        system.arg0(&self.command.name).args(&self.command.arguments);
        self.settle(system)
    }

    /// Returns the shell command for a file of unknown format, as `execvp` runs such a file.
    fn script(&self, path: &[u8]) -> Result<System, Error> {
        let mut system = System::new("/bin/sh");
        system.arg(OsStr::from_bytes(path)).args(&self.command.arguments);
        self.settle(system)
    }

    /// Sets environment, folder, group and streams.
    fn settle(&self, mut system: System) -> Result<System, Error> {
        self.check_texts()?;
        let command = self.command;
        system.env_clear().envs(command.environment.variables());
        if let Some(folder) = &command.folder {
            system.current_dir(folder);
        }
        if let Some(group) = command.group {
            system.process_group(group);
        }
        let failed = |error| Error::step(&self.name, "open a stream", error);
        let [stdin, stdout, stderr] = &self.stdio;
        let theirs = |ends: &Ends| -> io::Result<Stdio> {
            let file = ends.theirs.as_ref().map(std::fs::File::try_clone).transpose()?;
            Ok(file.map_or_else(Stdio::inherit, Stdio::from))
        };
        system.stdin(theirs(stdin).map_err(failed)?);
        system.stdout(theirs(stdout).map_err(failed)?);
        system.stderr(theirs(stderr).map_err(failed)?);
        Ok(system)
    }
}

/// Whether the error is `ENOEXEC`: the system does not know the format of the file. The number is the same on all
/// systems.
fn is_unknown_format(error: &io::Error) -> bool {
    error.raw_os_error() == Some(8)
}

/// A child process.
#[derive(Debug)]
pub(crate) struct Process {
    started: StartedProcess,
}

impl Process {
    pub(crate) fn new(started: StartedProcess) -> Self {
        Self { started }
    }

    pub(crate) fn id(&self) -> u32 {
        self.started.id()
    }

    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.started.wait()
    }

    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.started.try_wait()
    }

    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.started.kill()
    }
}
