//! The process that the user started: it lets the kernel note what the command does, and takes that.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use super::programs::{Programs, Totals};
use crate::error::TRACE;
use crate::job::{Job, JobSignals};
use crate::launch::launch_alone;
use crate::pipeline::Clock;
use crate::pipeline::EventStream;
use crate::record::{Calls, View};
use crate::recording::Sink;
use crate::{Command, Error, Outcome};

/// A command that runs untouched, while programs in the kernel note its calls.
pub struct KernelRecorder {
    programs: Programs,
    job: Job,
    stream: EventStream,
}

/// The ring is read this often; the programs wake us where it fills up faster.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

impl KernelRecorder {
    /// Starts the command in the current folder.
    ///
    /// Call this before the first thread is started, and once a process. It forks, and it keeps the
    /// process's signals for itself to pass them on.
    ///
    /// # Errors
    /// The command cannot be run, or the system does not let us load programs.
    pub fn start(command: &Command) -> Result<Self, Error> {
        let programs = Programs::attach()?;
        let signals =
            JobSignals::begin().map_err(|error| Error::system(TRACE, command.program(), error))?;
        let mut stream = EventStream::new(Calls::new(), Clock::start(monotonic_ns));
        // It is followed because it is the first that we make.
        let process = launch_alone(command, signals.mask())?;
        stream.watch(process);
        Ok(Self { programs, job: Job::new(signals, process), stream })
    }

    /// Takes every call until the last traced process has ended: background children of the
    /// command are waited for. `sink` gets the calls in the order in which they ended.
    ///
    /// # Errors
    /// The system does not tell what the programs counted.
    pub fn run(mut self, sink: &mut impl Sink) -> Result<Outcome, Error> {
        loop {
            // In this order: a process that is not counted any more has all of its records in the ring.
            self.job.look_after();
            let totals = self.totals()?;
            let is_all = self.drain(sink);
            if is_all && totals.followed == 0 && self.job.end().is_some() {
                break;
            }
            sink.pause();
            if is_all {
                self.sleep();
            }
        }
        let outcome = Outcome {
            end: self.job.end(),
            wall_ns: self.stream.wall_ns(),
            stops: 0,
            traced: 0,
            lost: self.totals()?.lost,
            is_cut_short: false,
        };
        sink.end(&outcome);
        Ok(outcome)
    }

    fn totals(&self) -> Result<Totals, Error> {
        self.programs.totals().map_err(|error| Error::system(TRACE, b"the command", error))
    }

    /// Passes on what was noted so far. Answers with whether that was all.
    fn drain(&mut self, sink: &mut impl Sink) -> bool {
        let Self { programs, stream, .. } = self;
        stream.look_at_clock();
        programs.drain(|record| {
            if let Some(view) = View::new(record) {
                stream.pass(view, sink);
            }
        })
    }

    /// Until the ring fills up, a signal has come or some time is over.
    fn sleep(&self) {
        let mut awaited = [
            PollFd::from_borrowed_fd(self.programs.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.job.as_fd(), PollFlags::IN),
        ];
        // Interrupted or not: what there is to do is looked at anyway.
        let _ = poll(&mut awaited, Some(&PAUSE));
    }
}

/// The clock that the programs read.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
