//! Which signals are held back, and reading them with who sent them.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::ptr;

/// The numbers of signals, as the system has them.
pub mod number {
    pub use libc::{
        SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
        SIGXFSZ,
    };
}

/// A set of signals that are held back.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

/// A signal that was sent to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// Whether another process sent it; otherwise it came from the kernel or the terminal, and went
    /// to the whole foreground group.
    pub from_process: bool,
}

/// Where held-back signals are read from.
#[derive(Debug)]
pub struct Reader(File);

impl Mask {
    /// No signal at all.
    #[must_use]
    pub fn empty() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the call initialises the whole set and cannot fail.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised by the line above.
        Self(unsafe { set.assume_init() })
    }

    /// Every signal; the kernel leaves `SIGKILL` and `SIGSTOP` out.
    #[must_use]
    pub fn full() -> Self {
        let mut mask = Self::empty();
        // SAFETY: the set is writable and cannot fail to be filled.
        unsafe { libc::sigfillset(&raw mut mask.0) };
        mask
    }

    /// These signals.
    #[must_use]
    pub fn of(signals: &[i32]) -> Self {
        let mut mask = Self::empty();
        for signal in signals {
            // SAFETY: the set is writable; a number that is no signal is refused.
            unsafe { libc::sigaddset(&raw mut mask.0, *signal) };
        }
        mask
    }

    /// Holds back these signals and no others; answers with those that were held back before.
    pub fn set(&self) -> Self {
        let mut before = Self::empty();
        // SAFETY: both sets are valid for the time of the call.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.0, &raw mut before.0) };
        before
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Mask")
    }
}

impl Reader {
    /// A descriptor that the signals of `mask` can be read from while they are held back.
    ///
    /// # Errors
    /// `EMFILE`: too many descriptors.
    pub fn new(mask: &Mask) -> io::Result<Self> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the mask is read during the call only.
        let descriptor = unsafe { libc::signalfd(-1, &raw const mask.0, flags) };
        crate::outcome::check(descriptor)?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    /// The next signal that waits, if one does.
    pub fn receive(&mut self) -> Option<Received> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        self.0.read_exact(&mut bytes).ok()?;
        // SAFETY: the kernel wrote one whole structure, and any bytes are valid for it.
        let received: libc::signalfd_siginfo =
            unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) };
        let from_process =
            received.ssi_code == libc::SI_USER || received.ssi_code == libc::SI_QUEUE;
        Some(Received { signal: i32::try_from(received.ssi_signo).ok()?, from_process })
    }
}

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_held_back_is_read_with_its_sender() {
        let mask = Mask::of(&[libc::SIGUSR2]);
        let before = mask.set();
        let mut descriptor = Reader::new(&mask).unwrap();
        assert_eq!(descriptor.receive(), None);
        // SAFETY: a signal to this very thread, which holds it back.
        unsafe { libc::raise(libc::SIGUSR2) };
        let received = descriptor.receive().map(|received| received.signal);
        before.set();
        assert_eq!(received, Some(libc::SIGUSR2));
    }
}
