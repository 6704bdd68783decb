//! The table of inodes that the kernel knows, with their lookup counts.
//!
//! It is in memory that the supervisor holds, so that the next worker finds it after a crash. An inode is found by its
//! **identity** (file system, number, birth), and opened by its file handle. It needs no descriptor, so `RLIMIT_NOFILE`
//! does not limit the number of inodes.

mod flags;
mod inode;
mod record;
mod slots;

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashTable;
use rustix::io::Errno;
use thruway_sys::handle::FileHandle;

use crate::memory::Memory;
use flags::Flags;
use record::Record;
use slots::Slots;

pub(crate) use flags::Watched;
pub(crate) use inode::{Identity, Inode, InodeId};
pub(crate) use record::{Backing, WORDS as RECORD_WORDS};

/// Number of locks: more than CPUs, so that threads rarely contend for one.
const SHARDS: usize = 64;

/// An inode that was just forgotten, for its cleanup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forgotten {
    pub(crate) inode: Inode,
    pub(crate) backing: Backing,
    pub(crate) watched: Watched,
}

#[derive(Debug)]
pub(crate) struct Inodes {
    memory: Arc<Memory>,
    /// Slots by identity.
    shards: Box<[Mutex<HashTable<u32>>]>,
    slots: Mutex<Slots>,
    /// Held while an inode's backing id is decided.
    backings: Box<[Mutex<()>]>,
}

