//! Requests over `/dev/fuse`: one read a request, one write an answer.

use std::os::fd::OwnedFd;

use rustix::io::{Errno, read, write};
use thruway_fuse::{Answer, Frame};

use crate::actor::Actor;
use crate::memory::Memory;
use crate::view::{Outcome, View};

/// What a request takes besides its payload: headers, and the names of a rename.
const OVERHEAD_BYTES: usize = 4096;

/// Answers requests until the mount is gone.
pub(crate) fn run(
    device: &OwnedFd,
    view: &View,
    memory: &Memory,
    payload_bytes_max: usize,
) -> Result<(), Errno> {
    let mut actor = Actor::new()?;
    let mut buffer = vec![0; payload_bytes_max + OVERHEAD_BYTES];
    let mut answer = Answer::default();
    while let Some(length) = receive(device, &mut buffer)? {
        // A request that cannot be read gets no answer worth having: the kernel is at fault.
        let Ok(frame) = Frame::joined(&buffer[..length]) else { continue };
        memory.count_request(frame.opcode());
        let outcome = match frame.request() {
            Ok(request) => view.serve(&mut actor, &request, &mut answer),
            Err(_) => {
                answer.fail(Errno::INVAL.raw_os_error());
                Outcome::Answered
            }
        };
        if outcome == Outcome::Answered {
            send(device, answer.seal(frame.unique()))?;
        }
    }
    Ok(())
}

/// The next request's length; `None` when the mount is gone.
pub(crate) fn receive(device: &OwnedFd, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
    loop {
        match read(device, &mut *buffer) {
            Ok(length) => return Ok(Some(length)),
            // ENOENT: the request was taken back before it could be read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            Err(Errno::NODEV) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
}

/// Sends an answer. That nobody waits for it any more (`ENOENT`) is no error.
pub(crate) fn send(device: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    loop {
        match write(device, bytes) {
            Ok(_) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
