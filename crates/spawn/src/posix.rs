//! Starting programs on a POSIX system other than Linux: by the standard library, a candidate at a time.
//!
//! A candidate costs a process there. What fails before the program runs (streams, group, folder) is told
//! apart from the candidate's own failure only where the folder is missing.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command as System, ExitStatus, Stdio};

use thruway_resolve::search::Plan;

use crate::command::Prepared;
use crate::stdio::Ends;
use crate::{Command, Error, Tried};

/// A program that was started.
pub(crate) type Started = std::process::Child;

impl Command {
    /// Runs it in place of this program: the same process, and nothing of this program remains. It
    /// returns only if that fails.
    ///
    /// Destructors are not run, and what is still buffered is lost.
    pub fn replace(&self) -> Error {
        let replace = || {
            let (plan, prepared) = (self.plan()?, self.prepare()?);
            prepared.try_each(&plan, |path| {
                let error = prepared.system(path)?.exec();
                Ok(Err::<Infallible, _>(match is_no_program(&error) {
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

impl Prepared<'_> {
    /// Starts the first candidate that can be started.
    pub(crate) fn start_any(&self, plan: &Plan) -> Result<Started, Error> {
        self.try_each(plan, |path| self.start(path))
    }

    /// Tries the candidates in their order, as `execvp` does, until one brings something.
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
            tried.push(Tried { path, error });
            if !goes_on {
                break;
            }
        }
        Err(Error::candidates(&self.name, tried, plan.bases().len()))
    }

    /// Starts one candidate; what kept it from starting, apart from what has nothing to do with it.
    pub(crate) fn start(&self, path: &[u8]) -> Result<io::Result<Started>, Error> {
        let started = match self.system(path)?.spawn() {
            Err(error) if is_no_program(&error) => self.script(path)?.spawn(),
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

    /// A NUL ends a text for the system.
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

    /// The program at `path`.
    fn system(&self, path: &[u8]) -> Result<System, Error> {
        // A path without a separator would be searched for.
        let path = if path.contains(&b'/') { path.to_vec() } else { [b"./", path].concat() };
        let mut system = System::new(OsStr::from_bytes(&path));
        system.arg0(&self.command.name).args(&self.command.arguments);
        self.settle(system)
    }

    /// The shell that `execvp` gives a file to that is no program.
    fn script(&self, path: &[u8]) -> Result<System, Error> {
        let mut system = System::new("/bin/sh");
        system.arg(OsStr::from_bytes(path)).args(&self.command.arguments);
        self.settle(system)
    }

    /// Environment, folder, group and streams, as the standard library wants them.
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

/// Whether the system knows no format of this file: `ENOEXEC`, of the same number everywhere.
fn is_no_program(error: &io::Error) -> bool {
    error.raw_os_error() == Some(8)
}

/// A process that this one waits for.
#[derive(Debug)]
pub(crate) struct Process {
    started: Started,
}

impl Process {
    pub(crate) fn new(started: Started) -> Self {
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
