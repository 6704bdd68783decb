//! Runs a reader under `SCHED_IDLE`, so that its caller is not migrated.
//!
//! The reply wakes the caller while the reader still runs. The scheduler migrates a woken task from a busy CPU to an
//! idle one, and waking that CPU takes far longer than the whole request. A CPU that runs only `SCHED_IDLE` tasks
//! counts as idle. So a reader with this policy, on the CPU of its caller, keeps the caller there.
//!
//! Under `SCHED_IDLE` a reader gets next to no CPU time while other tasks want to run. So a monitor clears the policy
//! as soon as a request is late, or when several programs send requests. Without requests the reader has the default
//! policy, and the monitor sleeps.

use std::num::NonZero;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::io::Errno;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use thruway_sys::threads::{has_usual_policy, set_idle_policy};

use crate::schedule::cpu_pin::CpuPin;

/// The time that a reader keeps the default policy after a late request, initially and at most.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_millis(640);
/// If the policy held for this many backoffs, it was not set too early, so the next backoff is the shortest again.
const LASTING_BACKOFFS: u32 = 8;

/// The `SCHED_IDLE` policy of one reader.
#[derive(Debug, Default)]
pub(crate) struct SchedIdle {
    /// Keeps the reader on the CPU of its caller.
    cpu_pin: CpuPin,
    can_reset: AtomicBool,
    is_set: AtomicBool,
    has_retired: AtomicBool,
}

impl SchedIdle {
    /// Registers the calling thread. If a thread could not leave `SCHED_IDLE` again, the policy is never set.
    pub(crate) fn register(&self) -> Result<(), Errno> {
        self.cpu_pin.register()?;
        self.can_reset.store(can_reset(), SeqCst);
        Ok(())
    }

    pub(crate) fn cpu_pin(&self) -> &CpuPin {
        &self.cpu_pin
    }

    /// Whether the policy is set, and the thread stays with its caller.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(SeqCst) && !self.has_retired.load(SeqCst)
    }

    /// Whether the thread is runnable: it waits for a CPU or has one (state R, proc(5)).
    fn is_runnable(&self) -> bool {
        let Some(thread) = self.cpu_pin.thread() else { return false };
        let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_pid()));
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R')))
    }

    /// Marks the thread as one that serves no more requests.
    pub(crate) fn retire(&self) {
        self.has_retired.store(true, SeqCst);
    }

    /// Sets or clears the policy. Only the monitor may call this function.
    pub(crate) fn set(&self, is_set: bool) {
        let Some(thread) = self.cpu_pin.thread() else { return };
        let is_no_change = self.is_set() == is_set || !self.can_reset.load(SeqCst);
        if is_no_change || self.has_retired.load(SeqCst) || set_idle_policy(thread, is_set).is_err()
        {
            return;
        }
        self.is_set.store(is_set, SeqCst);
        if !is_set {
            self.cpu_pin.unpin();
        }
    }
}

/// The activity of a reader in an interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Whether the reader began or ended a request.
    pub(crate) has_progressed: bool,
    /// Whether the reader is serving a request.
    pub(crate) is_busy: bool,
    /// Whether a request waits unread.
    pub(crate) has_unread: bool,
    /// Whether several programs send requests.
    pub(crate) has_many_callers: bool,
}

/// Decides when a reader has `SCHED_IDLE`.
#[derive(Debug)]
pub(crate) struct IdlePolicy {
    backoff: Duration,
    not_before: Instant,
    /// Whether the reader was late at the last sample.
    was_late: bool,
    processors: usize,
}

