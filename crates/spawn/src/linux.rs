//! Starts programs on Linux. A single new process tries every candidate.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal, waitid};
use thruway_resolve::search::{EXEC_PASSED_OVER, Plan};
pub(crate) use thruway_sys::start::StartedProcess;
use thruway_sys::start::{Candidates, Failure, Start, Step, Texts};

use crate::command::PreparedCommand;
use crate::{Command, Error, TriedCandidate};

impl Command {
    /// Replaces the running program by the command, in the same process. Returns only on failure; streams, process
    /// group and working directory may have changed to the command's by then.
    ///
    /// Destructors are not run, and buffered output is lost.
    pub fn replace(&self) -> Error {
        let replace = || {
            let plan = self.plan()?;
            let prepared = self.prepare()?;
            let strings = Strings::new(&prepared)?;
            let mut parts = plan.candidates();
            let failure = strings.start(&prepared).replace(candidates(&plan, &mut parts));
            Ok(prepared.explain(failure, &plan))
        };
        replace().unwrap_or_else(|error| error)
    }
}

impl PreparedCommand<'_> {
    /// Starts the first startable candidate.
    pub(crate) fn start_any(&self, plan: &Plan) -> Result<StartedProcess, Error> {
        if plan.bases().is_empty() {
            return Err(Error::candidates(&self.name, Vec::new(), 0));
        }
        let strings = Strings::new(self)?;
        let mut parts = plan.candidates();
        let started = strings.start(self).spawn(candidates(plan, &mut parts));
        started.map_err(|failure| self.explain(failure, plan))
    }

    /// Starts a single candidate. The inner error concerns the candidate alone; the outer error would be the same for
    /// every candidate.
    pub(crate) fn start(&self, path: &[u8]) -> Result<io::Result<StartedProcess>, Error> {
        let strings = Strings::new(self)?;
        let mut parts = std::iter::once([path, b"", b"", b""]);
        let candidates = Candidates { parts: &mut parts, count: 1, longest: path.len() };
        match strings.start(self).spawn(candidates) {
            Ok(started) => Ok(Ok(started)),
            Err(Failure::Candidates(errors)) => {
                let errno = errors.first().copied().unwrap_or(0);
                Ok(Err(io::Error::from_raw_os_error(errno)))
            }
            Err(Failure::Step(step, error)) => Err(Error::step(&self.name, doing(step), error)),
        }
    }

    fn explain(&self, failure: Failure, plan: &Plan) -> Error {
        match failure {
            Failure::Step(step, error) => Error::step(&self.name, doing(step), error),
            Failure::Candidates(errors) => {
                let errors = errors.into_iter().map(io::Error::from_raw_os_error);
                let tried = plan.candidates().map(|parts| parts.concat()).zip(errors);
                let tried = tried.map(|(path, error)| TriedCandidate { path, error }).collect();
                Error::candidates(&self.name, tried, plan.bases().len())
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

/// Returns the candidates of a plan, assembled lazily.
fn candidates<'a, 'parts>(
    plan: &Plan,
    parts: &'a mut dyn Iterator<Item = [&'parts [u8]; 4]>,
) -> Candidates<'a, 'parts> {
    Candidates { parts, count: plan.count(), longest: plan.longest() }
}

/// The NUL-terminated strings for the kernel.
struct Strings {
    arguments: Texts,
    environment: Texts,
    folder: Option<CString>,
}

impl Strings {
    fn new(prepared: &PreparedCommand<'_>) -> Result<Self, Error> {
        let PreparedCommand { command, name, .. } = prepared;
        let refused = |what: &str| Error::input(name, format!("a NUL byte in {what}"));
        let push = |texts: &mut Texts, parts: &[&[u8]], what| {
            if texts.push(parts) { Ok(()) } else { Err(refused(what)) }
        };
        let mut strings = Self {
            arguments: Texts::with_capacity(16, 1024),
            environment: Texts::with_capacity(128, 16 * 1024),
            folder: None,
        };
        for argument in std::iter::once(&command.name).chain(&command.arguments) {
            push(&mut strings.arguments, &[argument.as_bytes()], "an argument")?;
        }
        for (key, value) in command.environment.variables() {
            let parts = [key.as_bytes(), b"=", value.as_bytes()];
            push(&mut strings.environment, &parts, "its environment")?;
        }
        if let Some(folder) = &command.folder {
            let folder = CString::new(folder.as_os_str().as_bytes());
            strings.folder = Some(folder.map_err(|_| refused("its folder"))?);
        }
        Ok(strings)
    }

    fn start<'a>(&'a self, prepared: &'a PreparedCommand<'_>) -> Start<'a> {
        Start {
            arguments: &self.arguments,
            environment: &self.environment,
            folder: self.folder.as_deref(),
            stdio: prepared.stdio.each_ref().map(|ends| ends.theirs.as_ref().map(AsFd::as_fd)),
            group: prepared.command.group,
            skippable_errors: &EXEC_PASSED_OVER,
        }
    }
}

/// A process. The open descriptor keeps the kernel from reusing the process ID.
#[derive(Debug)]
pub(crate) struct Process {
    started: StartedProcess,
}

impl Process {
    pub(crate) fn new(started: StartedProcess) -> Self {
        Self { started }
    }

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

/// Returns the status in the encoding of `wait`.
fn raw_status(ended: &WaitIdStatus) -> i32 {
    const DUMPED_CORE: i32 = 0x80;
    match (ended.exit_status(), ended.terminating_signal()) {
        (Some(status), _) => status << 8,
        (None, Some(signal)) if ended.dumped() => signal | DUMPED_CORE,
        (None, signal) => signal.unwrap_or(0),
    }
}
