//! Wakes the recorder from another process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Rings in one process and is heard in another, which shares it by `fork`.
#[derive(Debug)]
pub(crate) struct Doorbell(OwnedFd);

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the thread that polls the descriptor.
    pub(crate) fn ring(&self) {
        // Full only if it has rung 2^64 times unheard.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Hears all rings so far.
    pub(crate) fn hear(&self) {
        // Empty if it has not rung.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
