//! How the thread that reads makes room for the program that it answers.
//!
//! The program is woken by the answer, while the thread that gave it still runs. A processor that is
//! busy is no place for it, so the kernel takes it to another one where that is idle; waking that
//! one, and soon this one again, takes far longer than the whole request. A processor that runs nothing
//! but `SCHED_IDLE` counts as idle. So a reader that has this policy and is where the program is keeps it
//! there.
//!
//! It would get next to nothing of a processor on which something else wants to run. So who stands
//! behind it watches, and takes its courtesy from it as soon as a request is late, or when several
//! programs ask at a time. While nothing happens nobody watches, and it has the usual policy.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use thruway_sys::threads::{has_usual_policy, set_idle_policy};

/// How long it has to do without its courtesy once that was taken away, at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A courtesy that lasted for so many pauses was none too early.
const LASTING: u32 = 8;

/// Of the thread that reads.
#[derive(Debug, Default)]
pub(crate) struct Courtesy {
    thread: OnceLock<Pid>,
    is_shown: AtomicBool,
    has_left: AtomicBool,
}

impl Courtesy {
    /// The calling thread is the one that reads. Where it could not come back it never steps aside.
    pub(crate) fn introduce(&self) {
        if can_come_back() {
            self.thread.get_or_init(gettid);
        }
    }

    /// Whether the reader has to stay where the program is.
    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown.load(SeqCst) && !self.has_left.load(SeqCst)
    }

    /// Whether the reader would run if it had a processor (state R, proc(5)).
    fn is_kept_waiting(&self) -> bool {
        let Some(thread) = self.thread.get() else { return false };
        let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_pid()));
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R')))
    }

    /// The reader will read no more.
    pub(crate) fn leave(&self) {
        self.has_left.store(true, SeqCst);
    }

    /// For the one thread that watches.
    pub(crate) fn show(&self, is_shown: bool) {
        let Some(thread) = self.thread.get() else { return };
        if self.is_shown() == is_shown || self.has_left.load(SeqCst) {
            return;
        }
        if set_idle_policy(*thread, is_shown).is_ok() {
            self.is_shown.store(is_shown, SeqCst);
        }
    }
}

/// What was seen of the reader in an interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// It has answered something.
    pub(crate) has_moved: bool,
    /// It answers something now.
    pub(crate) is_at_work: bool,
    /// A request waits that nobody has read.
    pub(crate) is_left_lying: bool,
    /// Several programs ask at a time.
    pub(crate) is_shared: bool,
}

/// Grants the courtesy, and takes it away.
#[derive(Debug)]
pub(crate) struct Watcher {
    pause: Duration,
    not_before: Instant,
}

impl Watcher {
    pub(crate) fn new() -> Self {
        Self { pause: PAUSE_MIN, not_before: Instant::now() }
    }

    /// What becomes of the courtesy after this look.
    pub(crate) fn judge(&mut self, courtesy: &Courtesy, look: Look, now: Instant) {
        if !courtesy.is_shown() {
            courtesy.show(look.has_moved && !look.is_shared && now >= self.not_before);
        } else if look.is_shared || is_late(courtesy, look) {
            courtesy.show(false);
            self.pause_from(now);
        }
    }

    /// Nobody asks for anything.
    pub(crate) fn rest(&self, courtesy: &Courtesy) {
        courtesy.show(false);
    }

    fn pause_from(&mut self, now: Instant) {
        let has_lasted = now.duration_since(self.not_before) >= LASTING * self.pause;
        self.pause = if has_lasted { PAUSE_MIN } else { PAUSE_MAX.min(2 * self.pause) };
        self.not_before = now + self.pause;
    }
}

/// A request waits for nothing but the reader. One that waits for a disk itself is at work.
fn is_late(courtesy: &Courtesy, look: Look) -> bool {
    let waits = look.is_left_lying || look.is_at_work && courtesy.is_kept_waiting();
    !look.has_moved && waits
}

/// How, and where, the threads of this process may run. One that a courteous reader starts would be as courteous
/// for ever, and stay where the reader was.
#[derive(Debug)]
pub(crate) struct Standing {
    allowed: Option<CpuSet>,
    is_usual: bool,
}

impl Standing {
    /// That of the calling thread, which is no reader.
    pub(crate) fn own() -> Self {
        Self { allowed: sched_getaffinity(None).ok(), is_usual: has_usual_policy() }
    }

