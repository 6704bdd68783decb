//! The connection over `/dev/fuse`: one read a request, one write a reply.

use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read, write};
use thruway_fuse::Reply;

use crate::transport::reply::ReplySender;

/// A connection, or a clone of it. A reply must go by the clone that its request came by.
#[derive(Debug)]
pub(crate) struct Device {
    pub(super) descriptor: OwnedFd,
}

/// What a read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// A request of this length.
    Request(usize),
    /// No request waits, and the descriptor does not block.
    Nothing,
    /// The mount is gone.
    Gone,
}

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    /// Makes [`Self::receive`] return when no request waits.
    pub(crate) fn set_nonblocking(&self) -> Result<(), Errno> {
        fcntl_setfl(&self.descriptor, OFlags::NONBLOCK)
    }

    /// The next request.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        loop {
            match read(&self.descriptor, &mut *buffer) {
                Ok(length) => return Ok(Received::Request(length)),
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                // ENOENT: the kernel withdrew the request before it was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::NODEV) => return Ok(Received::Gone),
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl ReplySender for Device {
    fn send(&self, unique: u64, reply: &mut Reply) {
        // A reply to a withdrawn request is no error (ENOENT). If the connection is gone, the next read
        // reports that.
        let _ = write_message(&self.descriptor, reply.seal(unique));
    }
}

/// Writes a reply or a notification.
pub(crate) fn write_message(device: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    loop {
        match write(device, bytes) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
