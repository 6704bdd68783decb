//! A thread that can be kept on one processor, by itself or by another thread.

use std::sync::{Mutex, OnceLock};

use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::inodes::lock;

/// The thread and where it has to stay. While it has not introduced itself nothing happens to it.
#[derive(Debug, Default)]
pub(crate) struct Tether {
    thread: OnceLock<(Pid, CpuSet)>,
    at: Mutex<Option<usize>>,
}

impl Tether {
    /// It is the calling thread, which may run where it may run now.
    pub(crate) fn introduce(&self) -> Result<(), Errno> {
        let allowed = sched_getaffinity(None)?;
        self.thread.get_or_init(|| (gettid(), allowed));
        Ok(())
    }

    pub(crate) fn thread(&self) -> Option<Pid> {
        self.thread.get().map(|(thread, _)| *thread)
    }

    /// Where it has to stay.
    pub(crate) fn at(&self) -> Option<usize> {
        *lock(&self.at)
    }

    /// Keeps it on this processor. Where it cannot go it need not be.
    pub(crate) fn tie(&self, processor: usize) {
        let mut at = lock(&self.at);
        let Some((thread, allowed)) = self.thread.get() else { return };
        if *at == Some(processor) || processor >= CpuSet::MAX_CPU || !allowed.is_set(processor) {
            return;
        }
        let mut only = CpuSet::new();
        only.set(processor);
        if sched_setaffinity(Some(*thread), &only).is_ok() {
            *at = Some(processor);
        }
    }

    /// Lets it go where it may.
    pub(crate) fn untie(&self) {
        let mut at = lock(&self.at);
        let Some((thread, allowed)) = self.thread.get() else { return };
        if at.take().is_some() {
            // It was there before.
            let _ = sched_setaffinity(Some(*thread), allowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_tied_until_it_is_not() {
        let tether = Tether::default();
        tether.tie(0);
        assert_eq!(tether.at(), None);
        tether.introduce().unwrap();
        let before = sched_getaffinity(None).unwrap();
        let here = rustix::thread::sched_getcpu();
        tether.tie(here);
        assert_eq!(tether.at(), Some(here));
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        tether.tie(CpuSet::MAX_CPU);
        assert_eq!(tether.at(), Some(here));
        tether.untie();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
