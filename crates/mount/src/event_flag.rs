//! A flag that threads can wait for with `poll`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{self, Errno};

/// A flag whose descriptor is readable while the flag is raised.
#[derive(Debug)]
pub(crate) struct EventFlag {
    descriptor: OwnedFd,
}

/// Lowers the flag when it is dropped.
#[derive(Debug)]
pub(crate) struct RaisedFlag<'a> {
    flag: &'a EventFlag,
}

impl EventFlag {
    pub(crate) fn new() -> Result<Self, Errno> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { descriptor })
    }

    /// Raises the flag, which wakes all threads that poll it.
    pub(crate) fn raise(&self) -> Result<RaisedFlag<'_>, Errno> {
        io::write(&self.descriptor, &1_u64.to_ne_bytes())?;
        Ok(RaisedFlag { flag: self })
    }
}

impl AsFd for EventFlag {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for RaisedFlag<'_> {
    fn drop(&mut self) {
        // The read fails only if the flag is already lowered.
        let _ = io::read(&self.flag.descriptor, &mut [0; 8]);
    }
}
