//! Serves requests over io_uring, with a queue for each CPU that is served on the CPU of the caller.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thruway_fuse::{Frame, Operation, Reply, Request};
use thruway_sys::fuse_ring::{Arrival, Bell, FuseRing, WakeReason};

use super::dispatch::{Dispatcher, Services};
use super::reply::{Outcome, ReplySender};
use crate::actor::errno;
use crate::inodes::lock;
use crate::schedule::reader_activity::{
    Activity, Monitor, MonitorThread, QUIET_SAMPLES_MAX, SAMPLE_INTERVAL, next_interval,
};

/// The number of slots in a queue. Further requests wait in the kernel.
const DEPTH: usize = 64;
/// The number of slots in the queue of a CPU that this process may not use.
const SPARE_DEPTH: usize = 8;
/// The maximum number of bytes in the payloads of a queue.
const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// The queues that a thread serves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueueShare {
    /// The CPU that the thread is pinned to, if any.
    processor: Option<usize>,
    /// The numbers and depths of the queues.
    queues: Vec<(u16, usize)>,
}

/// Returns a share for each CPU that this process may use. Together, the shares cover all queues of the kernel.
pub(crate) fn shares(payload_bytes_max: usize) -> Result<Vec<QueueShare>, Errno> {
    let allowed = sched_getaffinity(None)?;
    let is_allowed = |processor: usize| processor < CpuSet::MAX_CPU && allowed.is_set(processor);
    Ok(share_out(processors()?, is_allowed, payload_bytes_max))
}

fn share_out(
    processors: u16,
    is_allowed: impl Fn(usize) -> bool,
    payload_bytes_max: usize,
) -> Vec<QueueShare> {
    let depth = (PAYLOAD_BYTES_MAX / payload_bytes_max.max(1)).clamp(SPARE_DEPTH, DEPTH);
    let (ours, spare): (Vec<_>, Vec<_>) =
        (0..processors).partition(|&number| is_allowed(usize::from(number)));
    let mut shares: Vec<_> = ours
        .into_iter()
        .map(|number| QueueShare { processor: Some(number.into()), queues: vec![(number, depth)] })
        .collect();
    let spare = spare.into_iter().map(|number| (number, SPARE_DEPTH));
    match shares.first_mut() {
        Some(first) => first.queues.extend(spare),
        None => shares.push(QueueShare { processor: None, queues: spare.collect() }),
    }
    shares
}

/// Returns the number of CPUs that this kernel can ever have, since the kernel requires a queue for each.
fn processors() -> Result<u16, Errno> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    count(list.map_err(|error| errno(&error))?.trim()).ok_or(Errno::INVAL)
}

