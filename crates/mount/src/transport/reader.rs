//! A thread that reads requests over `/dev/fuse`.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use thruway_fuse::{Answer, Frame};

use super::device::{Device, Received};
use super::pool::{Job, Pool};
use super::reader_pool::Place;
use super::reply::{Outcome, Replier};
use crate::actor::Actor;
use crate::memory::Memory;
use crate::schedule::affinity::Company;
use crate::schedule::reader_activity::Work;
use crate::view::View;

/// What a request takes besides its payload: headers, and the names of a rename.
const OVERHEAD_BYTES: usize = 4096;

/// A thread that reads requests and answers them.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    device: Arc<Device>,
    replier: Arc<dyn Replier>,
    actor: Actor,
    company: Company,
    buffer: Vec<u8>,
    answer: Answer,
    view: &'a View,
    memory: &'a Memory,
    pool: &'a Arc<Pool>,
}

impl<'a> Reader<'a> {
    /// For the thread that is to read.
    pub(crate) fn new(
        device: OwnedFd,
        payload_bytes_max: usize,
        (view, memory, pool): (&'a View, &'a Memory, &'a Arc<Pool>),
    ) -> Result<Self, Errno> {
        let device = Arc::new(Device::new(device));
        Ok(Self {
            replier: Arc::clone(&device) as _,
            device,
            actor: Actor::new()?,
            company: Company::default(),
            buffer: vec![0; payload_bytes_max + OVERHEAD_BYTES],
            answer: Answer::default(),
            view,
            memory,
            pool,
        })
    }

    /// Answers requests until the mount is gone.
    pub(crate) fn run(mut self, mut place: Place) -> Result<(), Errno> {
        place.introduce()?;
        if !place.is_first() {
            self.device.set_nonblocking()?;
        }
        let mut taken = 0;
        loop {
            match self.take(place.work())? {
                Received::Request(_) => taken += 1,
                Received::Nothing => {
                    place.wait_for_work(&self.device.descriptor, taken)?;
                    taken = 0;
                }
                Received::Gone => {
                    place.work().leave();
                    return Ok(());
                }
            }
        }
    }

    /// Answers the next request.
    fn take(&mut self, work: &Work) -> Result<Received, Errno> {
        let before = Instant::now();
        let received = self.device.receive(&mut self.buffer)?;
        if let Received::Request(length) = received {
            work.begin();
            self.company.note_wait(before.elapsed());
            self.serve(length, work);
            work.end();
        }
        Ok(received)
    }

    fn serve(&mut self, length: usize, work: &Work) {
        let Self { device, replier, actor, company, answer, view, memory, pool, .. } = self;
        let bytes = &self.buffer[..length];
        // A request that cannot be read gets no answer worth having: the kernel is at fault.
        let Ok(frame) = Frame::joined(bytes) else { return };
        memory.count_request(frame.opcode());
        let Ok(request) = frame.request() else {
            answer.fail(Errno::INVAL.raw_os_error());
            return device.reply(frame.unique(), answer);
        };
        work.note_caller(request.caller.pid);
        company.keep(request.caller.pid, &request.operation, work);
        if view.is_slow(&request) {
            pool.submit(Job { bytes: bytes.to_vec(), replier: Arc::clone(replier) });
        } else if view.serve(actor, replier, &request, answer) == Outcome::Answered {
            device.reply(request.unique, answer);
        }
    }
}