    /// Gives it to the calling thread, as far as that may take it.
    pub(crate) fn take(&self) {
        if self.is_usual && !has_usual_policy() {
            let _ = set_idle_policy(gettid(), false);
        }
        if let Some(allowed) = &self.allowed {
            let _ = sched_setaffinity(None, allowed);
        }
    }
}

/// Tried by a thread of its own, which may stay the way it is.
fn can_come_back() -> bool {
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

    const QUIET: Look =
        Look { has_moved: true, is_at_work: false, is_left_lying: false, is_shared: false };
    const SHARED: Look = Look { is_shared: true, ..QUIET };
    const LATE: Look = Look { has_moved: false, is_left_lying: true, ..QUIET };

    /// With a thread that has introduced itself and sleeps; not at all where it could not come back.
    fn with_reader(test: impl FnOnce(&Courtesy)) {
        let courtesy = Courtesy::default();
        let (introduced, introduction) = mpsc::channel();
        let (end, ending) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let courtesy = &courtesy;
            scope.spawn(move || {
                courtesy.introduce();
                introduced.send(()).unwrap();
                let _ = ending.recv();
            });
            introduction.recv().unwrap();
            if courtesy.thread.get().is_some() {
                while courtesy.is_kept_waiting() {
                    thread::yield_now();
                }
                test(courtesy);
            }
            drop(end);
        });
    }

    /// Whether the reader has the policy 5, `SCHED_IDLE` (field 41, proc(5)).
    fn is_aside(courtesy: &Courtesy) -> bool {
        let thread = courtesy.thread.get().unwrap().as_raw_pid();
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(38) == Some("5")
    }

    #[test]
    fn a_reader_steps_aside_for_one_program_and_not_for_several() {
        with_reader(|courtesy| {
            let mut watcher = Watcher::new();
            let now = watcher.not_before;
            watcher.judge(courtesy, SHARED, now);
            assert!(!courtesy.is_shown() && !is_aside(courtesy));
            watcher.judge(courtesy, QUIET, now);
            assert!(courtesy.is_shown() && is_aside(courtesy));
            watcher.judge(courtesy, SHARED, now);
            assert!(!courtesy.is_shown() && !is_aside(courtesy));
        });
    }

    #[test]
    fn who_is_started_by_a_courteous_one_is_not() {
        let standing = Standing::own();
        let started = thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(rustix::thread::sched_getcpu());
            sched_setaffinity(None, &one).unwrap();
            set_idle_policy(gettid(), true).unwrap();
            thread::spawn(move || {
                standing.take();
                (has_usual_policy(), sched_getaffinity(None).unwrap())
            })
            .join()
            .unwrap()
        });
        let (is_usual, allowed) = started.join().unwrap();
        assert_eq!(is_usual, can_come_back());
        assert_eq!(allowed, sched_getaffinity(None).unwrap());
    }

    #[test]
    fn who_is_late_has_to_wait_longer_each_time() {
        with_reader(|courtesy| {
            let mut watcher = Watcher::new();
            let mut now = watcher.not_before;
            for pause in [2 * PAUSE_MIN, 4 * PAUSE_MIN] {
                watcher.judge(courtesy, QUIET, now);
                watcher.judge(courtesy, LATE, now);
                assert!(!is_aside(courtesy));
                watcher.judge(courtesy, QUIET, now);
                assert!(!is_aside(courtesy), "{pause:?} have not passed");
                now += pause;
            }
            watcher.judge(courtesy, QUIET, now);
            watcher.judge(courtesy, LATE, now + PAUSE_MAX);
            assert_eq!(watcher.pause, PAUSE_MIN, "a courtesy that lasted");
        });
    }

    #[test]
    fn one_that_waits_for_something_else_is_not_late_and_nobody_is_aside_at_rest() {
        with_reader(|courtesy| {
            let mut watcher = Watcher::new();
            let now = watcher.not_before;
            watcher.judge(courtesy, QUIET, now);
            watcher.judge(courtesy, Look { has_moved: false, is_at_work: true, ..QUIET }, now);
            assert!(is_aside(courtesy), "it sleeps");
            watcher.rest(courtesy);
            assert!(!is_aside(courtesy));
        });
    }
}
