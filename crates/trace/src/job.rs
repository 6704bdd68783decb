//! Represents the command as a shell's job: forwards signals to the command, stops when the command stops, and keeps
//! the command's exit status.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use thruway_sys::process::{self, Change, Wait};
use thruway_sys::signal::{Mask, SignalFd, number};

/// Signals that are blocked on behalf of the command, even before it exists.
#[derive(Debug)]
pub(crate) struct JobSignals {
    signals: SignalFd,
    /// The mask that was in effect before.
    before: Mask,
}

/// A running command.
#[derive(Debug)]
pub(crate) struct Job {
    held: JobSignals,
    command: i32,
    end: Option<Change>,
}

impl JobSignals {
    /// Starts blocking signals.
    pub(crate) fn begin() -> io::Result<Self> {
        let held = Mask::of(&HELD);
        let before = held.set();
        Ok(Self { signals: SignalFd::new(&held)?, before })
    }

    /// The signal mask with which the command starts.
    pub(crate) fn mask(&self) -> &Mask {
        &self.before
    }

    /// Whether a signal has arrived that ends programs, such as SIGINT or SIGTERM.
    pub(crate) fn is_asked_to_end(&self) -> bool {
        const ENDING: [i32; 4] = [number::SIGHUP, number::SIGINT, number::SIGQUIT, number::SIGTERM];
        let received = std::iter::from_fn(|| self.signals.receive().ok().flatten());
        received.fold(false, |asked, received| asked | ENDING.contains(&received.signal))
    }

    /// Restores the previous mask, because there is no command.
    pub(crate) fn release(&self) {
        self.before.set();
    }
}

impl Job {
    /// Represents a command that runs as process `command`.
    pub(crate) fn new(held: JobSignals, command: i32) -> Self {
        Self { held, command, end: None }
    }

    /// The process of the command.
    pub(crate) fn command(&self) -> i32 {
        self.command
    }

    /// How the command ended; `None` while it runs.
    pub(crate) fn end(&self) -> Option<Change> {
        self.end
    }

    /// Records the end of the command if it was received elsewhere.
    pub(crate) fn ended(&mut self, end: Option<Change>) {
        self.end = self.end.or(end);
    }

    /// Restores the signal mask, because there is no command.
    pub(crate) fn release(&self) {
        self.held.release();
    }

    /// Forwards signals, stops when the command stops, and records its end.
    pub(crate) fn update(&mut self) {
        self.pass_signals();
        self.follow();
    }

    /// Forwards signals that were sent to this process alone. The terminal sends its signals to the command
    /// as well.
    fn pass_signals(&mut self) {
        while let Ok(Some(received)) = self.held.signals.receive() {
            let is_passed = received.from_process && !NOT_PASSED.contains(&received.signal);
            if is_passed && self.end.is_none() {
                // A failure means that the command has just ended.
                let _ = process::send_signal(self.command, received.signal);
            }
        }
    }

    /// Stops with the command, so that the shell sees a stopped job, and records the command's end.
    fn follow(&mut self) {
        let command = self.command;
        while self.end.is_none() {
            match process::wait(Wait::News(command)) {
                Ok(Some((_, Change::Stopped { .. }))) => {
                    process::stop_here();
                    if matches!(process::wait(Wait::News(command)), Ok(None)) {
                        // Only this process was continued, so the command has to be continued here.
                        let _ = process::send_signal(command, number::SIGCONT);
                    }
                }
                Ok(Some((_, Change::Continued))) => {}
                Ok(Some((_, end))) => self.end = Some(end),
                Ok(None) | Err(_) => break,
            }
        }
    }
}

impl AsFd for JobSignals {
    /// Readable when a signal has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

impl AsFd for Job {
    /// Readable when a signal has arrived, including the `SIGCHLD` of the command's end.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.signals.as_fd()
    }
}

/// Signals that are blocked in order to be forwarded. `SIGXFSZ` is blocked too, so that a recording that
/// reaches the limit of file sizes is an ordinary error.
const HELD: [i32; 9] = [
    number::SIGCHLD,
    number::SIGHUP,
    number::SIGINT,
    number::SIGQUIT,
    number::SIGTERM,
    number::SIGTSTP,
    number::SIGUSR1,
    number::SIGUSR2,
    number::SIGXFSZ,
];
const NOT_PASSED: [i32; 2] = [number::SIGCHLD, number::SIGXFSZ];
