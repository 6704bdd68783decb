//! A thread that reads requests from `/dev/fuse`.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use thruway_fuse::Frame;

use super::device::{Device, ReadOutcome};
use super::dispatch::{Dispatcher, Services};
use super::reader_pool::ReaderSlot;
use super::reply::{Outcome, ReplySender};
use crate::schedule::affinity::FollowCaller;
use crate::schedule::reader_activity::Activity;

/// The maximum size of a request without its payload: headers, and the names of a rename.
const OVERHEAD_BYTES: usize = 4096;

/// Reads requests and serves them.
#[derive(Debug)]
pub(crate) struct Reader {
    device: Arc<Device>,
    sender: Arc<dyn ReplySender>,
    dispatcher: Dispatcher,
    follow_caller: FollowCaller,
    buffer: Vec<u8>,
}

impl Reader {
    /// Creates the reader of the calling thread.
    pub(crate) fn new(
        device: OwnedFd,
        payload_bytes_max: usize,
        services: Services,
    ) -> Result<Self, Errno> {
        let device = Arc::new(Device::new(device));
        Ok(Self {
            sender: Arc::clone(&device) as _,
            device,
            dispatcher: Dispatcher::new(services)?,
            follow_caller: FollowCaller::default(),
            buffer: vec![0; payload_bytes_max + OVERHEAD_BYTES],
        })
    }

    /// Serves requests until the mount is gone.
    pub(crate) fn run(mut self, mut slot: ReaderSlot) -> Result<(), Errno> {
        slot.register()?;
        if !slot.is_leader() {
            self.device.set_nonblocking()?;
        }
        let mut served = 0;
        loop {
            match self.serve_next(slot.activity())? {
                ReadOutcome::Request(_) => served += 1,
                ReadOutcome::WouldBlock => {
                    slot.wait_for_backlog(&self.device.descriptor, served)?;
                    served = 0;
                }
                ReadOutcome::Unmounted => {
                    slot.activity().retire();
                    return Ok(());
                }
            }
        }
    }

    fn serve_next(&mut self, activity: &Activity) -> Result<ReadOutcome, Errno> {
        let before = Instant::now();
        let received = self.device.receive(&mut self.buffer)?;
        if let ReadOutcome::Request(length) = received {
            activity.begin_request();
            self.follow_caller.note_wait(before.elapsed());
            self.serve(length, activity);
            activity.end_request();
        }
        Ok(received)
    }

    fn serve(&mut self, length: usize, activity: &Activity) {
        let Self { device, sender, dispatcher, follow_caller, buffer } = self;
        // Malformed bytes get no reply: they contain no request to reply to, and the kernel is at fault.
        let Ok(frame) = Frame::from_bytes(&buffer[..length]) else { return };
        let outcome = dispatcher.dispatch(&frame, sender, |request| {
            activity.note_caller(request.caller.pid);
            follow_caller.follow(request.caller.pid, &request.operation, activity);
            Ok(())
        });
        if outcome == Outcome::Replied {
            device.send(frame.unique(), dispatcher.reply());
        }
    }
}
