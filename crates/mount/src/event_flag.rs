//! A flag that threads wait for with `poll`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{self, Errno};

/// A flag that is readable for `poll` while it is raised.
#[derive(Debug)]
pub(crate) struct EventFlag {
    descriptor: OwnedFd,
}

/// Lowers the flag when it is dropped.
#[derive(Debug)]
pub(crate) struct Raised<'a> {
    flag: &'a EventFlag,
}

impl EventFlag {
    pub(crate) fn new() -> Result<Self, Errno> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { descriptor })
    }

    /// Raises the flag, which wakes all threads that poll it.
    pub(crate) fn raise(&self) -> Result<Raised<'_>, Errno> {
        io::write(&self.descriptor, &1_u64.to_ne_bytes())?;
        Ok(Raised { flag: self })
    }
}

impl AsFd for EventFlag {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        // It fails only if the flag is lowered already.
        let _ = io::read(&self.flag.descriptor, &mut [0; 8]);
    }
}
