//! The connection over `/dev/fuse`, with a read for each request and a write for each reply.

use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read, write};
use thruway_fuse::Reply;

use crate::transport::reply::ReplySender;

/// A connection or a clone of it. A reply must be written to the clone from which its request was read.
#[derive(Debug)]
pub(crate) struct Device {
    pub(super) descriptor: OwnedFd,
}

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// A request of this length in bytes.
    Request(usize),
    /// No request is waiting, and the descriptor does not block.
    WouldBlock,
    /// The mount is gone.
    Unmounted,
}

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    /// Makes [`Self::receive`] return if no request is waiting.
    pub(crate) fn set_nonblocking(&self) -> Result<(), Errno> {
        fcntl_setfl(&self.descriptor, OFlags::NONBLOCK)
    }

    /// Reads the next request.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<ReadOutcome, Errno> {
        loop {
            match read(&self.descriptor, &mut *buffer) {
                Ok(length) => return Ok(ReadOutcome::Request(length)),
                Err(Errno::AGAIN) => return Ok(ReadOutcome::WouldBlock),
                // ENOENT means that the kernel withdrew the request before it was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::NODEV) => return Ok(ReadOutcome::Unmounted),
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl ReplySender for Device {
    fn send(&self, unique: u64, reply: &mut Reply) {
        // A reply to a withdrawn request is not an error (ENOENT). If the connection is gone, the next read reports
        // that.
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