impl IdlePolicy {
    pub(crate) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self { backoff: BACKOFF_MIN, not_before: Instant::now(), was_late: false, processors }
    }

    /// Sets or clears the policy after a sample.
    pub(crate) fn update(&mut self, sched_idle: &SchedIdle, sample: Sample, now: Instant) {
        if !sched_idle.is_set() {
            self.was_late = false;
            let is_wanted =
                sample.has_progressed && !sample.has_many_callers && now >= self.not_before;
            sched_idle.set(is_wanted && self.has_idle_cpu());
            return;
        }
        // A single sample is not enough: for some requests no program waits, and a caller with other work delays the
        // reader.
        let is_late = is_late(sched_idle, sample);
        if sample.has_many_callers || is_late && self.was_late {
            sched_idle.set(false);
            self.back_off_from(now);
        }
        self.was_late = is_late;
    }

    /// Whether a CPU is idle; otherwise the caller is not migrated anyway. The caller and the reader count as a single
    /// thread, since each waits for the other; the monitor counts as well.
    fn has_idle_cpu(&self) -> bool {
        let load = fs::read_to_string("/proc/loadavg");
        let running = load.ok().as_deref().and_then(running);
        self.processors > 1 && running.is_none_or(|running| running <= self.processors)
    }

    fn back_off_from(&mut self, now: Instant) {
        let has_lasted = now.duration_since(self.not_before) >= LASTING_BACKOFFS * self.backoff;
        self.backoff = if has_lasted { BACKOFF_MIN } else { BACKOFF_MAX.min(2 * self.backoff) };
        self.not_before = now + self.backoff;
    }
}

/// Whether a request waits only for the reader. A reader that waits for a disk is busy, not late.
fn is_late(sched_idle: &SchedIdle, sample: Sample) -> bool {
    !sample.has_progressed && (sample.has_unread || sched_idle.is_runnable())
}

/// The scheduling policy and the CPUs that a new thread takes. Threads inherit both from their parent, so a reader with
/// `SCHED_IDLE` would pass the policy on.
#[derive(Debug)]
pub(crate) struct SavedScheduling {
    allowed: Option<CpuSet>,
    is_default: bool,
}

impl SavedScheduling {
    /// Saves the scheduling of the calling thread, which must not be a reader.
    pub(crate) fn of_current_thread() -> Self {
        Self { allowed: sched_getaffinity(None).ok(), is_default: has_usual_policy() }
    }

    /// Applies the saved scheduling to the calling thread, as far as the system allows.
    pub(crate) fn restore(&self) {
        if self.is_default && !has_usual_policy() {
            let _ = set_idle_policy(gettid(), false);
        }
        if let Some(allowed) = &self.allowed {
            let _ = sched_setaffinity(None, allowed);
        }
    }
}

