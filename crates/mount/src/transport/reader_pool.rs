//! The threads that read requests stand in a row, and only the first one waits for them.
//!
//! If several waited, the kernel would wake whichever has waited longest: a program that asks for one
//! thing after the other, as most do, would be answered from another processor each time. The
//! others look now and then whether requests are left lying, and help for as long as that is so. Each
//! keeps an eye on the one before it, and sleeps while that one has nothing to do.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::schedule::reader_activity::{Escort, IN_VAIN_MAX, INTERVAL, Watch, Work, longer};

/// How often it is looked by one who has just found [`MANY`].
const BUSY_INTERVAL: Duration = Duration::from_micros(50);
const MANY: usize = 8;

/// When we look, a request may be on its way to the one before us. If there is one so many times in
/// succession, they are more than that one can do.
const LOOKS_MIN: u32 = 4;

/// A place in the row.
#[derive(Debug)]
pub(crate) struct Place {
    /// Who stands before us, if anyone does.
    before: Option<Watch>,
    /// Whoever stands here, for those before and behind.
    escort: Arc<Escort>,
    work: Arc<Work>,
}

/// A row of so many places.
pub(crate) fn places(count: usize) -> Vec<Place> {
    let escorts: Vec<Arc<Escort>> = (0..=count).map(|_| Arc::default()).collect();
    let mut before = None;
    let place = |pair: &[Arc<Escort>]| {
        let work = Work::new(&pair[1]);
        let before = before.replace(Arc::clone(&work)).map(Watch::new);
        Place { before, escort: Arc::clone(&pair[0]), work }
    };
    escorts.windows(2).map(place).collect()
}

impl Place {
    /// Whether who stands here waits for requests.
    pub(crate) fn is_first(&self) -> bool {
        self.before.is_none()
    }

    /// For the thread that stands here, before anything else.
    pub(crate) fn introduce(&self) -> Result<(), Errno> {
        if self.is_first() {
            return self.work.courtesy().introduce();
        }
        self.work.courtesy().tether().introduce()?;
        self.escort.introduce()
    }

    /// What the thread here does.
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    /// Waits until requests are left lying, for one who found `found` the last time. Who stands
    /// first need not: there the read waits.
    pub(crate) fn wait_for_work(&mut self, device: impl AsFd, found: usize) -> Result<(), Errno> {
        let Self { before: Some(before), escort, .. } = self else { return Ok(()) };
        let (mut interval, mut looks) =
            if found < MANY { (INTERVAL, LOOKS_MIN) } else { (BUSY_INTERVAL, 1) };
        let mut in_vain = 0;
        before.look_away();
        loop {
            escort.wait(interval);
            let look = before.look(is_left_lying(&device)?);
            let is_courteous = before.is_courteous();
            if !is_courteous {
                escort.stay_behind();
            }
            if look.is_left_lying && !is_courteous {
                (interval, looks) = (interval.min(INTERVAL), looks - 1);
                let is_held_up = look.is_at_work && !look.has_moved;
                if looks == 0 || is_held_up {
                    return Ok(());
                }
                continue;
            }
            interval = if is_courteous { INTERVAL } else { longer(interval) };
            looks = LOOKS_MIN;
            in_vain = if look.has_moved { 0 } else { in_vain + 1 };
            if in_vain >= IN_VAIN_MAX {
                before.rest();
                escort.stay_behind();
                escort.sleep(std::slice::from_ref(before));
                in_vain = 0;
            }
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
    use std::thread;

    #[test]
    fn who_stands_behind_comes_when_requests_are_left_lying_and_sleeps_when_not() {
        let (mut requests, mut sender) = std::io::pipe().unwrap();
        let mut row = places(2).into_iter();
        let (first, mut second) = (row.next().unwrap(), row.next().unwrap());
        let second_escort = Arc::clone(&second.escort);
        let (came, coming) = mpsc::channel();
        let helper = thread::spawn(move || {
            second.introduce().unwrap();
            for _ in 0..2 {
                second.wait_for_work(&requests, 0).unwrap();
                requests.read_exact(&mut [0]).unwrap();
                came.send(()).unwrap();
            }
        });
        sender.write_all(&[1]).unwrap();
        coming.recv().unwrap();
        while !second_escort.is_asleep() {
            thread::sleep(INTERVAL);
        }
        sender.write_all(&[1]).unwrap();
        assert!(second_escort.is_asleep());
        first.work().begin();
        coming.recv().unwrap();
        helper.join().unwrap();
    }

    #[test]
    fn who_stands_behind_one_that_has_left_follows_at_once() {
        let (requests, sender) = std::io::pipe().unwrap();
        drop(sender);
        let mut row = places(2).into_iter();
        let (first, mut second) = (row.next().unwrap(), row.next().unwrap());
        first.introduce().unwrap();
        first.work().courtesy().show(true);
        first.work().leave();
        second.wait_for_work(&requests, 0).unwrap();
    }
}
