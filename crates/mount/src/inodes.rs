//! The table of inodes that the kernel knows, with their lookup counts.
//!
//! The table is in memory that the supervisor holds, so that the next worker finds it after a crash. An inode is found
//! by its **identity** (file system, number, time of birth), and opened by its file handle. Inodes need no open
//! descriptor, so `RLIMIT_NOFILE` does not limit their number.
//!
//! Reading order: [`inode`], [`flags`], [`record`], [`slots`], [`own_changes`].

mod flags;
mod inode;
mod own_changes;
mod record;
mod slots;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use rustix::io::Errno;
use thruway_sys::handle::FileHandle;

use crate::memory::Memory;
use flags::Flags;
use own_changes::OwnChanges;
use record::Record;
use slots::Slots;

pub(crate) use flags::WatchState;
pub(crate) use inode::{Identity, Inode, InodeId};
pub(crate) use record::{BackingState, WORDS as RECORD_WORDS};

/// The number of locks. With more locks than CPUs, threads rarely contend.
const SHARDS: usize = 64;

/// An inode that the kernel has just forgotten, with the state to clean up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForgottenInode {
    pub(crate) inode: Inode,
    pub(crate) backing: BackingState,
    pub(crate) watched: WatchState,
}

#[derive(Debug)]
pub(crate) struct Inodes {
    memory: Arc<Memory>,
    /// Slots by identity.
    shards: Box<[Mutex<HashTable<u32>>]>,
    slots: Mutex<Slots>,
    /// Held while an inode's backing file is chosen.
    backings: Box<[Mutex<()>]>,
    own_changes: OwnChanges,
}

