//! Signals as records that are read.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::ptr;

use super::Mask;

/// A signal that was sent to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// Whether a process sent it. Otherwise the kernel did: for the terminal, to the whole foreground
    /// group.
    pub from_process: bool,
}

/// A descriptor that is readable when a blocked signal is pending: `signalfd(2)`.
#[derive(Debug)]
pub struct SignalFd(File);

impl SignalFd {
    /// A descriptor that gives the signals of `mask` while they are blocked.
    ///
    /// # Errors
    /// `EMFILE`: too many descriptors.
    pub fn new(mask: &Mask) -> io::Result<Self> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the mask is read during the call only.
        let descriptor = unsafe { libc::signalfd(-1, mask.raw(), flags) };
        crate::outcome::check(descriptor)?;
        // SAFETY: the descriptor is new, and has no other owner.
        Ok(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    /// The next pending signal, if there is one. It is not delivered any more.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn receive(&self) -> io::Result<Option<Received>> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        match (&self.0).read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        // SAFETY: the kernel wrote one whole structure, and any bytes are valid for it.
        let received: libc::signalfd_siginfo =
            unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) };
        let from_process =
            received.ssi_code == libc::SI_USER || received.ssi_code == libc::SI_QUEUE;
        let signal = i32::try_from(received.ssi_signo).map_err(io::Error::other)?;
        Ok(Some(Received { signal, from_process }))
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_is_read_with_its_sender() {
        let mask = Mask::of(&[libc::SIGUSR2]);
        let before = mask.set();
        let descriptor = SignalFd::new(&mask).unwrap();
        assert_eq!(descriptor.receive().unwrap(), None);
        // SAFETY: a signal to this very thread, which blocks it.
        unsafe { libc::raise(libc::SIGUSR2) };
        let received = descriptor.receive().unwrap().map(|received| received.signal);
        before.set();
        assert_eq!(received, Some(libc::SIGUSR2));
    }
}
