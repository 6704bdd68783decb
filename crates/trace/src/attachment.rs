//! Recording of a process that is already running, for a limited time.

use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thruway_sys::process::{self, Change, Wait};
use thruway_sys::signal::{Mask, number};

use crate::Outcome;
use crate::doorbell::Doorbell;
use crate::error::{Error, TRACE};
use crate::job::JobSignals;
use crate::pipeline::Drain;
use crate::record::Calls;
use crate::recording::Sink;
use crate::shared_rings::SharedRings;
use crate::tracer::AttachedTracer;

/// An attachment to a running process. Nothing is injected, and the process continues undisturbed when the
/// attachment ends.
#[derive(Debug)]
pub struct Attachment {
    rings: SharedRings,
    doorbell: Doorbell,
    tracer: i32,
    drain: Drain,
    signals: JobSignals,
    name: String,
}

/// The interval at which the ring is read. A full ring is read at once.
const PAUSE: Duration = Duration::from_millis(10);

impl Attachment {
    /// Attaches to all threads of these processes and to the descendants that they create from now on.
    /// `with_stacks` is whether calls are recorded with their stacks.
    ///
    /// Must be called before the first thread is started, and at most once per process: it forks, and it
    /// blocks the process's signals.
    ///
    /// # Errors
    /// One of the processes does not exist, or the system denies tracing. No process is attached to then.
    pub fn start(processes: &[i32], with_stacks: bool) -> Result<Self, Error> {
        let name = name_of(processes);
        let failed = |error| Error::system(TRACE, name.as_bytes(), error);
        let signals = JobSignals::begin().map_err(failed)?;
        let calls = Calls::new();
        let rings = SharedRings::new(&calls.shapes()).map_err(failed)?;
        let doorbell = Doorbell::new().map_err(failed)?;
        let mut drain = Drain::new(calls);
        let (mut attached, attached_writer) = io::pipe().map_err(failed)?;
        let tracer = process::fork(|| {
            trace(AttachedTracer::new(&rings, &doorbell, with_stacks), processes, attached_writer)
        });
        let tracer = tracer.map_err(failed)?;
        let mut end = [0; 8];
        let has_reported = attached.read_exact(&mut end).is_ok();
        let (process, errno) = refusal(end);
        if !has_reported || errno != 0 {
            signals.release();
            let name = name_of(&[process]);
            let error = io::Error::from_raw_os_error(errno);
            return Err(Error::system(TRACE, name.as_bytes(), error));
        }
        drain.watch_processes(processes);
        Ok(Self { rings, doorbell, tracer, drain, signals, name })
    }

    /// Records until the processes and their descendants have ended, or until a signal asks this process to end.
    /// `sink` receives the calls in the order in which they ended.
    ///
    /// # Errors
    /// The tracer failed.
    pub fn run(mut self, sink: &mut impl Sink) -> Result<Outcome, Error> {
        let end = loop {
            self.drain.take(&self.rings, sink);
            sink.pause();
            self.sleep();
            if self.signals.is_asked_to_end() {
                // Killing the tracer makes the kernel detach from all threads, whatever they are doing.
                let _ = process::send_signal(self.tracer, number::SIGKILL);
            }
            if let Ok(Some((_, end))) = process::wait(Wait::News(self.tracer)) {
                break end;
            }
        };
        self.signals.release();
        self.drain.finish(&self.rings, sink);
        if let Change::Exited(errno @ 1..) = end {
            let error = io::Error::from_raw_os_error(i32::from(errno));
            return Err(Error::system(TRACE, self.name.as_bytes(), error));
        }
        let outcome = Outcome {
            end: None,
            wall_ns: self.drain.wall_ns(),
            stops: self.rings.stops(),
            traced: self.drain.traced(),
            is_cut_short: false,
        };
        sink.end(&outcome);
        Ok(outcome)
    }

    /// Waits until the ring is full, a signal arrives, or the interval is over.
    fn sleep(&self) {
        let mut awaited = [
            PollFd::from_borrowed_fd(self.doorbell.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
        ];
        let pause = Timespec::try_from(PAUSE).unwrap_or_default();
        // An interrupted wait needs no handling, because the caller checks all sources anyway.
        let _ = poll(&mut awaited, Some(&pause));
        self.doorbell.clear();
    }
}

/// Returns the words for these processes in a message.
fn name_of(processes: &[i32]) -> String {
    let ids: Vec<_> = processes.iter().map(i32::to_string).collect();
    let noun = if ids.len() == 1 { "process" } else { "processes" };
    format!("{noun} {}", ids.join(", "))
}

/// Returns the process that could not be attached to, and the error number; 0 is none.
fn refusal(bytes: [u8; 8]) -> (i32, i32) {
    let both = u64::from_ne_bytes(bytes);
    let half = |half: u64| u32::try_from(half & 0xffff_ffff).unwrap_or(0).cast_signed();
    (half(both >> 32), half(both))
}

/// The inverse of [`refusal`].
fn refusal_bytes(process: i32, errno: i32) -> [u8; 8] {
    (u64::from(process.cast_unsigned()) << 32 | u64::from(errno.cast_unsigned())).to_ne_bytes()
}

/// The main function of the tracer's process. The process dies with its parent, for whatever reason, and the
/// kernel then detaches.
fn trace(mut tracer: AttachedTracer<'_>, processes: &[i32], mut attached: PipeWriter) -> u8 {
    process::die_with_parent(true);
    process::set_name(c"thruway-tracer");
    Mask::full().set();
    let outcome = tracer.attach(processes);
    let (process, errno) = outcome
        .as_ref()
        .err()
        .map_or((0, 0), |(process, error)| (*process, error.raw_os_error().unwrap_or(1)));
    // The write fails if the recorder has died.
    let _ = attached.write_all(&refusal_bytes(process, errno));
    drop(attached);
    let traced = outcome.map_err(|(_, error)| error).and_then(|()| tracer.run());
    // The error numbers of these calls are below 128.
    traced.map_or_else(|error| u8::try_from(error.raw_os_error().unwrap_or(1)).unwrap_or(1), |()| 0)
}
