//! A bounded cache of open descriptors of inodes.
//!
//! The cache has two generations. A descriptor that is used moves to the young generation. When the young generation is
//! full, or after some seconds, the old generation is closed and the young one takes its place. So a descriptor is
//! closed soon after its last use, and a deleted file releases its space.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use crate::id_map::MixedMap;
use crate::inodes::{InodeId, lock};

/// The number of locks. With more locks than CPUs, threads rarely contend.
const SHARDS: usize = 16;

/// The owner of a descriptor: an inode, or a branch's part of a folder. The inode id includes an incarnation, so a
/// reused slot is another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    id: InodeId,
    branch: u16,
}

impl From<InodeId> for Owner {
    fn from(id: InodeId) -> Self {
        Self { id, branch: 0 }
    }
}

impl From<(InodeId, u16)> for Owner {
    fn from((id, branch): (InodeId, u16)) -> Self {
        Self { id, branch }
    }
}

type Generation = MixedMap<Owner, Arc<OwnedFd>>;

#[derive(Debug)]
pub(crate) struct Descriptors {
    shards: Box<[Mutex<Shard>]>,
    young_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    young: Generation,
    old: Generation,
}

impl Descriptors {
    /// Creates a cache of at most about `descriptors_max` descriptors.
    pub(crate) fn new(descriptors_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, young_max: (descriptors_max / SHARDS / 2).max(1) }
    }

    pub(crate) fn get(&self, owner: impl Into<Owner>) -> Option<Arc<OwnedFd>> {
        let owner = owner.into();
        let mut shard = lock(self.shard(owner));
        if let Some(found) = shard.young.get(&owner) {
            return Some(Arc::clone(found));
        }
        let found = shard.old.remove(&owner)?;
        shard.put(owner, Arc::clone(&found), self.young_max);
        Some(found)
    }

    pub(crate) fn put(&self, owner: impl Into<Owner>, descriptor: Arc<OwnedFd>) {
        let owner = owner.into();
        let closed = lock(self.shard(owner)).put(owner, descriptor, self.young_max);
        // The descriptors are closed after the lock is released.
        drop(closed);
    }

    pub(crate) fn remove(&self, owner: impl Into<Owner>) {
        let owner = owner.into();
        let mut shard = lock(self.shard(owner));
        let removed = (shard.young.remove(&owner), shard.old.remove(&owner));
        drop(shard);
        drop(removed);
    }

    /// Closes all descriptors.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let closed = mem::take(&mut *lock(shard));
            drop(closed);
        }
    }

    /// Closes the descriptors that were not used since the last call.
    pub(crate) fn age(&self) {
        for shard in &self.shards {
            let closed = lock(shard).turn();
            drop(closed);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits of the number will do")]
    fn shard(&self, owner: Owner) -> &Mutex<Shard> {
        &self.shards[owner.id.0 as usize % SHARDS]
    }
}

impl Shard {
    fn put(&mut self, owner: Owner, descriptor: Arc<OwnedFd>, young_max: usize) -> Generation {
        let full = self.young.len() >= young_max;
        let closed = if full { self.turn() } else { Generation::default() };
        self.young.insert(owner, descriptor);
        closed
    }

    fn turn(&mut self) -> Generation {
        mem::replace(&mut self.old, mem::take(&mut self.young))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn descriptor() -> Arc<OwnedFd> {
        Arc::new(File::open("/dev/null").unwrap().into())
    }

    #[test]
    fn used_descriptors_stay_and_unused_ones_are_closed() {
        let descriptors = Descriptors::new(1000);
        descriptors.put(InodeId(1), descriptor());
        descriptors.put(InodeId(2), descriptor());
        for _ in 0..3 {
            assert!(descriptors.get(InodeId(1)).is_some());
            descriptors.age();
        }
        assert!(descriptors.get(InodeId(1)).is_some());
        assert!(descriptors.get(InodeId(2)).is_none());
    }

    #[test]
    fn there_are_never_more_descriptors_than_allowed() {
        let descriptors = Descriptors::new(SHARDS * 4);
        let one = descriptor();
        for id in 0..10_000 {
            descriptors.put(InodeId(id), Arc::clone(&one));
        }
        assert!(Arc::strong_count(&one) <= SHARDS * 4 + 1);
    }
}
