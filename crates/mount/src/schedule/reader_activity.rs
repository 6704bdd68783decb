//! Counters of a reader's activity, and the monitor that samples them from another thread.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::schedule::cpu_pin::CpuPin;
use crate::schedule::idle_policy::{IdlePolicy, Sample, SchedIdle};

/// The time between two samples, short because a reader with `SCHED_IDLE` may soon need help.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(1);
/// The maximum time between samples, reached after samples without a result, since each sample takes a CPU from another
/// task on a busy machine.
const SAMPLE_INTERVAL_MAX: Duration = Duration::from_millis(4);
/// After this many samples without a request, the monitor sleeps.
pub(crate) const QUIET_SAMPLES_MAX: u32 = 20;

/// The number of caller changes in an interval from which on several programs count as active.
const CALLER_CHANGES_MANY: u64 = 4;

/// Returns the interval after a sample without a result.
pub(crate) fn next_interval(interval: Duration) -> Duration {
    (2 * interval).clamp(SAMPLE_INTERVAL, SAMPLE_INTERVAL_MAX)
}

/// The activity of a reader, in counters that its monitor samples.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Incremented when a request begins and when it ends, so the value is odd during a request.
    sequence: AtomicU64,
    /// The process that sent the last request, and the number of times that the sender changed.
    caller: AtomicU32,
    caller_changes: AtomicU64,
    sched_idle: SchedIdle,
    monitor_thread: Arc<MonitorThread>,
}

impl Activity {
    /// Creates the counters of a reader. `monitor_thread` monitors the reader once the thread has registered.
    pub(crate) fn new(monitor_thread: &Arc<MonitorThread>) -> Arc<Self> {
        Arc::new(Self { monitor_thread: Arc::clone(monitor_thread), ..Self::default() })
    }

    /// Returns the reader's scheduling policy.
    pub(crate) fn sched_idle(&self) -> &SchedIdle {
        &self.sched_idle
    }

    /// Notes the start of a request.
    pub(crate) fn begin_request(&self) {
        self.sequence.fetch_add(1, SeqCst);
        self.monitor_thread.wake();
    }

    /// Notes the process that sent the request.
    pub(crate) fn note_caller(&self, pid: u32) {
        if pid != 0 && self.caller.load(SeqCst) != pid {
            self.caller.store(pid, SeqCst);
            self.caller_changes.fetch_add(1, SeqCst);
        }
    }

    /// Moves the monitor to this CPU, where the reader has `SCHED_IDLE`.
    pub(crate) fn move_monitor(&self, processor: usize) {
        self.monitor_thread.follow(processor);
    }

    /// Notes the end of a request.
    pub(crate) fn end_request(&self) {
        self.sequence.fetch_add(1, SeqCst);
    }

    /// Marks the reader as ended, and wakes the monitor so that it notices.
    pub(crate) fn retire(&self) {
        self.sched_idle.retire();
        self.begin_request();
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            sequence: self.sequence.load(SeqCst),
            caller_changes: self.caller_changes.load(SeqCst),
        }
    }
}

/// The thread that monitors readers. Waking a CPU makes the scheduler migrate freshly woken tasks to it, so the monitor
/// runs on the CPU that it monitors.
#[derive(Debug, Default)]
pub(crate) struct MonitorThread {
    thread: OnceLock<Thread>,
    cpu_pin: CpuPin,
    /// Whether a sample was taken since the last move.
    may_follow: AtomicBool,
    is_asleep: AtomicBool,
}

impl MonitorThread {
    /// Registers the calling thread.
    pub(crate) fn register(&self) -> Result<(), Errno> {
        self.thread.get_or_init(thread::current);
        self.cpu_pin.register()
    }

    /// Waits until the next sample is due.
    pub(crate) fn wait(&self, interval: Duration) {
        thread::sleep(interval);
        self.may_follow.store(true, Relaxed);
    }

    /// Sleeps until a monitored reader receives a request. The monitor does not sleep while a reader serves a request:
    /// the request may take long, and its reader could not wake the monitor.
    pub(crate) fn sleep(&self, monitors: &[Monitor]) {
        let is_any_busy = || monitors.iter().any(|monitor| monitor.activity.snapshot().is_busy());
        self.is_asleep.store(true, SeqCst);
        while !is_any_busy() && self.is_asleep() {
            thread::park();
        }
        self.is_asleep.store(false, SeqCst);
    }

