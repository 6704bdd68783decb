//! Signals that wait for a descriptor's reader instead of interrupting.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::Signal;

use super::{Mask, SignalFd};

/// Signals that this thread blocks, and a descriptor that is readable when one is pending.
///
/// When it is dropped, pending signals are delivered, except those that were blocked before.
#[derive(Debug)]
pub struct BlockedSignals {
    descriptor: SignalFd,
    before: Mask,
}

impl BlockedSignals {
    /// Blocks `signals` in the calling thread, and in those that it starts. A signal to the whole
    /// process stays pending only if every thread blocks it.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let numbers: Vec<_> = signals.iter().map(|signal| signal.as_raw()).collect();
        let mask = Mask::of(&numbers);
        let descriptor = SignalFd::new(&mask)?;
        Ok(Self { descriptor, before: mask.block() })
    }

    /// The next pending signal, if there is one. It is not delivered any more.
    ///
    /// # Errors
    /// Whatever the system reports.
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
        // Its default is to be ignored, so its delivery at the end does no harm.
        let blocked = BlockedSignals::new(&[Signal::URG]).unwrap();
        assert!(!is_readable(&blocked));
        // SAFETY: it is sent to this thread alone, and its default is to be ignored.
        assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
        assert!(is_readable(&blocked));
        assert_eq!(blocked.next().unwrap(), Some(Signal::URG));
        assert_eq!(blocked.next().unwrap(), None);
    }

    #[test]
    fn what_was_blocked_before_stays_blocked() {
        let outer = BlockedSignals::new(&[Signal::URG]).unwrap();
        drop(BlockedSignals::new(&[Signal::URG]).unwrap());
        // SAFETY: as above.
        assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
        assert!(is_readable(&outer));
    }
}
