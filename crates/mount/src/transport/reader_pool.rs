//! Coordinates the readers of `/dev/fuse`: a leader, which waits for requests, and followers.
//!
//! If several readers waited, the kernel would wake the reader that had waited longest. A program that sends its
//! requests one after the other, as most do, would then be served from another CPU each time. So followers sample
//! whether a backlog of unread requests forms, and help until it is gone. Each follower monitors its predecessor, and
//! sleeps while the predecessor is idle.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::schedule::reader_activity::{
    Activity, Monitor, MonitorThread, QUIET_SAMPLES_MAX, SAMPLE_INTERVAL, next_interval,
};

/// The time between two samples of a follower that has just served [`BACKLOG`] requests.
const BACKLOG_INTERVAL: Duration = Duration::from_micros(50);
const BACKLOG: usize = 8;

/// A single unread request may be on its way to the predecessor. After this many such samples in succession, requests
/// arrive faster than the predecessor can serve them.
const SAMPLES_MIN: u32 = 4;

/// The position of a reader among the leader and the followers.
#[derive(Debug)]
pub(crate) struct ReaderSlot {
    /// Samples the preceding reader. The leader has no predecessor.
    predecessor: Option<Monitor>,
    /// The thread of this reader in its role as a monitor.
    monitor_thread: Arc<MonitorThread>,
    activity: Arc<Activity>,
}

/// Creates the slots of `count` readers, the leader first.
pub(crate) fn reader_slots(count: usize) -> Vec<ReaderSlot> {
    let monitor_threads: Vec<Arc<MonitorThread>> = (0..=count).map(|_| Arc::default()).collect();
    let mut predecessor = None;
    let slot = |pair: &[Arc<MonitorThread>]| {
        let activity = Activity::new(&pair[1]);
        let predecessor = predecessor.replace(Arc::clone(&activity)).map(Monitor::new);
        ReaderSlot { predecessor, monitor_thread: Arc::clone(&pair[0]), activity }
    };
    monitor_threads.windows(2).map(slot).collect()
}

impl ReaderSlot {
    /// Whether the reader waits for requests.
    pub(crate) fn is_leader(&self) -> bool {
        self.predecessor.is_none()
    }

    /// Registers the calling thread as the reader of this slot.
    pub(crate) fn register(&self) -> Result<(), Errno> {
        if self.is_leader() {
            return self.activity.sched_idle().register();
        }
        self.activity.sched_idle().cpu_pin().register()?;
        self.monitor_thread.register()
    }

    /// Returns the activity of the reader.
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Waits until there is a backlog: requests that the preceding reader leaves unread. `served` is the number of
    /// requests that this reader has served since its last wait. Returns at once for the leader, whose read blocks.
    pub(crate) fn wait_for_backlog(
        &mut self,
        device: impl AsFd,
        served: usize,
    ) -> Result<(), Errno> {
        let Self { predecessor: Some(predecessor), monitor_thread, .. } = self else {
            return Ok(());
        };
        let (mut interval, mut samples_left) =
            if served < BACKLOG { (SAMPLE_INTERVAL, SAMPLES_MIN) } else { (BACKLOG_INTERVAL, 1) };
        let mut quiet_samples = 0;
        predecessor.reset();
        loop {
            monitor_thread.wait(interval);
            let sample = predecessor.sample(has_unread(&device)?);
            let is_idle_set = predecessor.is_idle_set();
            if !is_idle_set {
                monitor_thread.unpin();
            }
            if sample.has_unread && !is_idle_set {
                (interval, samples_left) = (interval.min(SAMPLE_INTERVAL), samples_left - 1);
                let is_stuck = sample.is_busy && !sample.has_progressed;
                if samples_left == 0 || is_stuck {
                    return Ok(());
                }
                continue;
            }
            interval = if is_idle_set { SAMPLE_INTERVAL } else { next_interval(interval) };
            samples_left = SAMPLES_MIN;
            quiet_samples = if sample.has_progressed { 0 } else { quiet_samples + 1 };
            if quiet_samples >= QUIET_SAMPLES_MAX {
                predecessor.clear_idle();
                monitor_thread.unpin();
                monitor_thread.sleep(std::slice::from_ref(predecessor));
                quiet_samples = 0;
            }
        }
    }
}

/// Whether there are unread requests, or the connection is gone.
fn has_unread(device: impl AsFd) -> Result<bool, Errno> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&device, PollFlags::IN)], Some(&at_once)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_follower_helps_with_a_backlog_and_sleeps_without_requests() {
        let (mut requests, mut sender) = std::io::pipe().unwrap();
        let mut slots = reader_slots(2).into_iter();
        let (leader, mut follower) = (slots.next().unwrap(), slots.next().unwrap());
        let monitor = Arc::clone(&follower.monitor_thread);
        let (came, coming) = mpsc::channel();
        let helper = thread::spawn(move || {
            follower.register().unwrap();
            for _ in 0..2 {
                follower.wait_for_backlog(&requests, 0).unwrap();
                requests.read_exact(&mut [0]).unwrap();
                came.send(()).unwrap();
            }
        });
        sender.write_all(&[1]).unwrap();
        coming.recv().unwrap();
        while !monitor.is_asleep() {
            thread::sleep(SAMPLE_INTERVAL);
        }
        sender.write_all(&[1]).unwrap();
        assert!(monitor.is_asleep());
        leader.activity().begin_request();
        coming.recv().unwrap();
        helper.join().unwrap();
    }

    #[test]
    fn the_follower_of_a_retired_reader_takes_over_at_once() {
        let (requests, sender) = std::io::pipe().unwrap();
        drop(sender);
        let mut slots = reader_slots(2).into_iter();
        let (leader, mut follower) = (slots.next().unwrap(), slots.next().unwrap());
        leader.register().unwrap();
        leader.activity().sched_idle().set(true);
        leader.activity().retire();
        follower.wait_for_backlog(&requests, 0).unwrap();
    }
}