impl Inodes {
    /// Opens the table in `memory`, which is empty if the memory is new, and otherwise in the state that another worker
    /// left.
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        let table = Self {
            slots: Mutex::new(Slots::default()),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            backings: (0..SHARDS).map(|_| Mutex::default()).collect(),
            own_changes: OwnChanges::default(),
            memory,
        };
        table.recover();
        table
    }

    /// Finds the slots in use after a crash.
    fn recover(&self) {
        let mut slots = lock(&self.slots);
        for slot in slots::FIRST..self.memory.slots_used() {
            let record = self.record(slot);
            if record.flags().is_live() {
                slots.occupy(slot);
                // The watch has ended with the previous worker.
                record.flags().set_watched(WatchState::Untried);
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

    /// Makes another folder the root of the mount.
    pub(crate) fn replace_root(&self, identity: Identity) {
        let slot = InodeId::ROOT.slot();
        let hash = self.record(slot).identity().hash();
        self.remove(&mut lock(self.shard(hash)), hash, slot);
        self.record(slot).write(&identity, 0, InodeId::ROOT, 0, None);
        let hash = identity.hash();
        self.insert(&mut lock(self.shard(hash)), hash, slot);
    }

    /// Returns the inode with this id, if the kernel still knows it.
    pub(crate) fn get(&self, id: InodeId) -> Result<Inode, Errno> {
        if id.slot() >= self.memory.slots_used() {
            return Err(Errno::STALE);
        }
        self.record(id.slot()).read(id).ok_or(Errno::STALE)
    }

    /// Adds a lookup to the inode with this identity, and returns its id. If the inode is new, `handle` returns its
    /// handle, and `keep` runs before another thread can find the inode.
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
        if let Some(until) = self.own_changes.take(identity, handle.as_ref()) {
            self.record(slot).set_own_changes_until(until);
        }
        self.insert(&mut shard, hash, slot);
        Ok(id)
    }

    /// Adds a lookup if the identity alone proves that the inode is known.
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

    /// Returns the id of a known inode, without adding a lookup.
    pub(crate) fn find_known(&self, identity: &Identity) -> Option<InodeId> {
        let hash = identity.hash();
        let shard = lock(self.shard(hash));
        let slot = self.find(&shard, identity, hash)?;
        self.record(slot).has_identity(identity).then(|| self.record(slot).id(slot))
    }

    /// Subtracts lookups. If none remain, the inode is removed from the table and returned.
    pub(crate) fn forget(&self, id: InodeId, lookups: u64) -> Option<ForgottenInode> {
        let inode = self.get(id).ok().filter(|_| id != InodeId::ROOT)?;
        let hash = inode.identity.hash();
        let mut shard = lock(self.shard(hash));
        let record = self.record(id.slot());
        if record.take_lookups(lookups) > 0 {
            return None;
        }
        // The backing file is taken out of the record, so that no other thread closes it, or another file with the same
        // id.
        let backing = self.update_backing(id, std::mem::take);
        let forgotten = ForgottenInode { inode, backing, watched: record.flags().watched() };
        if !record.flags().is_detached() {
            self.remove(&mut shard, hash, id.slot());
        }
        self.own_changes.keep(&inode.identity, inode.handle, record.own_changes_until());
        record.clear();
        lock(&self.slots).free(id.slot(), &self.memory);
        Some(forgotten)
    }

    /// Gives the inode another file, with the same content, in this branch. `switch` runs once the inode has the new
    /// file, while no open can be added. Returns the backing file that is not needed any more, or `None` if the kernel
    /// moves the data of an open of the former file.
    pub(crate) fn relocate(
        &self,
        id: InodeId,
        identity: &Identity,
        branch: u16,
        handle: Option<&FileHandle>,
        switch: impl FnOnce(),
    ) -> Result<Option<i32>, Errno> {
        let before = self.get(id)?.identity.hash();
        let after = identity.hash();
        // The order of locks is that of the table, and an inode's shard comes before its backing file, as in `forget`.
        let mut shards = self.lock_shards([before, after]);
        let _held = lock(&self.backings[self.stripe(id)]);
        let record = self.record(id.slot());
        let mut backing = record.backing();
        if backing.opens > 0 && backing.id > 0 {
            return Ok(None);
        }
        let unused = if backing.id > 0 { std::mem::take(&mut backing.id) } else { 0 };
        if !record.flags().is_detached() {
            self.remove(shards.of(before), before, id.slot());
        }
        record.replace_file(identity, branch, handle);
        record.set_backing(backing);
        self.insert(shards.of(after), after, id.slot());
        // The new file is known by now, so a descriptor that is opened from here on is one of the new file.
        switch();
        Ok(Some(unused))
    }

    /// Gives a folder's inode another folder, unless that one is known as an inode of its own. `switch` runs once the
    /// inode has the new folder.
    pub(crate) fn follow_folder(
        &self,
        id: InodeId,
        identity: &Identity,
        branch: u16,
        handle: Option<&FileHandle>,
        switch: impl FnOnce(),
    ) {
        let Ok(inode) = self.get(id) else { return };
        let (before, after) = (inode.identity.hash(), identity.hash());
        let mut shards = self.lock_shards([before, after]);
        let record = self.record(id.slot());
        // Otherwise the kernel has forgotten the inode, or another thread has changed it.
        let is_unchanged = self.get(id).is_ok_and(|now| now.identity == inode.identity);
        if !is_unchanged || record.flags().is_detached() {
            return;
        }
        if let Some(other) = self.find(shards.of(after), identity, after)
            && other != id.slot()
        {
            if self.record(other).has_identity(identity) {
                return;
            }
            // The file system has reused the number, as in `intern`.
            self.record(other).flags().detach();
            self.remove(shards.of(after), after, other);
        }
        self.remove(shards.of(before), before, id.slot());
        record.replace_file(identity, branch, handle);
        self.insert(shards.of(after), after, id.slot());
        switch();
    }

    /// Gives the inode another file under whose identity it is not found, since the kernel moves the data of an open of
    /// the former file.
    pub(crate) fn follow(
        &self,
        id: InodeId,
        identity: &Identity,
        branch: u16,
        handle: Option<&FileHandle>,
    ) {
        self.detach(id);
        if self.get(id).is_ok() {
            let record = self.record(id.slot());
            record.replace_file(identity, branch, handle);
            record.flags().detach();
        }
    }

    /// Removes the inode from the table of identities: its file has been replaced by another one.
    pub(crate) fn detach(&self, id: InodeId) {
        let Ok(inode) = self.get(id) else { return };
        let hash = inode.identity.hash();
        let mut shard = lock(self.shard(hash));
        let flags = self.record(id.slot()).flags();
        if !flags.is_detached() {
            flags.detach();
            self.remove(&mut shard, hash, id.slot());
        }
    }

    /// Runs `decide` on the inode's backing file under a lock, and stores the result.
    pub(crate) fn update_backing<T>(
        &self,
        id: InodeId,
        decide: impl FnOnce(&mut BackingState) -> T,
    ) -> T {
        let _held = lock(&self.backings[self.stripe(id)]);
        let record = self.record(id.slot());
        let mut backing = record.backing();
        let decided = decide(&mut backing);
        record.set_backing(backing);
        decided
    }

    /// Returns the inodes that are open, by a scan of the whole table.
    pub(crate) fn open(&self) -> Vec<InodeId> {
        let records =
            (slots::FIRST..self.memory.slots_used()).map(|slot| (slot, self.record(slot)));
        let open =
            records.filter(|(_, record)| record.flags().is_live() && record.backing().opens > 0);
        open.map(|(slot, record)| record.id(slot)).collect()
    }

    /// Returns the flags of the inode.
    pub(crate) fn flags(&self, id: InodeId) -> Flags<'_> {
        self.record(id.slot()).flags()
    }

    /// Whether a program has the inode open; `false` if the inode was forgotten.
    pub(crate) fn is_open(&self, id: InodeId) -> bool {
        self.get(id).is_ok() && self.record(id.slot()).backing().opens > 0
    }

    /// Returns the fingerprint of the attributes that the kernel received last.
    pub(crate) fn cached_fingerprint(&self, id: InodeId) -> u64 {
        self.record(id.slot()).cached_fingerprint()
    }

    pub(crate) fn set_cached_fingerprint(&self, id: InodeId, fingerprint: u64) {
        self.record(id.slot()).set_cached_fingerprint(fingerprint);
    }

    /// Returns the time up to which all changes are known to come through the mount, in nanoseconds since 1970.
    pub(crate) fn own_changes_until(&self, id: InodeId) -> u64 {
        self.record(id.slot()).own_changes_until()
    }

    pub(crate) fn set_own_changes_until(&self, id: InodeId, until: u64) {
        self.record(id.slot()).set_own_changes_until(until);
    }

    /// Returns the number of inodes that the kernel knows.
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

    /// Locks the shards of these hashes, in the order of the table.
    fn lock_shards(&self, hashes: [u64; 2]) -> LockedShards<'_> {
        let mut indexes = hashes.map(shard_index).to_vec();
        indexes.sort_unstable();
        indexes.dedup();
        let shards = indexes.iter().map(|&index| lock(&self.shards[index])).collect();
        LockedShards { indexes, shards }
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<u32>> {
        &self.shards[shard_index(hash)]
    }

    fn stripe(&self, id: InodeId) -> usize {
        usize::try_from(id.0).unwrap_or(0) % self.backings.len()
    }

    /// Returns the slot with this volume and number. The rest of the identity may differ.
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

/// Shards that are locked together.
struct LockedShards<'a> {
    indexes: Vec<usize>,
    shards: Vec<MutexGuard<'a, HashTable<u32>>>,
}

impl LockedShards<'_> {
    /// Returns the shard of one of the hashes for which the shards were locked.
    fn of(&mut self, hash: u64) -> &mut HashTable<u32> {
        let index = shard_index(hash);
        let place = self.indexes.iter().position(|&other| other == index);
        &mut self.shards[place.expect("the shard is locked")]
    }
}

fn shard_index(hash: u64) -> usize {
    (hash >> 48) as usize % SHARDS
}

/// Locks a mutex, even a poisoned one. A poisoned state is consistent, since no request panics between two steps of a
/// change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
