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

use std::num::NonZero;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::io::Errno;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use thruway_sys::threads::{has_usual_policy, set_idle_policy};

use crate::schedule::cpu_pin::Tether;

/// How long it has to do without its courtesy once that was taken away, at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(640);
/// A courtesy that lasted for so many pauses was none too early.
const LASTING: u32 = 8;

/// Of a thread that answers.
#[derive(Debug, Default)]
pub(crate) struct Courtesy {
    /// Keeps it where the program is.
    tether: Tether,
    can_come_back: AtomicBool,
    is_shown: AtomicBool,
    has_left: AtomicBool,
}

impl Courtesy {
    /// The calling thread is the one that answers. Where it could not come back it never steps aside.
    pub(crate) fn introduce(&self) -> Result<(), Errno> {
        self.tether.introduce()?;
        self.can_come_back.store(can_come_back(), SeqCst);
        Ok(())
    }

    pub(crate) fn tether(&self) -> &Tether {
        &self.tether
    }

    /// Whether the thread has to stay where the program is.
    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown.load(SeqCst) && !self.has_left.load(SeqCst)
    }

    /// Whether the thread would run if it had a processor (state R, proc(5)).
    fn is_kept_waiting(&self) -> bool {
        let Some(thread) = self.tether.thread() else { return false };
        let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_pid()));
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R')))
    }

    /// The thread will answer no more.
    pub(crate) fn leave(&self) {
        self.has_left.store(true, SeqCst);
    }

    /// For the one thread that watches.
    pub(crate) fn show(&self, is_shown: bool) {
        let Some(thread) = self.tether.thread() else { return };
        let is_useless = self.is_shown() == is_shown || !self.can_come_back.load(SeqCst);
        if is_useless || self.has_left.load(SeqCst) || set_idle_policy(thread, is_shown).is_err() {
            return;
        }
        self.is_shown.store(is_shown, SeqCst);
        if !is_shown {
            self.tether.untie();
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
    /// It was late at the last look.
    was_late: bool,
    processors: usize,
}

impl Watcher {
    pub(crate) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self { pause: PAUSE_MIN, not_before: Instant::now(), was_late: false, processors }
    }

    /// What becomes of the courtesy after this look.
    pub(crate) fn judge(&mut self, courtesy: &Courtesy, look: Look, now: Instant) {
        if !courtesy.is_shown() {
            self.was_late = false;
            let is_wanted = look.has_moved && !look.is_shared && now >= self.not_before;
            courtesy.show(is_wanted && self.is_room_elsewhere());
            return;
        }
        // One look is not enough: nobody waits for some requests, and a program that has something else
        // to do keeps it from them.
        let is_late = is_late(courtesy, look);
        if look.is_shared || is_late && self.was_late {
            courtesy.show(false);
            self.pause_from(now);
        }
        self.was_late = is_late;
    }

    /// Whether a processor has nothing to do: else the program is not taken anywhere. Of the program and the
    /// one that answers one waits for the other, and who looks runs, too.
    fn is_room_elsewhere(&self) -> bool {
        let load = fs::read_to_string("/proc/loadavg");
        let running = load.ok().as_deref().and_then(running);
        self.processors > 1 && running.is_none_or(|running| running <= self.processors)
    }

    fn pause_from(&mut self, now: Instant) {
        let has_lasted = now.duration_since(self.not_before) >= LASTING * self.pause;
        self.pause = if has_lasted { PAUSE_MIN } else { PAUSE_MAX.min(2 * self.pause) };
        self.not_before = now + self.pause;
    }
}

/// A request waits for nothing but the reader. One that waits for a disk itself is at work.
fn is_late(courtesy: &Courtesy, look: Look) -> bool {
    !look.has_moved && (look.is_left_lying || courtesy.is_kept_waiting())
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

/// How many threads have something to do now: the first number of the fourth field (proc(5)).
fn running(load: &str) -> Option<usize> {
    load.split(' ').nth(3)?.split('/').next()?.parse().ok()
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

    /// On a machine that has always room.
    fn watcher() -> Watcher {
        Watcher { processors: usize::MAX, ..Watcher::new() }
    }

    #[test]
    fn who_runs_is_counted() {
        assert_eq!(running("0.20 0.18 0.12 3/80 11206"), Some(3));
        assert_eq!(running(""), None);
    }

    #[test]
    fn nobody_steps_aside_where_the_program_cannot_be_taken_elsewhere() {
        with_reader(|courtesy| {
            let mut watcher = Watcher { processors: 1, ..watcher() };
            watcher.judge(courtesy, QUIET, watcher.not_before);
            assert!(!courtesy.is_shown());
        });
    }

    /// With a thread that has introduced itself and sleeps; not at all where it could not come back.
    fn with_reader(test: impl FnOnce(&Courtesy)) {
        let courtesy = Courtesy::default();
        let (introduced, introduction) = mpsc::channel();
        let (end, ending) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let courtesy = &courtesy;
            scope.spawn(move || {
                courtesy.introduce().unwrap();
                introduced.send(()).unwrap();
                let _ = ending.recv();
            });
            introduction.recv().unwrap();
            if courtesy.can_come_back.load(SeqCst) {
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
        let thread = courtesy.tether.thread().unwrap().as_raw_pid();
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(38) == Some("5")
    }

    #[test]
    fn a_reader_steps_aside_for_one_program_and_not_for_several() {
        with_reader(|courtesy| {
            let mut watcher = watcher();
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
            let mut watcher = watcher();
            let mut now = watcher.not_before;
            for pause in [2 * PAUSE_MIN, 4 * PAUSE_MIN] {
                watcher.judge(courtesy, QUIET, now);
                watcher.judge(courtesy, LATE, now);
                watcher.judge(courtesy, LATE, now);
                assert!(!is_aside(courtesy));
                watcher.judge(courtesy, QUIET, now);
                assert!(!is_aside(courtesy), "{pause:?} have not passed");
                now += pause;
            }
            watcher.judge(courtesy, QUIET, now);
            watcher.judge(courtesy, LATE, now);
            watcher.judge(courtesy, LATE, now + PAUSE_MAX);
            assert_eq!(watcher.pause, PAUSE_MIN, "a courtesy that lasted");
        });
    }

    #[test]
    fn who_is_late_once_and_not_again_stays_aside() {
        with_reader(|courtesy| {
            let mut watcher = watcher();
            let now = watcher.not_before;
            for look in [QUIET, LATE, QUIET, LATE] {
                watcher.judge(courtesy, look, now);
                assert!(is_aside(courtesy));
            }
        });
    }

    #[test]
    fn one_that_waits_for_something_else_is_not_late_and_nobody_is_aside_at_rest() {
        with_reader(|courtesy| {
            let mut watcher = watcher();
            let now = watcher.not_before;
            watcher.judge(courtesy, QUIET, now);
            for _ in 0..2 {
                watcher.judge(courtesy, Look { has_moved: false, is_at_work: true, ..QUIET }, now);
            }
            assert!(is_aside(courtesy), "it sleeps");
            courtesy.show(false);
            assert!(!is_aside(courtesy));
        });
    }
}
