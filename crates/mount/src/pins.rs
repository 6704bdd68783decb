//! Inodes that must stay although nothing but us may lead to them any more.
//!
//! A file that was removed lives on for those who have it open. Where the kernel holds its backing
//! file that goes by itself. Where it does not (the data goes through the daemon; a folder, a FIFO)
//! an open descriptor here keeps the file alive until the kernel forgets it.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};

#[derive(Debug, Default)]
pub(crate) struct Pins {
    held: Mutex<IdMap<Arc<OwnedFd>>>,
    /// How many there are: mostly none, and then nobody need take the lock.
    count: AtomicUsize,
}

impl Pins {
    pub(crate) fn get(&self, id: InodeId) -> Option<Arc<OwnedFd>> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        lock(&self.held).get(&id.0).cloned()
    }

    pub(crate) fn hold(&self, id: InodeId, place: Arc<OwnedFd>) {
        let mut held = lock(&self.held);
        let before = held.insert(id.0, place);
        self.count.store(held.len(), Relaxed);
        drop(held);
        drop(before);
    }

    pub(crate) fn release(&self, id: InodeId) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let mut held = lock(&self.held);
        let released = held.remove(&id.0);
        self.count.store(held.len(), Relaxed);
        drop(held);
        drop(released);
    }
}
