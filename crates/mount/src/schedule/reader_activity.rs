//! A thread that answers requests, as another one sees it that watches.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::schedule::cpu_pin::Tether;
use crate::schedule::idle_policy::{Courtesy, Look, Watcher};

/// How often one looks: a courteous thread may need help soon.
pub(crate) const INTERVAL: Duration = Duration::from_millis(1);
/// The same where looking has brought nothing for a while: on a busy machine each look takes a processor from
/// somebody.
const INTERVAL_MAX: Duration = Duration::from_millis(4);
/// After so many looks at which nothing has happened one sleeps.
pub(crate) const IN_VAIN_MAX: u32 = 20;

/// As many times in an interval somebody else asks than before: several ask at a time.
const CHANGES_MANY: u64 = 4;

/// How long to wait after a look that has brought nothing.
pub(crate) fn longer(interval: Duration) -> Duration {
    (2 * interval).clamp(INTERVAL, INTERVAL_MAX)
}

/// What the thread does.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Odd while a request is answered.
    turns: AtomicU64,
    /// Who asked last, and how often it was somebody else than before.
    caller: AtomicU32,
    changes: AtomicU64,
    courtesy: Courtesy,
    escort: Arc<Escort>,
}

impl Work {
    /// Watched by `escort`, if that ever introduces itself.
    pub(crate) fn new(escort: &Arc<Escort>) -> Arc<Self> {
        Arc::new(Self { escort: Arc::clone(escort), ..Self::default() })
    }

    /// The thread makes room for who asks.
    pub(crate) fn courtesy(&self) -> &Courtesy {
        &self.courtesy
    }

    /// A request was read.
    pub(crate) fn begin(&self) {
        self.turns.fetch_add(1, SeqCst);
        self.escort.wake();
    }

    /// It comes from this process.
    pub(crate) fn note_caller(&self, pid: u32) {
        if pid != 0 && self.caller.load(SeqCst) != pid {
            self.caller.store(pid, SeqCst);
            self.changes.fetch_add(1, SeqCst);
        }
    }

    /// Who watches is to do so from this processor, where the thread makes room.
    pub(crate) fn invite(&self, processor: usize) {
        self.escort.follow(processor);
    }

    /// It was answered.
    pub(crate) fn end(&self) {
        self.turns.fetch_add(1, SeqCst);
    }

    /// Nobody will answer here again. Who watches sees to it.
    pub(crate) fn leave(&self) {
        self.courtesy.leave();
        self.begin();
    }

    fn seen(&self) -> Seen {
        Seen { turns: self.turns.load(SeqCst), changes: self.changes.load(SeqCst) }
    }
}

/// The thread that watches. A processor that wakes up draws a program to itself that is woken just then, so
/// it is to be where the one is that it watches.
#[derive(Debug, Default)]
pub(crate) struct Escort {
    thread: OnceLock<Thread>,
    tether: Tether,
    /// It has looked since it was invited.
    may_follow: AtomicBool,
    is_asleep: AtomicBool,
}

impl Escort {
    /// The calling thread is the one that watches.
    pub(crate) fn introduce(&self) -> Result<(), Errno> {
        self.thread.get_or_init(thread::current);
        self.tether.introduce()
    }

    /// Lets some time pass until the next look.
    pub(crate) fn wait(&self, interval: Duration) {
        thread::sleep(interval);
        self.may_follow.store(true, Relaxed);
    }

    /// Sleeps until one of those who are watched gets a request. One that has got it already may have it
    /// for long, and could not call.
    pub(crate) fn sleep(&self, watches: &[Watch]) {
        let is_any_at_work = || watches.iter().any(|watch| watch.work.seen().is_at_work());
        self.is_asleep.store(true, SeqCst);
        while !is_any_at_work() && self.is_asleep() {
            thread::park();
        }
        self.is_asleep.store(false, SeqCst);
    }

    /// Whether nothing happens that it watches.
    pub(crate) fn is_asleep(&self) -> bool {
        self.is_asleep.load(SeqCst)
    }

    /// May be where it wants.
    pub(crate) fn stay_behind(&self) {
        self.tether.untie();
    }

    fn follow(&self, processor: usize) {
        if self.tether.at() != Some(processor) && self.may_follow.swap(false, Relaxed) {
            self.tether.tie(processor);
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

/// One who watches a thread, and sees to its courtesy.
#[derive(Debug)]
pub(crate) struct Watch {
    work: Arc<Work>,
    seen: Seen,
    watcher: Watcher,
}

impl Watch {
    pub(crate) fn new(work: Arc<Work>) -> Self {
        Self { seen: work.seen(), work, watcher: Watcher::new() }
    }

    /// What has happened since the last look does not count.
    pub(crate) fn look_away(&mut self) {
        self.seen = self.work.seen();
    }

    /// What has happened since the last look; `is_left_lying` says that a request waits that nobody has
    /// read.
    pub(crate) fn look(&mut self, is_left_lying: bool) -> Look {
        let last = std::mem::replace(&mut self.seen, self.work.seen());
        let look = self.seen.since(last, is_left_lying);
        self.watcher.judge(&self.work.courtesy, look, Instant::now());
        look
    }

    /// Whether the thread makes room for who asks.
    pub(crate) fn is_courteous(&self) -> bool {
        self.work.courtesy.is_shown()
    }

    /// Nothing happens.
    pub(crate) fn rest(&self) {
        self.work.courtesy.show(false);
    }
}

/// How far the thread has come.
#[derive(Debug, Clone, Copy)]
struct Seen {
    turns: u64,
    changes: u64,
}

impl Seen {
    fn is_at_work(self) -> bool {
        !self.turns.is_multiple_of(2)
    }

    /// What has happened between the two, if requests are left lying now.
    fn since(self, last: Self, is_left_lying: bool) -> Look {
        Look {
            has_moved: self.turns != last.turns,
            is_at_work: self.is_at_work(),
            is_left_lying,
            is_shared: self.changes - last.changes >= CHANGES_MANY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sleeps_while_one_is_held_up() {
        let escort = Arc::default();
        let works = [Work::new(&escort), Work::new(&escort)];
        works[1].begin();
        escort.sleep(&works.map(Watch::new));
        assert!(!escort.is_asleep());
    }

    #[test]
    fn who_sleeps_is_called_by_each_of_those_that_are_watched() {
        for index in 0..2 {
            let escort = Arc::<Escort>::default();
            let works = [Work::new(&escort), Work::new(&escort)];
            let watches = works.clone().map(Watch::new);
            thread::scope(|scope| {
                let sleeper = scope.spawn(|| {
                    escort.introduce().unwrap();
                    escort.sleep(&watches);
                });
                while !escort.is_asleep() {
                    thread::yield_now();
                }
                works[index].begin();
                sleeper.join().unwrap();
            });
            assert!(!escort.is_asleep());
        }
    }

    #[test]
    fn who_watches_follows_once_a_look() {
        let escort = Arc::<Escort>::default();
        escort.introduce().unwrap();
        let (work, here) = (Work::new(&escort), rustix::thread::sched_getcpu());
        work.invite(here);
        assert_eq!(escort.tether.at(), None, "it has not looked yet");
        escort.wait(Duration::ZERO);
        work.invite(here);
        assert_eq!(escort.tether.at(), Some(here));
        escort.stay_behind();
        work.invite(here);
        assert_eq!(escort.tether.at(), None);
    }
}
