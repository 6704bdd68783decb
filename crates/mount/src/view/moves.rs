//! The files that are being moved to another source, and those that were.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{
    Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

use rustix::io::Errno;

use crate::inodes::{InodeId, lock};

/// The number of locks for writers. With more locks than CPUs, threads rarely contend.
const STRIPES: usize = 64;

/// The moves of files between the sources of a view.
#[derive(Debug)]
pub(super) struct Moves {
    active: Mutex<HashMap<InodeId, Arc<AtomicBool>>>,
    /// The number of active moves. It is mostly zero, and then no lock is taken.
    count: AtomicUsize,
    ended: Condvar,
    /// Shared by requests that change names; exclusive while a move changes names.
    names: RwLock<()>,
    /// Inodes whose file has moved while the kernel moved the data of an open.
    gone: Mutex<HashSet<InodeId>>,
    gone_count: AtomicUsize,
    /// The number of opens for writing, by inode. The kernel opens the backing file of such an open only after the
    /// reply, so until then the file shows no writer.
    writers: Mutex<HashMap<InodeId, u32>>,
    /// Locks by inode: shared by changes of a file; exclusive for a move while another file takes its place.
    writing: Box<[RwLock<()>]>,
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            active: Mutex::default(),
            count: AtomicUsize::default(),
            ended: Condvar::default(),
            names: RwLock::default(),
            gone: Mutex::default(),
            gone_count: AtomicUsize::default(),
            writers: Mutex::default(),
            writing: (0..STRIPES).map(|_| RwLock::default()).collect(),
        }
    }
}

/// A move, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct ActiveMove<'a> {
    moves: &'a Moves,
    id: InodeId,
    is_cancelled: Arc<AtomicBool>,
}

impl ActiveMove<'_> {
    /// Whether a program wants to change the file.
    pub(super) fn is_cancelled(&self) -> &AtomicBool {
        &self.is_cancelled
    }
}

impl Drop for ActiveMove<'_> {
    fn drop(&mut self) {
        let mut active = lock(&self.moves.active);
        active.remove(&self.id);
        self.moves.count.store(active.len(), SeqCst);
        drop(active);
        self.moves.ended.notify_all();
    }
}

impl Moves {
    /// Begins a move. Fails with `BUSY` if the file is being moved already.
    pub(super) fn begin(&self, id: InodeId) -> Result<ActiveMove<'_>, Errno> {
        let mut active = lock(&self.active);
        if active.contains_key(&id) {
            return Err(Errno::BUSY);
        }
        let is_cancelled = Arc::<AtomicBool>::default();
        active.insert(id, Arc::clone(&is_cancelled));
        self.count.store(active.len(), SeqCst);
        Ok(ActiveMove { moves: self, id, is_cancelled })
    }

    /// Gives up the move of a file that is about to be changed, and waits for its end.
    pub(super) fn give_up(&self, id: InodeId) {
        if self.count.load(SeqCst) == 0 {
            return;
        }
        let mut active = lock(&self.active);
        while let Some(is_cancelled) = active.get(&id) {
            is_cancelled.store(true, Relaxed);
            active = self.ended.wait(active).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the lock of names, shared with other requests that change names. No file moves to another source until the
    /// guard is dropped.
    pub(super) fn share_names(&self) -> RwLockReadGuard<'_, ()> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock of names alone, for a move to another source. Requests that change names wait until the guard is
    /// dropped.
    pub(super) fn hold_names(&self) -> RwLockWriteGuard<'_, ()> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up the move of a file that is about to be changed, and keeps others from taking place until the guard is
    /// dropped.
    ///
    /// # Errors
    /// `STALE` if the inode's file is another inode now. The kernel looks the name up again then.
    pub(super) fn keep_file(&self, id: InodeId) -> Result<RwLockReadGuard<'_, ()>, Errno> {
        self.give_up(id);
        let kept = self.share_file(id);
        if self.is_gone(id) { Err(Errno::STALE) } else { Ok(kept) }
    }

    /// Keeps the file from being moved while it is written to.
    pub(super) fn share_file(&self, id: InodeId) -> RwLockReadGuard<'_, ()> {
        self.stripe(id).read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for present writes, and keeps others away.
    pub(super) fn hold_file(&self, id: InodeId) -> RwLockWriteGuard<'_, ()> {
        self.stripe(id).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps changes of the file away, unless one is being made.
    pub(super) fn try_hold_file(&self, id: InodeId) -> Option<RwLockWriteGuard<'_, ()>> {
        match self.stripe(id).try_write() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Remembers that the inode's file is another inode now.
    pub(super) fn note_gone(&self, id: InodeId) {
        let mut gone = lock(&self.gone);
        gone.insert(id);
        self.gone_count.store(gone.len(), SeqCst);
    }

    /// Whether the inode's file is another inode now, so that its name has to be looked up again.
    pub(super) fn is_gone(&self, id: InodeId) -> bool {
        self.gone_count.load(SeqCst) > 0 && lock(&self.gone).contains(&id)
    }

    /// Notes an open for writing.
    pub(super) fn add_writer(&self, id: InodeId) {
        *lock(&self.writers).entry(id).or_default() += 1;
    }

    /// Notes the end of an open for writing, unless the open was one of the previous worker.
    pub(super) fn remove_writer(&self, id: InodeId) {
        let mut writers = lock(&self.writers);
        if let Some(count) = writers.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                writers.remove(&id);
            }
        }
    }

    pub(super) fn has_writer(&self, id: InodeId) -> bool {
        lock(&self.writers).contains_key(&id)
    }

    pub(super) fn forget(&self, id: InodeId) {
        lock(&self.writers).remove(&id);
        if self.gone_count.load(SeqCst) > 0 {
            let mut gone = lock(&self.gone);
            gone.remove(&id);
            self.gone_count.store(gone.len(), SeqCst);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits of the number will do")]
    fn stripe(&self, id: InodeId) -> &RwLock<()> {
        &self.writing[id.0 as usize % STRIPES]
    }
}
