//! Ctrl-C ends a run with a report, not without one.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::Signal;
use thruway_sys::signal::BlockedSignals;

use crate::Error;

/// Holds SIGINT and SIGTERM back; readable when one came, so it can stop a run.
///
/// When it is dropped the signal is delivered as ever: the shell sees what ended the process.
#[derive(Debug)]
pub struct Interrupt(BlockedSignals);

impl Interrupt {
    /// Begins to hold them back from the calling thread.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> Result<Self, Error> {
        BlockedSignals::new(&[Signal::INT, Signal::TERM])
            .map(Self)
            .map_err(|error| Error::system("hold signals back", error))
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
