//! Which name of a file each thread has used last.

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thruway_fuse::{Caller, Operation};

use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};
use crate::names::Name;

/// Threads whose last look-up of a file with several names is known; when there are more, all are forgotten.
const WALKS_MAX: usize = 1 << 12;

/// What is known of names while a policy is in force.
#[derive(Debug, Default)]
pub(super) struct Walks {
    /// Which name of a file with several each thread has looked up last.
    last: Mutex<IdMap<Walk>>,
    /// Held for reading while a name is looked up and remembered, for writing while one is judged and given.
    naming: RwLock<()>,
}

#[derive(Debug)]
struct Walk {
    uid: u32,
    id: InodeId,
    name: Name,
}

/// Keeps names as they are, or other threads from looking at them.
#[expect(dead_code, reason = "the guards are held, not used")]
pub(super) enum NamesHeld<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl Walks {
    /// Remembers which name of a file with several the caller has looked up.
    pub(super) fn note(&self, caller: &Caller, id: InodeId, parent: InodeId, name: &CStr) {
        // A thread that is in no namespace of ours has no number.
        if caller.pid == 0 {
            return;
        }
        let name = Name { parent, name: name.to_bytes().into() };
        let mut last = lock(&self.last);
        if last.len() >= WALKS_MAX {
            last.clear();
        }
        last.insert(u64::from(caller.pid), Walk { uid: caller.uid, id, name });
    }

    /// The name of the inode that this thread has looked up last.
    pub(super) fn name_used(&self, caller: &Caller, id: InodeId) -> Option<Name> {
        let last = lock(&self.last);
        let walk = last.get(&u64::from(caller.pid))?;
        (walk.id == id && walk.uid == caller.uid).then(|| walk.name.clone())
    }

    /// Holds names for as long as the operation takes. A look-up that a rename overtakes would otherwise remember
    /// the old name.
    pub(super) fn hold_names(&self, operation: &Operation<'_>) -> Option<NamesHeld<'_>> {
        match operation {
            Operation::Lookup { .. } | Operation::ReadDirPlus(_) => {
                let held = self.naming.read().unwrap_or_else(PoisonError::into_inner);
                Some(NamesHeld::Shared(held))
            }
            Operation::Rename { .. } | Operation::Link { .. } => Some(self.hold_alone()),
            _ => None,
        }
    }

    /// Keeps other threads from looking at names.
    pub(super) fn hold_alone(&self) -> NamesHeld<'_> {
        NamesHeld::Alone(self.naming.write().unwrap_or_else(PoisonError::into_inner))
    }
}
