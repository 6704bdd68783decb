//! Pins a thread to a CPU, on behalf of the thread itself or another thread.

use std::sync::{Mutex, OnceLock};

use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::inodes::lock;

/// A thread and the CPU that it is pinned to. Until a thread registers, pinning has no effect.
#[derive(Debug, Default)]
pub(crate) struct CpuPin {
    thread: OnceLock<(Pid, CpuSet)>,
    processor: Mutex<Option<usize>>,
}

impl CpuPin {
    /// Registers the calling thread, with the CPUs that the thread may currently use.
    pub(crate) fn register(&self) -> Result<(), Errno> {
        let allowed = sched_getaffinity(None)?;
        self.thread.get_or_init(|| (gettid(), allowed));
        Ok(())
    }

    /// Returns the registered thread.
    pub(crate) fn thread(&self) -> Option<Pid> {
        self.thread.get().map(|(thread, _)| *thread)
    }

    /// Returns the CPU that the thread is pinned to.
    pub(crate) fn processor(&self) -> Option<usize> {
        *lock(&self.processor)
    }

    /// Pins the thread to a CPU. A CPU that the thread may not use is ignored.
    pub(crate) fn pin(&self, processor: usize) {
        let mut pinned = lock(&self.processor);
        let Some((thread, allowed)) = self.thread.get() else { return };
        if *pinned == Some(processor) || processor >= CpuSet::MAX_CPU || !allowed.is_set(processor)
        {
            return;
        }
        let mut only = CpuSet::new();
        only.set(processor);
        if sched_setaffinity(Some(*thread), &only).is_ok() {
            *pinned = Some(processor);
        }
    }

    /// Lets the thread run on all CPUs that it may use.
    pub(crate) fn unpin(&self) {
        let mut pinned = lock(&self.processor);
        let Some((thread, allowed)) = self.thread.get() else { return };
        if pinned.take().is_some() {
            // The thread was allowed on these CPUs before, so an error is unlikely and harmless.
            let _ = sched_setaffinity(Some(*thread), allowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays_on_its_cpu_until_it_is_unpinned() {
        let cpu_pin = CpuPin::default();
        cpu_pin.pin(0);
        assert_eq!(cpu_pin.processor(), None);
        cpu_pin.register().unwrap();
        let before = sched_getaffinity(None).unwrap();
        let here = rustix::thread::sched_getcpu();
        cpu_pin.pin(here);
        assert_eq!(cpu_pin.processor(), Some(here));
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        cpu_pin.pin(CpuSet::MAX_CPU);
        assert_eq!(cpu_pin.processor(), Some(here));
        cpu_pin.unpin();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
