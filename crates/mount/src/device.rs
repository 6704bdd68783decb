//! Requests over `/dev/fuse`: one read a request, one write an answer.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::{Errno, read, write};
use thruway_fuse::{Answer, Frame};

use crate::actor::Actor;
use crate::memory::Memory;
use crate::pool::{Job, Pool};
use crate::reply::Replier;
use crate::view::{Outcome, View};

/// What a request takes besides its payload: headers, and the names of a rename.
const OVERHEAD_BYTES: usize = 4096;

/// A connection, or a clone of it. An answer must go the way that its request came.
#[derive(Debug)]
pub(crate) struct Device {
    descriptor: OwnedFd,
}

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }

    /// Answers requests until the mount is gone.
    pub(crate) fn run(
        self: &Arc<Self>,
        view: &View,
        memory: &Memory,
        pool: &Arc<Pool>,
        payload_bytes_max: usize,
    ) -> Result<(), Errno> {
        let mut actor = Actor::new()?;
        let replier: Arc<dyn Replier> = Arc::clone(self) as _;
        let mut buffer = vec![0; payload_bytes_max + OVERHEAD_BYTES];
        let mut answer = Answer::default();
        while let Some(length) = self.receive(&mut buffer)? {
            let bytes = &buffer[..length];
            // A request that cannot be read gets no answer worth having: the kernel is at fault.
            let Ok(frame) = Frame::joined(bytes) else { continue };
            memory.count_request(frame.opcode());
            let Ok(request) = frame.request() else {
                answer.fail(Errno::INVAL.raw_os_error());
                self.reply(frame.unique(), &mut answer);
                continue;
            };
            if view.is_slow(&request) {
                pool.submit(Job { bytes: bytes.to_vec(), replier: Arc::clone(&replier) });
            } else if view.serve(&mut actor, &replier, &request, &mut answer) == Outcome::Answered {
                self.reply(request.unique, &mut answer);
            }
        }
        Ok(())
    }

    /// The next request's length; `None` when the mount is gone.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            match read(&self.descriptor, &mut *buffer) {
                Ok(length) => return Ok(Some(length)),
                // ENOENT: the request was taken back before it could be read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                Err(Errno::NODEV) => return Ok(None),
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
