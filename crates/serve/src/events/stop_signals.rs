//! Stops a server gracefully on Ctrl-C, TERM and QUIT; other signals of operators have no effect.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use thruway_sys::signal::BlockedSignals;

use crate::Error;

/// Signals that end a server.
const STOP: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::QUIT];

/// Signals for functions that this server lacks; unblocked, they would end or halt the process.
const OTHERS: [Signal; 6] =
    [Signal::HUP, Signal::USR1, Signal::USR2, Signal::TTIN, Signal::TTOU, Signal::POWER];

/// Blocks the signals that operators send to servers, in the calling thread and in the threads started later.
#[derive(Debug)]
pub struct StopSignals(BlockedSignals);

impl StopSignals {
    /// Blocks the signals.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn hold() -> Result<Self, Error> {
        BlockedSignals::new(&[&STOP[..], &OTHERS].concat()).map(Self).map_err(failed)
    }

    /// Waits for a signal that ends the server. The next such signal ends the process at once, as by default. `report`
    /// receives the names of other signals.
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