/// Returns the number of runnable threads: the first number of the fourth field of `/proc/loadavg` (proc(5)).
fn running(load: &str) -> Option<usize> {
    load.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

/// Whether this process may clear `SCHED_IDLE` again. A temporary thread tries it, since that thread may be unable to
/// leave the policy.
fn can_reset() -> bool {
    let try_it = || {
        has_usual_policy()
            && set_idle_policy(gettid(), true).is_ok()
            && set_idle_policy(gettid(), false).is_ok()
    };
    thread::spawn(try_it).join().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const QUIET: Sample =
        Sample { has_progressed: true, is_busy: false, has_unread: false, has_many_callers: false };
    const SHARED: Sample = Sample { has_many_callers: true, ..QUIET };
    const LATE: Sample = Sample { has_progressed: false, has_unread: true, ..QUIET };

    /// Creates a policy for a machine that always has an idle CPU.
    fn policy() -> IdlePolicy {
        IdlePolicy { processors: usize::MAX, ..IdlePolicy::new() }
    }

    #[test]
    fn runnable_threads_are_counted() {
        assert_eq!(running("0.20 0.18 0.12 3/80 11206"), Some(3));
        assert_eq!(running(""), None);
    }

    #[test]
    fn the_policy_is_not_set_where_the_caller_cannot_be_migrated() {
        with_reader(|sched_idle| {
            let mut policy = IdlePolicy { processors: 1, ..policy() };
            policy.update(sched_idle, QUIET, policy.not_before);
            assert!(!sched_idle.is_set());
        });
    }

    /// Runs `test` with a registered, sleeping thread. Skips the test where the policy could not be cleared.
    fn with_reader(test: impl FnOnce(&SchedIdle)) {
        let sched_idle = SchedIdle::default();
        let (registered, registration) = mpsc::channel();
        let (end, ending) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let sched_idle = &sched_idle;
            scope.spawn(move || {
                sched_idle.register().unwrap();
                registered.send(()).unwrap();
                let _ = ending.recv();
            });
            registration.recv().unwrap();
            if sched_idle.can_reset.load(SeqCst) {
                while sched_idle.is_runnable() {
                    thread::yield_now();
                }
                test(sched_idle);
            }
            drop(end);
        });
    }

    /// Whether the reader has policy 5, `SCHED_IDLE` (field 41, proc(5)).
    fn has_sched_idle(sched_idle: &SchedIdle) -> bool {
        let thread = sched_idle.cpu_pin.thread().unwrap().as_raw_pid();
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(38) == Some("5")
    }

    #[test]
    fn the_policy_is_set_for_one_caller_and_cleared_for_several() {
        with_reader(|sched_idle| {
            let mut policy = policy();
            let now = policy.not_before;
            policy.update(sched_idle, SHARED, now);
            assert!(!sched_idle.is_set() && !has_sched_idle(sched_idle));
            policy.update(sched_idle, QUIET, now);
            assert!(sched_idle.is_set() && has_sched_idle(sched_idle));
            policy.update(sched_idle, SHARED, now);
            assert!(!sched_idle.is_set() && !has_sched_idle(sched_idle));
        });
    }

    #[test]
    fn a_thread_started_under_the_policy_can_drop_it() {
        let saved = SavedScheduling::of_current_thread();
        let started = thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(rustix::thread::sched_getcpu());
            sched_setaffinity(None, &one).unwrap();
            set_idle_policy(gettid(), true).unwrap();
            thread::spawn(move || {
                saved.restore();
                (has_usual_policy(), sched_getaffinity(None).unwrap())
            })
            .join()
            .unwrap()
        });
        let (is_default, allowed) = started.join().unwrap();
        assert_eq!(is_default, can_reset());
        assert_eq!(allowed, sched_getaffinity(None).unwrap());
    }

    #[test]
    fn the_backoff_doubles_each_time_the_reader_is_late() {
        with_reader(|sched_idle| {
            let mut policy = policy();
            let mut now = policy.not_before;
            for backoff in [2 * BACKOFF_MIN, 4 * BACKOFF_MIN] {
                policy.update(sched_idle, QUIET, now);
                policy.update(sched_idle, LATE, now);
                policy.update(sched_idle, LATE, now);
                assert!(!has_sched_idle(sched_idle));
                policy.update(sched_idle, QUIET, now);
                assert!(!has_sched_idle(sched_idle), "{backoff:?} have not passed");
                now += backoff;
            }
            policy.update(sched_idle, QUIET, now);
            policy.update(sched_idle, LATE, now);
            policy.update(sched_idle, LATE, now + BACKOFF_MAX);
            assert_eq!(policy.backoff, BACKOFF_MIN, "the policy lasted");
        });
    }

    #[test]
    fn one_late_sample_does_not_clear_the_policy() {
        with_reader(|sched_idle| {
            let mut policy = policy();
            let now = policy.not_before;
            for sample in [QUIET, LATE, QUIET, LATE] {
                policy.update(sched_idle, sample, now);
                assert!(has_sched_idle(sched_idle));
            }
        });
    }

    #[test]
    fn a_wait_for_something_else_is_not_late_and_no_thread_has_sched_idle_at_rest() {
        with_reader(|sched_idle| {
            let mut policy = policy();
            let now = policy.not_before;
            policy.update(sched_idle, QUIET, now);
            for _ in 0..2 {
                policy.update(
                    sched_idle,
                    Sample { has_progressed: false, is_busy: true, ..QUIET },
                    now,
                );
            }
            assert!(has_sched_idle(sched_idle), "it sleeps");
            sched_idle.set(false);
            assert!(!has_sched_idle(sched_idle));
        });
    }
}