/// Returns the number of CPUs in a list such as `0-3,8`.
fn count(list: &str) -> Option<u16> {
    list.split(',').try_fold(0, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

/// Monitors the threads that serve queues, and never returns without an error.
pub(crate) fn monitor(
    monitor_thread: &MonitorThread,
    activities: Vec<Arc<Activity>>,
) -> Result<(), Errno> {
    monitor_thread.register()?;
    let mut monitors: Vec<_> = activities.into_iter().map(Monitor::new).collect();
    loop {
        monitor_thread.sleep(&monitors);
        monitors.iter_mut().for_each(Monitor::reset);
        monitor_until_quiet(monitor_thread, &mut monitors);
        monitors.iter().for_each(Monitor::clear_idle);
        monitor_thread.unpin();
    }
}

fn monitor_until_quiet(monitor_thread: &MonitorThread, monitors: &mut [Monitor]) {
    let (mut interval, mut quiet_samples) = (SAMPLE_INTERVAL, 0);
    while quiet_samples < QUIET_SAMPLES_MAX {
        monitor_thread.wait(interval);
        let mut has_progressed = false;
        for monitor in &mut *monitors {
            // The kernel itself wakes the thread of a ring, so no request stays unread.
            has_progressed |= monitor.sample(false).has_progressed;
        }
        quiet_samples = if has_progressed { 0 } else { quiet_samples + 1 };
        interval = if monitors.iter().any(Monitor::is_idle_set) {
            SAMPLE_INTERVAL
        } else {
            monitor_thread.unpin();
            next_interval(interval)
        };
    }
}

/// Passes replies of other threads to the thread that serves the queue.
#[derive(Debug)]
struct Mailbox {
    bell: Bell,
    replies: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl ReplySender for Mailbox {
    fn send(&self, unique: u64, reply: &mut Reply) {
        lock(&self.replies).push((unique, reply.seal(unique).to_vec()));
        self.bell.ring();
    }
}

/// Requests whose replies are sent later, by their ids. Each request occupies its slot until then.
#[derive(Debug)]
struct PendingRequests<T> {
    requests: HashMap<u64, (T, bool)>,
    /// The number of requests that wait for a lock.
    locks: usize,
    /// The maximum number of requests that wait for a lock, since a request that unlocks must find a slot.
    locks_max: usize,
}

impl<T> PendingRequests<T> {
    fn new(depth: usize) -> Self {
        Self { requests: HashMap::new(), locks: 0, locks_max: depth / 2 }
    }

    fn admit(&self, waits_for_lock: bool) -> Result<(), Errno> {
        if waits_for_lock && self.locks >= self.locks_max { Err(Errno::NOLCK) } else { Ok(()) }
    }

    fn insert(&mut self, unique: u64, request: T, waits_for_lock: bool) {
        self.locks += usize::from(waits_for_lock);
        self.requests.insert(unique, (request, waits_for_lock));
    }

    fn remove(&mut self, unique: u64) -> Option<T> {
        let (request, waits_for_lock) = self.requests.remove(&unique)?;
        self.locks -= usize::from(waits_for_lock);
        Some(request)
    }
}

/// Serves the queues of a share.
#[derive(Debug)]
pub(crate) struct QueueServer {
    ring: FuseRing,
    /// The CPU that this thread is pinned to, if any.
    processor: Option<usize>,
    activity: Arc<Activity>,
    mailbox: Arc<Mailbox>,
    sender: Arc<dyn ReplySender>,
    pending: PendingRequests<Arrival>,
    dispatcher: Dispatcher,
}

impl QueueServer {
    /// Creates the server of the calling thread.
    pub(crate) fn new(
        device: OwnedFd,
        share: &QueueShare,
        payload_bytes_max: usize,
        activity: Arc<Activity>,
        services: Services,
    ) -> Result<Self, Errno> {
        if let Some(processor) = share.processor {
            let mut here = CpuSet::new();
            here.set(processor);
            // A CPU that was removed meanwhile sends no requests either.
            let _ = sched_setaffinity(None, &here);
        }
        let ring = FuseRing::new(device, &share.queues, payload_bytes_max);
        let ring = ring.map_err(|error| errno(&error))?;
        let bell = ring.bell().map_err(|error| errno(&error))?;
        let mailbox = Arc::new(Mailbox { bell, replies: Mutex::default() });
        let depth = share.queues.iter().map(|(_, depth)| *depth).min().unwrap_or(0);
        Ok(Self {
            ring,
            processor: share.processor,
            activity,
            sender: Arc::clone(&mailbox) as _,
            mailbox,
            pending: PendingRequests::new(depth),
            dispatcher: Dispatcher::new(services)?,
        })
    }

    /// Serves requests until the mount is gone.
    pub(crate) fn run(mut self) -> Result<(), Errno> {
        self.activity.sched_idle().register()?;
        let mut arrivals = Vec::new();
        loop {
            let reason = self.ring.wait(&mut arrivals).map_err(|error| errno(&error))?;
            for arrival in arrivals.drain(..) {
                self.activity.begin_request();
                self.move_monitor();
                self.serve(arrival)?;
                self.activity.end_request();
            }
            match reason {
                WakeReason::Unmounted => {
                    self.activity.retire();
                    return Ok(());
                }
                WakeReason::Bell => self.send_mailbox()?,
                WakeReason::Requests => {}
            }
        }
    }

    /// Moves the monitor to the CPU of this thread, as `SCHED_IDLE` requires.
    fn move_monitor(&self) {
        if let Some(processor) = self.processor
            && self.activity.sched_idle().is_set()
        {
            self.activity.move_monitor(processor);
        }
    }

    fn serve(&mut self, arrival: Arrival) -> Result<(), Errno> {
        let Self { ring, sender, pending, dispatcher, .. } = self;
        let (head, argument, payload) = ring.parts(&arrival);
        let frame = Frame::from_parts(head, argument, payload).map_err(|_| Errno::PROTO)?;
        let unique = frame.unique();
        let mut waits = false;
        let outcome = dispatcher.dispatch(&frame, sender, |request| {
            waits = waits_for_lock(request);
            pending.admit(waits)
        });
        if outcome == Outcome::Later {
            pending.insert(unique, arrival, waits);
            return Ok(());
        }
        // Only a reply returns the slot to the kernel.
        ring.reply(arrival, dispatcher.reply().seal(unique)).map_err(|error| errno(&error))
    }

    /// Sends the replies of other threads.
    fn send_mailbox(&mut self) -> Result<(), Errno> {
        let replies = std::mem::take(&mut *lock(&self.mailbox.replies));
        replies.into_iter().try_for_each(|(unique, reply)| match self.pending.remove(unique) {
            Some(arrival) => self.ring.reply(arrival, &reply).map_err(|error| errno(&error)),
            None => Ok(()),
        })
    }
}

fn waits_for_lock(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::SetLock { wait: true, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
    }

    #[test]
    fn every_queue_is_served_once_and_on_an_allowed_cpu() {
        let share =
            |processor, queues: &[(u16, usize)]| QueueShare { processor, queues: queues.into() };
        assert_eq!(
            share_out(3, |processor| processor != 1, 4096),
            [share(Some(0), &[(0, DEPTH), (1, SPARE_DEPTH)]), share(Some(2), &[(2, DEPTH)])]
        );
        assert_eq!(share_out(1, |_| false, 1 << 20), [share(None, &[(0, SPARE_DEPTH)])]);
        assert_eq!(share_out(1, |_| true, 1 << 20), [share(Some(0), &[(0, 16)])]);
    }

    #[test]
    fn requests_that_wait_for_a_lock_leave_slots_for_those_that_unlock() {
        let mut pending = PendingRequests::new(4);
        // Slow requests end without further requests, so their number need not be limited.
        (0..3).for_each(|unique| pending.insert(unique, (), false));
        for unique in [3, 4] {
            assert_eq!(pending.admit(true), Ok(()));
            pending.insert(unique, (), true);
        }
        assert_eq!((pending.admit(true), pending.admit(false)), (Err(Errno::NOLCK), Ok(())));
        assert_eq!((pending.remove(4), pending.remove(4)), (Some(()), None));
        assert_eq!(pending.admit(true), Ok(()));
    }
}
