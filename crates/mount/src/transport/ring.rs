//! Requests over io_uring: a queue for each processor, answered on the processor that asks.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thruway_fuse::{Answer, Frame, Operation};
use thruway_sys::fuse_ring::{Arrival, Bell, FuseRing, Woken};

use crate::actor::{Actor, errno};
use crate::inodes::lock;
use crate::memory::Memory;
use crate::schedule::reader_activity::{Escort, IN_VAIN_MAX, INTERVAL, Watch, Work, longer};
use crate::transport::pool::{Job, Pool};
use crate::transport::reply::{Outcome, Replier};
use crate::view::View;

/// Requests that a queue has room for at a time; more wait in the kernel.
const DEPTH: usize = 64;
/// The same for a processor that we do not run on.
const SPARE_DEPTH: usize = 8;
/// What all requests of a queue together may carry, bytes.
const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// The queues that one thread serves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Where it runs, if that is not left to the kernel.
    processor: Option<usize>,
    /// Numbers and depths.
    queues: Vec<(u16, usize)>,
}

/// A share for each processor that we may run on, together all queues that the kernel has.
pub(crate) fn shares(payload_bytes_max: usize) -> Result<Vec<Share>, Errno> {
    let allowed = sched_getaffinity(None)?;
    let is_allowed = |processor: usize| processor < CpuSet::MAX_CPU && allowed.is_set(processor);
    Ok(share_out(processors()?, is_allowed, payload_bytes_max))
}

fn share_out(
    processors: u16,
    is_allowed: impl Fn(usize) -> bool,
    payload_bytes_max: usize,
) -> Vec<Share> {
    let depth = (PAYLOAD_BYTES_MAX / payload_bytes_max.max(1)).clamp(SPARE_DEPTH, DEPTH);
    let (ours, spare): (Vec<_>, Vec<_>) =
        (0..processors).partition(|&number| is_allowed(usize::from(number)));
    let mut shares: Vec<_> = ours
        .into_iter()
        .map(|number| Share { processor: Some(number.into()), queues: vec![(number, depth)] })
        .collect();
    let spare = spare.into_iter().map(|number| (number, SPARE_DEPTH));
    match shares.first_mut() {
        Some(first) => first.queues.extend(spare),
        None => shares.push(Share { processor: None, queues: spare.collect() }),
    }
    shares
}

/// How many processors this kernel can ever have: so many queues it wants.
fn processors() -> Result<u16, Errno> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    count(list.map_err(|error| errno(&error))?.trim()).ok_or(Errno::INVAL)
}

