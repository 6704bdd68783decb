//! The connection over `/dev/fuse`: one read a request, one write a response.

use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read, write};
use thruway_fuse::Answer;

use crate::transport::reply::Replier;

/// A connection, or a clone of it. An answer must go the way that its request came.
#[derive(Debug)]
pub(crate) struct Device {
    pub(super) descriptor: OwnedFd,
}

/// What reading a request gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// One of this length.
    Request(usize),
    /// None waits, and neither do we.
    Nothing,
    /// The mount is gone.
    Gone,
}

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    /// Waits for no request from here on.
    pub(crate) fn set_nonblocking(&self) -> Result<(), Errno> {
        fcntl_setfl(&self.descriptor, OFlags::NONBLOCK)
    }

    /// The next request.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        loop {
            match read(&self.descriptor, &mut *buffer) {
                Ok(length) => return Ok(Received::Request(length)),
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                // ENOENT: the request was taken back before it could be read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::NODEV) => return Ok(Received::Gone),
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Replier for Device {
    fn reply(&self, unique: u64, answer: &mut Answer) {
        // An answer that nobody waits for is no error (ENOENT), nor is a connection that has gone:
        // the next read says so.
        let _ = send(&self.descriptor, answer.seal(unique));
    }
}

/// Writes an answer or a notification.
pub(crate) fn send(device: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    loop {
        match write(device, bytes) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
