//! The command as a shell's job: it gets the signals that were meant for it, we stop when it stops, and
//! its end is kept.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use thruway_sys::process::{self, Change, Wait};
use thruway_sys::signal::{Mask, SignalFd, number};

/// The signals that are held back for the command, before it is there.
#[derive(Debug)]
pub(crate) struct JobSignals {
    signals: SignalFd,
    /// What was held back before.
    before: Mask,
}

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Job {
    held: JobSignals,
    command: i32,
    end: Option<Change>,
}

impl JobSignals {
    /// Holds signals back from here on.
    pub(crate) fn begin() -> io::Result<Self> {
        let held = Mask::of(&HELD);
        let before = held.set();
        Ok(Self { signals: SignalFd::new(&held)?, before })
    }

    /// The signals that the command holds back from its start on.
    pub(crate) fn mask(&self) -> &Mask {
        &self.before
    }

    /// Whether a signal came that asks us to end.
    pub(crate) fn is_asked_to_end(&self) -> bool {
        const ENDING: [i32; 4] = [number::SIGHUP, number::SIGINT, number::SIGQUIT, number::SIGTERM];
        let received = std::iter::from_fn(|| self.signals.receive().ok().flatten());
        received.fold(false, |asked, received| asked | ENDING.contains(&received.signal))
    }

    /// Holds nothing back any more: there is no command.
    pub(crate) fn release(&self) {
        self.before.set();
    }
}

impl Job {
    /// The command runs as this process.
    pub(crate) fn new(held: JobSignals, command: i32) -> Self {
        Self { held, command, end: None }
    }

    /// Its process.
    pub(crate) fn command(&self) -> i32 {
        self.command
    }

    /// How it ended, if it has.
    pub(crate) fn end(&self) -> Option<Change> {
        self.end
    }

    /// Another part of this process took its end.
    pub(crate) fn ended(&mut self, end: Option<Change>) {
        self.end = self.end.or(end);
    }

    /// There is no command.
    pub(crate) fn release(&self) {
        self.held.release();
    }

    /// Passes signals on, stops when the command stops, and keeps its end.
    pub(crate) fn look_after(&mut self) {
        self.pass_signals();
        self.follow();
    }

    /// A signal that was sent to us alone was meant for the command. One from the terminal went to
    /// the command as well.
    fn pass_signals(&mut self) {
        while let Ok(Some(received)) = self.held.signals.receive() {
            let is_passed = received.from_process && !NOT_PASSED.contains(&received.signal);
            if is_passed && self.end.is_none() {
                // It has just ended if this fails.
                let _ = process::send_signal(self.command, received.signal);
            }
        }
    }

    /// Stops with the command, so that a shell sees the job as stopped, and takes its end.
    fn follow(&mut self) {
        let command = self.command;
        while self.end.is_none() {
            match process::wait(Wait::News(command)) {
                Ok(Some((_, Change::Stopped { .. }))) => {
                    process::stop_here();
                    if matches!(process::wait(Wait::News(command)), Ok(None)) {
                        // We were continued, and it was not.
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
    /// Readable when a signal has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

impl AsFd for Job {
    /// Readable when a signal has come, the command's end among them.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.signals.as_fd()
    }
}

/// Signals that we hold back, to pass them on. `SIGXFSZ` is one because a recording that is as long
/// as a file may be is an error like any other.
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
