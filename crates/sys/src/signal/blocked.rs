//! Blocks signals and reads them from a descriptor, so that they do not interrupt the program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::Signal;

use super::{Mask, SignalFd};

/// A set of signals that the thread blocks, and a descriptor that is readable while such a signal is pending.
///
/// When the value is dropped, pending signals are delivered, except signals that were blocked before.
#[derive(Debug)]
pub struct BlockedSignals {
    descriptor: SignalFd,
    before: Mask,
}

impl BlockedSignals {
    /// Blocks `signals` in the calling thread and in threads that it starts later. A signal to the whole process stays
    /// pending only if every thread blocks it.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let numbers: Vec<_> = signals.iter().map(|signal| signal.as_raw()).collect();
        let mask = Mask::of(&numbers);
        let descriptor = SignalFd::new(&mask)?;
        Ok(Self { descriptor, before: mask.block() })
    }

    /// Takes the next pending signal, if there is one. The signal will not be delivered.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let received = self.descriptor.receive()?;
        Ok(received.and_then(|received| Signal::from_named_raw(received.signal)))
    }
}

impl AsFd for BlockedSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        self.before.set();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(blocked: &BlockedSignals) -> bool {
        let mut polled = [PollFd::new(blocked, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn a_blocked_signal_makes_the_descriptor_readable_and_does_not_interrupt() {
        // The default action of this signal is to be ignored, so its delivery at the end does no harm.
        let blocked = BlockedSignals::new(&[Signal::URG]).unwrap();
        assert!(!is_readable(&blocked));
        // SAFETY: the signal goes to this thread alone, and its default action is to be ignored.
        assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
        assert!(is_readable(&blocked));
        assert_eq!(blocked.next().unwrap(), Some(Signal::URG));
        assert_eq!(blocked.next().unwrap(), None);
    }

    #[test]
    fn signals_that_were_blocked_before_stay_blocked() {
        let outer = BlockedSignals::new(&[Signal::URG]).unwrap();
        drop(BlockedSignals::new(&[Signal::URG]).unwrap());
        // SAFETY: as above.
        assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
        assert!(is_readable(&outer));
    }
}
