//! Descriptors that keep removed files alive.
//!
//! A removed file must live on for the programs that have it open. If the kernel holds the backing file, that suffices.
//! For daemon I/O, folders and FIFOs, an open descriptor in this table keeps the file alive until the kernel forgets
//! the inode.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};

#[derive(Debug, Default)]
pub(crate) struct Pins {
    held: Mutex<IdMap<Arc<OwnedFd>>>,
    /// The number of pins. It is mostly zero, and then the lock need not be taken.
    count: AtomicUsize,
}

impl Pins {
    pub(crate) fn get(&self, id: InodeId) -> Option<Arc<OwnedFd>> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        lock(&self.held).get(&id.0).cloned()
    }

    pub(crate) fn hold(&self, id: InodeId, fd: Arc<OwnedFd>) {
        let mut held = lock(&self.held);
        let before = held.insert(id.0, fd);
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