/// How many numbers a list such as `0-3,8` has.
fn count(list: &str) -> Option<u16> {
    list.split(',').try_fold(0, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

/// Watches those who serve, for ever.
pub(crate) fn watch(escort: &Escort, works: Vec<Arc<Work>>) -> Result<(), Errno> {
    escort.introduce()?;
    let mut watches: Vec<_> = works.into_iter().map(Watch::new).collect();
    loop {
        escort.sleep(&watches);
        watches.iter_mut().for_each(Watch::look_away);
        watch_until_nothing_happens(escort, &mut watches);
        watches.iter().for_each(Watch::rest);
        escort.stay_behind();
    }
}

fn watch_until_nothing_happens(escort: &Escort, watches: &mut [Watch]) {
    let (mut interval, mut in_vain) = (INTERVAL, 0);
    while in_vain < IN_VAIN_MAX {
        escort.wait(interval);
        let mut has_moved = false;
        for watch in &mut *watches {
            // A request that the kernel has put into a ring has also called for its thread.
            has_moved |= watch.look(false).has_moved;
        }
        in_vain = if has_moved { 0 } else { in_vain + 1 };
        interval = if watches.iter().any(Watch::is_courteous) {
            INTERVAL
        } else {
            escort.stay_behind();
            longer(interval)
        };
    }
}

/// Answers of other threads on their way to the one that serves the queue.
#[derive(Debug)]
struct Mailbox {
    bell: Bell,
    answers: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Replier for Mailbox {
    fn reply(&self, unique: u64, answer: &mut Answer) {
        lock(&self.answers).push((unique, answer.seal(unique).to_vec()));
        self.bell.ring();
    }
}

/// Serves a share of the queues.
#[derive(Debug)]
pub(crate) struct Server<'a> {
    ring: FuseRing,
    /// Where this thread runs, if it may run nowhere else.
    processor: Option<usize>,
    work: Arc<Work>,
    mailbox: Arc<Mailbox>,
    replier: Arc<dyn Replier>,
    /// What is answered later, by the request's number.
    pending: HashMap<u64, Arrival>,
    /// Most requests that may wait for a lock: the one that unlocks must find room.
    pending_locks_max: usize,
    view: &'a View,
    memory: &'a Memory,
    pool: &'a Arc<Pool>,
}

impl<'a> Server<'a> {
    /// For the thread that is to serve.
    pub(crate) fn new(
        device: OwnedFd,
        share: &Share,
        payload_bytes_max: usize,
        work: Arc<Work>,
        (view, memory, pool): (&'a View, &'a Memory, &'a Arc<Pool>),
    ) -> Result<Self, Errno> {
        if let Some(processor) = share.processor {
            let mut here = CpuSet::new();
            here.set(processor);
            // One that has been taken away meanwhile asks for nothing either.
            let _ = sched_setaffinity(None, &here);
        }
        let ring = FuseRing::new(device, &share.queues, payload_bytes_max);
        let ring = ring.map_err(|error| errno(&error))?;
        let bell = ring.bell().map_err(|error| errno(&error))?;
        let mailbox = Arc::new(Mailbox { bell, answers: Mutex::default() });
        let depth = share.queues.iter().map(|(_, depth)| *depth).min().unwrap_or(0);
        Ok(Self {
            ring,
            processor: share.processor,
            work,
            replier: Arc::clone(&mailbox) as _,
            mailbox,
            pending: HashMap::new(),
            pending_locks_max: depth / 2,
            view,
            memory,
            pool,
        })
    }

    /// Answers requests until the mount is gone.
    pub(crate) fn run(mut self) -> Result<(), Errno> {
        let mut actor = Actor::new()?;
        let mut answer = Answer::default();
        self.work.courtesy().introduce()?;
        let mut arrivals = Vec::new();
        loop {
            let woken = self.ring.wait(&mut arrivals).map_err(|error| errno(&error))?;
            for arrival in arrivals.drain(..) {
                self.work.begin();
                self.invite();
                self.serve(&mut actor, arrival, &mut answer)?;
                self.work.end();
            }
            match woken {
                Woken::Ended => {
                    self.work.leave();
                    return Ok(());
                }
                Woken::Called => self.post()?,
                Woken::Served => {}
            }
        }
    }

    /// Whoever watches shall do so from here, while this thread makes room for the program.
    fn invite(&self) {
        if let Some(processor) = self.processor
            && self.work.courtesy().is_shown()
        {
            self.work.invite(processor);
        }
    }

    fn serve(
        &mut self,
        actor: &mut Actor,
        arrival: Arrival,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let (head, argument, payload) = self.ring.parts(&arrival);
        let frame = Frame::split(head, argument, payload).map_err(|_| Errno::PROTO)?;
        self.memory.count_request(frame.opcode());
        let unique = frame.unique();
        let outcome = match frame.request() {
            Err(_) => refuse(answer, Errno::INVAL),
            Ok(request) if self.view.is_slow(&request) => {
                let replier = Arc::clone(&self.replier);
                self.pool.submit(Job { bytes: frame.to_joined(), replier });
                Outcome::Later
            }
            Ok(request)
                if matches!(request.operation, Operation::SetLock { wait: true, .. })
                    && self.pending.len() >= self.pending_locks_max =>
            {
                refuse(answer, Errno::NOLCK)
            }
            Ok(request) => self.view.serve(actor, &self.replier, &request, answer),
        };
        if outcome == Outcome::Later {
            self.pending.insert(unique, arrival);
            return Ok(());
        }
        self.answer(arrival, answer.seal(unique))
    }

    /// Sends off what other threads have answered.
    fn post(&mut self) -> Result<(), Errno> {
        let answers = std::mem::take(&mut *lock(&self.mailbox.answers));
        answers.into_iter().try_for_each(|(unique, answer)| match self.pending.remove(&unique) {
            Some(arrival) => self.answer(arrival, &answer),
            None => Ok(()),
        })
    }

    fn answer(&mut self, arrival: Arrival, answer: &[u8]) -> Result<(), Errno> {
        self.ring.answer(arrival, answer).map_err(|error| errno(&error))
    }
}

fn refuse(answer: &mut Answer, errno: Errno) -> Outcome {
    answer.fail(errno.raw_os_error());
    Outcome::Answered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
    }

    #[test]
    fn every_queue_is_served_once_and_where_we_may_run() {
        let share = |processor, queues: &[(u16, usize)]| Share { processor, queues: queues.into() };
        assert_eq!(
            share_out(3, |processor| processor != 1, 4096),
            [share(Some(0), &[(0, DEPTH), (1, SPARE_DEPTH)]), share(Some(2), &[(2, DEPTH)])]
        );
        assert_eq!(share_out(1, |_| false, 1 << 20), [share(None, &[(0, SPARE_DEPTH)])]);
        assert_eq!(share_out(1, |_| true, 1 << 20), [share(Some(0), &[(0, 16)])]);
    }
}
