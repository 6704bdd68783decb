//! The recorder: the process that the user started. It launches the command and its tracer, and reads their
//! records.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thruway_sys::process::{self, Change, Wait};

use crate::doorbell::Doorbell;
use crate::error::TRACE;
use crate::job::{Job, JobSignals};
use crate::launch::{LaunchContext, launch};
use crate::outcome::{Backend, Outcome};
use crate::pipeline::Drain;
use crate::record::Calls;
use crate::recording::Sink;
use crate::shared_rings::SharedRings;
use crate::{Command, Error, orphan_guard};

/// A running command that is being recorded.
#[derive(Debug)]
pub struct Recorder {
    rings: SharedRings,
    doorbell: Doorbell,
    job: Job,
    tracer: i32,
    drain: Drain,
}

/// How a command is recorded.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecorderOptions {
    /// The mechanism that records calls.
    pub backend: Backend,
    /// Whether calls are recorded with their stacks. Calls that the stub records have none.
    pub with_stacks: bool,
}

/// The interval at which busy rings are read. A busy ring takes six times as long to fill.
const PAUSE_SHORTEST: Duration = Duration::from_millis(2);
/// The interval at which idle rings are read. A newly busy thread needs more time than this to fill its ring.
const PAUSE_LONGEST: Duration = Duration::from_millis(8);

impl Recorder {
    /// Starts the command in the working directory.
    ///
    /// Must be called before the first thread is started, and at most once per process: it forks, and it
    /// blocks the process's signals in order to forward them.
    ///
    /// # Errors
    /// The command cannot be run, or the system denies tracing.
    pub fn start(command: &Command, options: RecorderOptions) -> Result<Self, Error> {
        let RecorderOptions { backend, with_stacks } = options;
        let failed = |error| Error::system(TRACE, command.program(), error);
        let signals = JobSignals::begin().map_err(failed)?;
        let calls = Calls::new();
        let rings = SharedRings::new(&calls.shapes()).map_err(failed)?;
        let doorbell = Doorbell::new().map_err(failed)?;
        let with_stub = backend == Backend::Stub && cfg!(target_arch = "x86_64");
        let mut drain = Drain::new(calls);
        let context = LaunchContext {
            rings: &rings,
            doorbell: &doorbell,
            with_stub,
            with_stacks,
            mask: signals.mask(),
        };
        let launched = launch(command, context).inspect_err(|_| signals.release())?;
        drain.watch(launched.command);
        let job = Job::new(signals, launched.command);
        Ok(Self { rings, doorbell, job, tracer: launched.tracer, drain })
    }

    /// Records until the last traced process has ended, including background children of the command. `sink`
    /// receives the calls in the order in which they ended.
    ///
    /// # Errors
    /// The system denies tracing.
    pub fn run(mut self, sink: &mut impl Sink) -> Result<Outcome, Error> {
        let mut pause = PAUSE_SHORTEST;
        let tracer_end = loop {
            let taken = self.drain.take(&self.rings, sink);
            sink.pause();
            pause = if taken > 0 { PAUSE_SHORTEST } else { (2 * pause).min(PAUSE_LONGEST) };
            self.sleep(pause);
            self.job.update();
            if let Ok(Some((_, end))) = process::wait(Wait::News(self.tracer)) {
                break end;
            }
        };
        let is_cut_short = self.end_of_tracer(tracer_end)?;
        self.drain.finish(&self.rings, sink);
        self.job.update();
        let outcome = Outcome {
            end: self.job.end(),
            wall_ns: self.drain.wall_ns(),
            stops: self.rings.stops(),
            traced: self.drain.traced(),
            is_cut_short,
        };
        sink.end(&outcome);
        Ok(outcome)
    }

    /// Waits until a ring is full, a signal arrives, or `pause` is over.
    fn sleep(&self, pause: Duration) {
        let mut awaited = [
            PollFd::from_borrowed_fd(self.doorbell.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.job.as_fd(), PollFlags::IN),
        ];
        let pause = Timespec::try_from(pause).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
        // An interrupted wait needs no handling, because the caller checks all sources anyway.
        let _ = poll(&mut awaited, Some(&pause));
        self.doorbell.clear();
    }

    /// Whether the tracer died early. In that case the traced programs are kept running until they end.
    fn end_of_tracer(&mut self, end: Change) -> Result<bool, Error> {
        match end {
            Change::Exited(0) => Ok(false),
            Change::Exited(errno) if self.drain.is_empty() => {
                self.job.release();
                let error = std::io::Error::from_raw_os_error(i32::from(errno));
                Err(Error::system(TRACE, b"the command", error))
            }
            _ if !self.rings.had_recorder() => {
                let error = std::io::Error::other("the tracer was killed before it could start");
                Err(Error::system(TRACE, b"the command", error))
            }
            _ => {
                let end = orphan_guard::guard(&self.rings, self.job.command());
                self.job.ended(end);
                Ok(true)
            }
        }
    }
}
