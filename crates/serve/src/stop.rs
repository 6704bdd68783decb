//! Ctrl-C, TERM and QUIT end a server in good order; other signals of operators do it no harm.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use thruway_sys::signal::BlockedSignals;

use crate::Error;

/// Signals that end a server.
const STOP: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::QUIT];

/// Signals that are sent to servers for what this one does not do, and would end or halt it.
const OTHERS: [Signal; 6] =
    [Signal::HUP, Signal::USR1, Signal::USR2, Signal::TTIN, Signal::TTOU, Signal::POWER];

/// Holds the signals that operators send to servers back from the calling thread and from those that it starts.
#[derive(Debug)]
pub struct StopSignals(BlockedSignals);

impl StopSignals {
    /// Begins to hold them back.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn hold() -> Result<Self, Error> {
        BlockedSignals::new(&[&STOP[..], &OTHERS].concat()).map(Self).map_err(failed)
    }

    /// Waits until one has come that ends the server. The next one ends the process at once, as ever.
    /// Others are told to `report`.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn wait(self, report: fn(&str)) -> Result<(), Error> {
        loop {
            match self.0.next().map_err(failed)? {
                Some(signal) if STOP.contains(&signal) => return Ok(()),
                Some(signal) => report(name(signal)),
                None => match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(failed(errno)),
                },
            }
        }
    }
}

fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::HUP => "HUP",
        Signal::USR1 => "USR1",
        Signal::USR2 => "USR2",
        Signal::TTIN => "TTIN",
        Signal::TTOU => "TTOU",
        _ => "PWR",
    }
}

fn failed(error: impl Into<std::io::Error>) -> Error {
    Error::system("wait for signals", error)
}