impl Inodes {
    /// The table in `memory`: empty if it is new, else as another worker left it.
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        let table = Self {
            slots: Mutex::new(Slots::default()),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            backings: (0..SHARDS).map(|_| Mutex::default()).collect(),
            memory,
        };
        table.recover();
        table
    }

    /// Finds the slots in use, after a crash.
    fn recover(&self) {
        let mut slots = lock(&self.slots);
        for slot in slots::FIRST..self.memory.slots_used() {
            let record = self.record(slot);
            if record.flags().is_live() {
                slots.occupy(slot);
                // Its watch has ended with the previous worker.
                record.flags().set_watched(Watched::Untried);
                if !record.flags().is_detached() {
                    let hash = record.identity().hash();
                    self.insert(&mut lock(self.shard(hash)), hash, slot);
                }
            } else {
                slots.leave_free(slot, &self.memory);
            }
        }
    }

    /// Adds the root of the mount.
    pub(crate) fn set_root(&self, identity: Identity) {
        let slot = InodeId::ROOT.slot();
        lock(&self.slots).occupy(slot);
        self.memory.set_slots_used(slot + 1);
        self.record(slot).write(&identity, 0, InodeId::ROOT, 0, None);
        let hash = identity.hash();
        self.insert(&mut lock(self.shard(hash)), hash, slot);
    }

    /// Another folder is the root of the mount from now on.
    pub(crate) fn replace_root(&self, identity: Identity) {
        let slot = InodeId::ROOT.slot();
        let hash = self.record(slot).identity().hash();
        self.remove(&mut lock(self.shard(hash)), hash, slot);
        self.record(slot).write(&identity, 0, InodeId::ROOT, 0, None);
        let hash = identity.hash();
        self.insert(&mut lock(self.shard(hash)), hash, slot);
    }

    /// The inode with this id, if the kernel still knows it.
    pub(crate) fn get(&self, id: InodeId) -> Result<Inode, Errno> {
        if id.slot() >= self.memory.slots_used() {
            return Err(Errno::STALE);
        }
        self.record(id.slot()).read(id).ok_or(Errno::STALE)
    }

    /// Adds a lookup of the inode with this identity, and returns its id. If it is new, `handle` takes its handle, and
    /// `keep` runs before another thread can find it.
    pub(crate) fn intern(
        &self,
        identity: &Identity,
        (parent, branch): (InodeId, u16),
        checked: bool,
        handle: impl FnOnce() -> Result<Option<FileHandle>, Errno>,
        keep: impl FnOnce(InodeId),
    ) -> Result<InodeId, Errno> {
        let hash = identity.hash();
        if let Some(id) = self.count_known(identity, hash) {
            return Ok(id);
        }
        let handle = handle()?;
        let mut shard = lock(self.shard(hash));
        if let Some(slot) = self.find(&shard, identity, hash) {
            let record = self.record(slot);
            if record.is_same(identity, handle.as_ref()) {
                record.add_lookup();
                return Ok(record.id(slot));
            }
            // The file system has reused the number. The kernel may still use the old inode.
            record.flags().detach();
            self.remove(&mut shard, hash, slot);
        }
        let slot = self.take_slot()?;
        let incarnation = self.memory.next_incarnation();
        let id = InodeId::new(slot, incarnation);
        keep(id);
        self.record(slot).write(identity, incarnation, parent, branch, handle.as_ref());
        if checked {
            self.record(slot).flags().set_checked();
        }
        self.insert(&mut shard, hash, slot);
        Ok(id)
    }

    /// Adds a lookup, if the identity alone proves that it is a known inode.
    fn count_known(&self, identity: &Identity, hash: u64) -> Option<InodeId> {
        let shard = lock(self.shard(hash));
        let slot = self.find(&shard, identity, hash)?;
        let record = self.record(slot);
        if record.needs_handle() || !record.has_identity(identity) {
            return None;
        }
        record.add_lookup();
        Some(record.id(slot))
    }

    /// The id of a known inode, without a lookup.
    pub(crate) fn find_known(&self, identity: &Identity) -> Option<InodeId> {
        let hash = identity.hash();
        let shard = lock(self.shard(hash));
        let slot = self.find(&shard, identity, hash)?;
        self.record(slot).has_identity(identity).then(|| self.record(slot).id(slot))
    }

    /// Takes lookups back; if none remain, the inode is forgotten and returned.
    pub(crate) fn forget(&self, id: InodeId, lookups: u64) -> Option<Forgotten> {
        let inode = self.get(id).ok().filter(|_| id != InodeId::ROOT)?;
        let hash = inode.identity.hash();
        let mut shard = lock(self.shard(hash));
        let record = self.record(id.slot());
        if record.take_lookups(lookups) > 0 {
            return None;
        }
        // Taken, so that no other thread closes this backing file, or another with the same id.
        let backing = self.update_backing(id, std::mem::take);
        let forgotten = Forgotten { inode, backing, watched: record.flags().watched() };
        if !record.flags().is_detached() {
            self.remove(&mut shard, hash, id.slot());
        }
        record.clear();
        lock(&self.slots).free(id.slot(), &self.memory);
        Some(forgotten)
    }

    /// Runs `decide` on the inode's backing file under a lock, and stores the result.
    pub(crate) fn update_backing<T>(
        &self,
        id: InodeId,
        decide: impl FnOnce(&mut Backing) -> T,
    ) -> T {
        let stripe = usize::try_from(id.0).unwrap_or(0) % self.backings.len();
        let _held = lock(&self.backings[stripe]);
        let record = self.record(id.slot());
        let mut backing = record.backing();
        let decided = decide(&mut backing);
        record.set_backing(backing);
        decided
    }

    /// The inodes that are open; it scans the whole table.
    pub(crate) fn open(&self) -> Vec<InodeId> {
        let records =
            (slots::FIRST..self.memory.slots_used()).map(|slot| (slot, self.record(slot)));
        let open =
            records.filter(|(_, record)| record.flags().is_live() && record.backing().opens > 0);
        open.map(|(slot, record)| record.id(slot)).collect()
    }

    /// The flags of the inode.
    pub(crate) fn flags(&self, id: InodeId) -> Flags<'_> {
        self.record(id.slot()).flags()
    }

    /// Whether a program has the inode open; `false` if it was forgotten.
    pub(crate) fn is_open(&self, id: InodeId) -> bool {
        self.get(id).is_ok() && self.record(id.slot()).backing().opens > 0
    }

    /// The fingerprint of the attributes that the kernel got last.
    pub(crate) fn cached_fingerprint(&self, id: InodeId) -> u64 {
        self.record(id.slot()).cached_fingerprint()
    }

    pub(crate) fn set_cached_fingerprint(&self, id: InodeId, fingerprint: u64) {
        self.record(id.slot()).set_cached_fingerprint(fingerprint);
    }

    /// The time up to which all changes are known to come through the mount, nanoseconds since 1970.
    pub(crate) fn own_changes_until(&self, id: InodeId) -> u64 {
        self.record(id.slot()).own_changes_until()
    }

    pub(crate) fn set_own_changes_until(&self, id: InodeId, until: u64) {
        self.record(id.slot()).set_own_changes_until(until);
    }

    /// How many inodes the kernel knows.
    pub(crate) fn len(&self) -> usize {
        lock(&self.slots).live()
    }

    fn take_slot(&self) -> Result<u32, Errno> {
        let slot = lock(&self.slots).take(&self.memory).ok_or(Errno::NFILE)?;
        self.memory.set_slots_used(slot + 1);
        Ok(slot)
    }

    fn record(&self, slot: u32) -> Record<'_> {
        Record::new(self.memory.slot(slot))
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<u32>> {
        &self.shards[(hash >> 48) as usize % self.shards.len()]
    }

    /// The slot with this volume and number; the rest of its identity may differ.
    fn find(&self, shard: &HashTable<u32>, identity: &Identity, hash: u64) -> Option<u32> {
        shard.find(hash, |&slot| self.record(slot).has_number(identity)).copied()
    }

    fn insert(&self, shard: &mut HashTable<u32>, hash: u64, slot: u32) {
        shard.insert_unique(hash, slot, |&slot| self.record(slot).identity().hash());
    }

    fn remove(&self, shard: &mut HashTable<u32>, hash: u64, slot: u32) {
        if let Ok(entry) = shard.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
        if shard.capacity() > 64 && shard.len() < shard.capacity() / 8 {
            shard.shrink_to(shard.len() * 2, |&slot| self.record(slot).identity().hash());
        }
    }
}

/// Locks a mutex, also a poisoned one: no request panics between two steps of a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
