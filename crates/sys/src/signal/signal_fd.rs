//! Receives signals as records that are read from a descriptor.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::ptr;

use super::Mask;

/// A signal that this process received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// The number of the signal.
    pub signal: i32,
    /// Whether a process sent the signal. Otherwise the kernel sent it, for example for a terminal to the whole
    /// foreground group.
    pub from_process: bool,
}

/// A descriptor that is readable while a blocked signal is pending: `signalfd(2)`.
#[derive(Debug)]
pub struct SignalFd(File);

impl SignalFd {
    /// Creates a descriptor for the signals of `mask`, which the caller must have blocked.
    ///
    /// # Errors
    /// `EMFILE`: the process has too many descriptors.
    pub fn new(mask: &Mask) -> io::Result<Self> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the kernel reads the mask during the call only.
        let descriptor = unsafe { libc::signalfd(-1, mask.raw(), flags) };
        crate::outcome::check(descriptor)?;
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    /// Takes the next pending signal, if there is one. The signal will not be delivered.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn receive(&self) -> io::Result<Option<ReceivedSignal>> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        match (&self.0).read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        // SAFETY: the kernel wrote a whole structure, for which any bytes are valid.
        let received: libc::signalfd_siginfo =
            unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) };
        let from_process =
            received.ssi_code == libc::SI_USER || received.ssi_code == libc::SI_QUEUE;
        let signal = i32::try_from(received.ssi_signo).map_err(io::Error::other)?;
        Ok(Some(ReceivedSignal { signal, from_process }))
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
        // SAFETY: the signal goes to this thread, which blocks it.
        unsafe { libc::raise(libc::SIGUSR2) };
        let received = descriptor.receive().unwrap().map(|received| received.signal);
        before.set();
        assert_eq!(received, Some(libc::SIGUSR2));
    }
}
