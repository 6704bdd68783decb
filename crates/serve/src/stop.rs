//! Ctrl-C and TERM end a server in good order.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use thruway_sys::signal::HeldSignals;

use crate::Error;

/// Holds SIGINT and SIGTERM back from the calling thread and from those that it starts.
#[derive(Debug)]
pub struct StopSignals(HeldSignals);

impl StopSignals {
    /// Begins to hold them back.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn hold() -> Result<Self, Error> {
        HeldSignals::new(&[Signal::INT, Signal::TERM]).map(Self).map_err(failed)
    }

    /// Waits until one has come. The next one ends the process at once, as ever.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn wait(self) -> Result<(), Error> {
        while self.0.next().map_err(failed)?.is_none() {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }
}

fn failed(error: impl Into<std::io::Error>) -> Error {
    Error::system("wait for signals", error)
}