    /// Whether the monitor sleeps until the next request.
    pub(crate) fn is_asleep(&self) -> bool {
        self.is_asleep.load(SeqCst)
    }

    /// Lets the scheduler place the monitor.
    pub(crate) fn unpin(&self) {
        self.cpu_pin.unpin();
    }

    fn follow(&self, processor: usize) {
        if self.cpu_pin.processor() != Some(processor) && self.may_follow.swap(false, Relaxed) {
            self.cpu_pin.pin(processor);
        }
    }

    fn wake(&self) {
        if self.is_asleep()
            && self.is_asleep.swap(false, SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

/// Samples a reader, and applies the idle policy to it.
#[derive(Debug)]
pub(crate) struct Monitor {
    activity: Arc<Activity>,
    last: Snapshot,
    policy: IdlePolicy,
}

impl Monitor {
    pub(crate) fn new(activity: Arc<Activity>) -> Self {
        Self { last: activity.snapshot(), activity, policy: IdlePolicy::new() }
    }

    /// Starts the interval of the next sample.
    pub(crate) fn reset(&mut self) {
        self.last = self.activity.snapshot();
    }

    /// Returns the reader's activity since the last sample. `has_unread` says whether a request waits unread.
    pub(crate) fn sample(&mut self, has_unread: bool) -> Sample {
        let last = std::mem::replace(&mut self.last, self.activity.snapshot());
        let sample = self.last.since(last, has_unread);
        self.policy.update(&self.activity.sched_idle, sample, Instant::now());
        sample
    }

    /// Whether the reader has `SCHED_IDLE`.
    pub(crate) fn is_idle_set(&self) -> bool {
        self.activity.sched_idle.is_set()
    }

    /// Restores the reader's default policy.
    pub(crate) fn clear_idle(&self) {
        self.activity.sched_idle.set(false);
    }
}

/// The counters of a reader at some moment.
#[derive(Debug, Clone, Copy)]
struct Snapshot {
    sequence: u64,
    caller_changes: u64,
}

impl Snapshot {
    fn is_busy(self) -> bool {
        !self.sequence.is_multiple_of(2)
    }

    /// Returns the activity since the last snapshot.
    fn since(self, last: Self, has_unread: bool) -> Sample {
        Sample {
            has_progressed: self.sequence != last.sequence,
            is_busy: self.is_busy(),
            has_unread,
            has_many_callers: self.caller_changes - last.caller_changes >= CALLER_CHANGES_MANY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monitor_does_not_sleep_while_a_reader_is_busy() {
        let monitor_thread = Arc::default();
        let activities = [Activity::new(&monitor_thread), Activity::new(&monitor_thread)];
        activities[1].begin_request();
        monitor_thread.sleep(&activities.map(Monitor::new));
        assert!(!monitor_thread.is_asleep());
    }

    #[test]
    fn each_monitored_reader_wakes_the_monitor() {
        for index in 0..2 {
            let monitor_thread = Arc::<MonitorThread>::default();
            let activities = [Activity::new(&monitor_thread), Activity::new(&monitor_thread)];
            let monitors = activities.clone().map(Monitor::new);
            thread::scope(|scope| {
                let sleeper = scope.spawn(|| {
                    monitor_thread.register().unwrap();
                    monitor_thread.sleep(&monitors);
                });
                while !monitor_thread.is_asleep() {
                    thread::yield_now();
                }
                activities[index].begin_request();
                sleeper.join().unwrap();
            });
            assert!(!monitor_thread.is_asleep());
        }
    }

    #[test]
    fn the_monitor_moves_once_a_sample() {
        let monitor_thread = Arc::<MonitorThread>::default();
        monitor_thread.register().unwrap();
        let (activity, here) = (Activity::new(&monitor_thread), rustix::thread::sched_getcpu());
        activity.move_monitor(here);
        assert_eq!(monitor_thread.cpu_pin.processor(), None, "no sample was taken yet");
        monitor_thread.wait(Duration::ZERO);
        activity.move_monitor(here);
        assert_eq!(monitor_thread.cpu_pin.processor(), Some(here));
        monitor_thread.unpin();
        activity.move_monitor(here);
        assert_eq!(monitor_thread.cpu_pin.processor(), None);
    }
}
