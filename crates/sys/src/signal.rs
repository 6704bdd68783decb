//! Signals that are read from a descriptor instead of interrupting.

mod reader;
pub use reader::{Mask, Reader, Received, number};

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Signal;

/// Signals that this thread holds back, and a descriptor that is readable when one came.
///
/// When it is dropped, what came meanwhile is delivered as ever, unless it was held back before too.
#[derive(Debug)]
pub struct HeldSignals {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

impl HeldSignals {
    /// Holds `signals` back from the calling thread, and from those that it starts. A signal to the
    /// whole process is only held back if every thread does so.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        let set = set(signals);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is valid for the call; -1 asks for a new descriptor.
        let raw = unsafe { libc::signalfd(-1, &raw const set, flags) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to us alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are valid for the call, which writes the second.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: the call succeeded, so it has written the set.
        let before = unsafe { before.assume_init() };
        Ok(Self { descriptor, before })
    }

    /// The next signal that has come, if one has; it is not delivered any more.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.descriptor, &mut record) {
            Ok(_) => {
                // The signal's number is the record's first field.
                let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
                Ok(i32::try_from(number).ok().and_then(Signal::from_named_raw))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for HeldSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        let before = &raw const self.before;
        // SAFETY: the set was written by the kernel; nothing is to be written back.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}

fn set(signals: &[Signal]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call writes the whole set and cannot fail.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the call above has written it.
    let mut set = unsafe { set.assume_init() };
    for signal in signals {
        // SAFETY: the set is valid, and the number is that of a signal.
        unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) };
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(held: &HeldSignals) -> bool {
        let mut polled = [PollFd::new(held, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn a_held_signal_makes_the_descriptor_readable_and_does_not_interrupt() {
        // Its default is to be ignored, so its delivery at the end harms nobody.
        let held = HeldSignals::new(&[Signal::URG]).unwrap();
        assert!(!is_readable(&held));
        // SAFETY: it is sent to this thread alone, and its default is to be ignored.
        assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
        assert!(is_readable(&held));
        assert_eq!(held.next().unwrap(), Some(Signal::URG));
        assert_eq!(held.next().unwrap(), None);
    }

    #[test]
    fn what_was_held_before_stays_held() {
        let outer = HeldSignals::new(&[Signal::URG]).unwrap();
        drop(HeldSignals::new(&[Signal::URG]).unwrap());
        // SAFETY: as above.
        assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
        assert!(is_readable(&outer));
    }
}
