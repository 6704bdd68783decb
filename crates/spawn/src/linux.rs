//! Starting programs on Linux: one new process tries every candidate.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal, waitid};
use thruway_resolve::search::{EXEC_PASSED_OVER, Plan};
use thruway_sys::start::{Failure, Start, Started, Step};

use crate::command::Prepared;
use crate::{Child, Command, Error, Tried};

impl Command {
    /// Runs it in place of this program: the same process, and nothing of this program remains. It
    /// returns only if that fails; streams, group and folder are the program's then.
    ///
    /// Destructors are not run, and what is still buffered is lost.
    pub fn replace(&self) -> Error {
        let replace = || {
            let plan = self.plan()?;
            let prepared = self.prepare()?;
            let candidates: Vec<_> = plan.candidates().collect();
            let strings = Strings::new(&prepared, &candidates)?;
            let failure = strings.start(&prepared).replace();
            Ok(prepared.explain(failure, candidates))
        };
        replace().unwrap_or_else(|error| error)
    }
}

impl Prepared<'_> {
    /// Starts the first candidate that can be started.
    pub(crate) fn start_any(&self, plan: &Plan) -> Result<Started, Error> {
        let candidates: Vec<_> = plan.candidates().collect();
        if candidates.is_empty() {
            return Err(Error::candidates(&self.name, Vec::new()));
        }
        let strings = Strings::new(self, &candidates)?;
        strings.start(self).spawn().map_err(|failure| self.explain(failure, candidates))
    }

    /// Starts one candidate; what kept it from starting, apart from what has nothing to do with it.
    pub(crate) fn start(&self, path: &[u8]) -> Result<io::Result<Started>, Error> {
        let candidates = vec![path.to_vec()];
        let strings = Strings::new(self, &candidates)?;
        match strings.start(self).spawn() {
            Ok(started) => Ok(Ok(started)),
            Err(Failure::Candidates(errors)) => {
                let errno = errors.first().copied().unwrap_or(0);
                Ok(Err(io::Error::from_raw_os_error(errno)))
            }
            Err(failure) => Err(self.explain(failure, candidates)),
        }
    }

    pub(crate) fn into_child(self, started: Started) -> Child {
        Child::new(Process { started }, self.stdio.map(|ends| ends.ours))
    }

    fn explain(&self, failure: Failure, candidates: Vec<Vec<u8>>) -> Error {
        match failure {
            Failure::Step(step, error) => Error::step(&self.name, doing(step), error),
            Failure::Candidates(errors) => {
                let errors = errors.into_iter().map(io::Error::from_raw_os_error);
                let tried = candidates.into_iter().zip(errors);
                let tried = tried.map(|(path, error)| Tried { path, error }).collect();
                Error::candidates(&self.name, tried)
            }
        }
    }
}

fn doing(step: Step) -> &'static str {
    match step {
        Step::Process => "make a process",
        Step::Group => "set the process group",
        Step::Stdio => "set the standard streams",
        Step::Folder => "enter the current folder",
    }
}

/// What the kernel wants to see, each text with a NUL at its end.
struct Strings {
    candidates: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    folder: Option<CString>,
}

impl Strings {
    fn new(prepared: &Prepared<'_>, candidates: &[Vec<u8>]) -> Result<Self, Error> {
        let Prepared { command, name, .. } = prepared;
        let string = |what: &str, bytes: Vec<u8>| {
            CString::new(bytes).map_err(|_| Error::input(name, format!("a NUL byte in {what}")))
        };
        let arguments = std::iter::once(&command.name).chain(&command.arguments);
        let variables = command.environment.variables();
        Ok(Self {
            candidates: candidates
                .iter()
                .map(|path| string("its path", path.clone()))
                .collect::<Result<_, _>>()?,
            arguments: arguments
                .map(|argument| string("an argument", argument.as_bytes().to_vec()))
                .collect::<Result<_, _>>()?,
            environment: variables
                .iter()
                .map(|(key, value)| [key.as_bytes(), b"=", value.as_bytes()].concat())
                .map(|variable| string("its environment", variable))
                .collect::<Result<_, _>>()?,
            folder: command
                .folder
                .as_ref()
                .map(|folder| string("its folder", folder.as_os_str().as_bytes().to_vec()))
                .transpose()?,
        })
    }

    fn start<'a>(&'a self, prepared: &'a Prepared<'_>) -> Start<'a> {
        Start {
            candidates: &self.candidates,
            arguments: &self.arguments,
            environment: &self.environment,
            folder: self.folder.as_deref(),
            stdio: prepared.stdio.each_ref().map(|ends| ends.theirs.as_ref().map(AsFd::as_fd)),
            group: prepared.command.group,
            passed_over: &EXEC_PASSED_OVER,
        }
    }
}

/// A process, held by its descriptor: nobody else gets its number meanwhile.
#[derive(Debug)]
pub(crate) struct Process {
    started: Started,
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        self.started.pid.unsigned_abs()
    }

    pub(crate) fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.status(WaitIdOptions::EXITED)? {
                return Ok(status);
            }
        }
    }

    pub(crate) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.status(WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
    }

    pub(crate) fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(self.descriptor(), Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn status(&self, options: WaitIdOptions) -> io::Result<Option<ExitStatus>> {
        let wait = || waitid(WaitId::PidFd(self.descriptor().as_fd()), options);
        let ended = rustix::io::retry_on_intr(wait)?;
        Ok(ended.as_ref().map(raw_status).map(ExitStatus::from_raw))
    }

    fn descriptor(&self) -> &OwnedFd {
        &self.started.descriptor
    }
}

/// The status as `wait` encodes it.
fn raw_status(ended: &WaitIdStatus) -> i32 {
    const DUMPED_CORE: i32 = 0x80;
    match (ended.exit_status(), ended.terminating_signal()) {
        (Some(status), _) => status << 8,
        (None, Some(signal)) if ended.dumped() => signal | DUMPED_CORE,
        (None, signal) => signal.unwrap_or(0),
    }
}
