//! Makes Ctrl-C end a run with a report.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use thruway_sys::signal::BlockedSignals;

use crate::Error;

/// Blocks SIGINT and SIGTERM. The descriptor becomes readable when one arrives, so that it can stop a run.
///
/// When the value is dropped, the signal is delivered as usual, so that the shell sees the cause of the
/// process's end.
#[derive(Debug)]
pub struct Interrupt(BlockedSignals);

impl Interrupt {
    /// Blocks both signals in the calling thread.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn new() -> Result<Self, Error> {
        BlockedSignals::new(&[Signal::INT, Signal::TERM])
            .map(Self)
            .map_err(|error| Error::system("hold signals back", error))
    }
}

impl Interrupt {
    /// Whether a signal has arrived.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
