//! The threads that read requests stand in a row, and only the first one waits for them.
//!
//! If several waited, the kernel would wake whichever has waited longest: a program that asks for one
//! thing after the other, as most do, would be answered from another processor each time. The
//! others look now and then whether requests are left lying, and help for as long as that is so. Each
//! keeps an eye on the one before it, and sleeps while that one has nothing to do.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::courtesy::{Courtesy, Look, Watcher};

/// How often it is looked whether requests are left lying.
const INTERVAL: Duration = Duration::from_millis(1);
/// The same for one who has just found [`MANY`].
const BUSY_INTERVAL: Duration = Duration::from_micros(50);
const MANY: usize = 8;

/// When we look, a request may be on its way to the one before us. If there is one so many times in
/// succession, they are more than that one can do.
const LOOKS_MIN: u32 = 4;
/// As many times in an interval somebody else asks than before: several ask at a time.
const CHANGES_MANY: u64 = 4;
/// After so many looks at which nothing has happened one sleeps.
const IN_VAIN_MAX: u32 = 20;

/// A place in the row.
#[derive(Debug)]
pub(crate) struct Place {
    before: Option<Arc<Work>>,
    own: Arc<Work>,
    watcher: Watcher,
}

/// What the thread at a place does.
#[derive(Debug, Default)]
struct Work {
    /// Odd while a request is answered.
    turns: AtomicU64,
    /// Who asked last, and how often it was somebody else than before.
    caller: AtomicU32,
    changes: AtomicU64,
    courtesy: Courtesy,
    is_next_asleep: AtomicBool,
    next: OnceLock<Thread>,
}

/// A row of so many places.
pub(crate) fn places(count: usize) -> Vec<Place> {
    let mut before = None;
    let mut place = || {
        let own = Arc::<Work>::default();
        Place { before: before.replace(Arc::clone(&own)), own, watcher: Watcher::new() }
    };
    (0..count).map(|_| place()).collect()
}

impl Place {
    /// Whether who stands here waits for requests.
    pub(crate) fn is_first(&self) -> bool {
        self.before.is_none()
    }

    /// The thread that stands here makes room for who asks.
    pub(crate) fn courtesy(&self) -> &Courtesy {
        &self.own.courtesy
    }

    /// A request was read.
    pub(crate) fn begin(&self) {
        self.own.turns.fetch_add(1, SeqCst);
        self.own.call_next();
    }

    /// It comes from this process.
    pub(crate) fn note_caller(&self, pid: u32) {
        if pid != 0 && self.own.caller.load(SeqCst) != pid {
            self.own.caller.store(pid, SeqCst);
            self.own.changes.fetch_add(1, SeqCst);
        }
    }

    /// It was answered.
    pub(crate) fn end(&self) {
        self.own.turns.fetch_add(1, SeqCst);
    }

    /// Nobody will read here again. Those behind see to it themselves.
    pub(crate) fn leave(&self) {
        self.own.courtesy.leave();
        self.begin();
    }

    /// Waits until requests are left lying, for one who found `found` the last time. Who stands
    /// first need not: there the read waits.
    pub(crate) fn wait_for_work(&mut self, device: impl AsFd, found: usize) -> Result<(), Errno> {
        let Some(before) = &self.before else { return Ok(()) };
        before.next.get_or_init(thread::current);
        let (mut interval, mut looks) =
            if found < MANY { (INTERVAL, LOOKS_MIN) } else { (BUSY_INTERVAL, 1) };
        let mut in_vain = 0;
        let mut seen = before.seen();
        loop {
            thread::sleep(interval);
            let last = std::mem::replace(&mut seen, before.seen());
            let look = seen.since(last, is_left_lying(&device)?);
            self.watcher.judge(&before.courtesy, look, Instant::now());
            if look.is_left_lying && !before.courtesy.is_shown() {
                looks -= 1;
                let is_held_up = look.is_at_work && !look.has_moved;
                if looks == 0 || is_held_up {
                    return Ok(());
                }
                continue;
            }
            (interval, looks) = (INTERVAL, LOOKS_MIN);
            in_vain = if look.has_moved { 0 } else { in_vain + 1 };
            if in_vain >= IN_VAIN_MAX {
                self.watcher.rest(&before.courtesy);
                before.sleep();
                in_vain = 0;
            }
        }
    }
}

impl Work {
    fn seen(&self) -> Seen {
        Seen { turns: self.turns.load(SeqCst), changes: self.changes.load(SeqCst) }
    }

    fn call_next(&self) {
        if self.is_next_asleep.load(SeqCst)
            && self.is_next_asleep.swap(false, SeqCst)
            && let Some(next) = self.next.get()
        {
            next.unpark();
        }
    }

    /// For the next in the row: sleeps until the one here gets a request. One that has got it already
    /// may have it for long, and could not call.
    fn sleep(&self) {
        self.is_next_asleep.store(true, SeqCst);
        while self.turns.load(SeqCst).is_multiple_of(2) && self.is_next_asleep.load(SeqCst) {
            thread::park();
        }
        self.is_next_asleep.store(false, SeqCst);
    }
}

/// How far the thread at a place has come.
#[derive(Debug, Clone, Copy)]
struct Seen {
    turns: u64,
    changes: u64,
}

impl Seen {
    /// What has happened between the two, if requests are left lying now.
    fn since(self, last: Self, is_left_lying: bool) -> Look {
        Look {
            has_moved: self.turns != last.turns,
            is_at_work: self.turns % 2 == 1,
            is_left_lying,
            is_shared: self.changes - last.changes >= CHANGES_MANY,
        }
    }
}

/// Whether there are requests that nobody has read, or never will be any more.
fn is_left_lying(device: impl AsFd) -> Result<bool, Errno> {
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

    #[test]
    fn who_stands_behind_comes_when_requests_are_left_lying_and_sleeps_when_not() {
        let (mut requests, mut sender) = std::io::pipe().unwrap();
        let mut row = places(2).into_iter();
        let (first, mut second) = (row.next().unwrap(), row.next().unwrap());
        let (came, coming) = mpsc::channel();
        let helper = thread::spawn(move || {
            for _ in 0..2 {
                second.wait_for_work(&requests, 0).unwrap();
                requests.read_exact(&mut [0]).unwrap();
                came.send(()).unwrap();
            }
        });
        assert!(coming.try_recv().is_err());
        sender.write_all(&[1]).unwrap();
        coming.recv().unwrap();
        while !first.own.is_next_asleep.load(SeqCst) {
            thread::sleep(INTERVAL);
        }
        sender.write_all(&[1]).unwrap();
        assert!(first.own.is_next_asleep.load(SeqCst));
        first.begin();
        coming.recv().unwrap();
        helper.join().unwrap();
    }

    #[test]
    fn who_stands_behind_one_that_has_left_follows_at_once() {
        let (requests, sender) = std::io::pipe().unwrap();
        drop(sender);
        let mut row = places(2).into_iter();
        let (first, mut second) = (row.next().unwrap(), row.next().unwrap());
        first.courtesy().introduce();
        first.courtesy().show(true);
        first.leave();
        second.wait_for_work(&requests, 0).unwrap();
    }

    #[test]
    fn nobody_sleeps_behind_one_who_is_held_up() {
        let row = places(2);
        row[0].begin();
        row[0].own.sleep();
        assert!(row[1].before.is_some() && !row[0].own.is_next_asleep.load(SeqCst));
    }
}
