//! The last name of a file that each thread has looked up.

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thruway_fuse::{Caller, Operation};

use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};
use crate::names::Name;

/// Most threads whose last look-up of a file with several names is known; if there are more, all are dropped.
const WALKS_MAX: usize = 1 << 12;

/// The names in use under a policy.
#[derive(Debug, Default)]
pub(super) struct Walks {
    /// For each thread, its last look-up of a file with several names.
    last: Mutex<IdMap<Walk>>,
    /// Held for reading while a name is looked up and remembered, for writing while a new name is checked and made.
    naming: RwLock<()>,
}

#[derive(Debug)]
struct Walk {
    uid: u32,
    id: InodeId,
    name: Name,
}

/// A guard that keeps names as they are.
#[expect(dead_code, reason = "the guards are held, not used")]
pub(super) enum NamesHeld<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl Walks {
    /// Notes the name by which the caller has looked up a file with several names.
    pub(super) fn note(&self, caller: &Caller, id: InodeId, parent: InodeId, name: &CStr) {
        // A thread in another PID namespace has no number here.
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

    /// The name by which this thread has looked up the inode last.
    pub(super) fn name_used(&self, caller: &Caller, id: InodeId) -> Option<Name> {
        let last = lock(&self.last);
        let walk = last.get(&u64::from(caller.pid))?;
        (walk.id == id && walk.uid == caller.uid).then(|| walk.name.clone())
    }

    /// Locks names for as long as the operation takes. Otherwise a look-up that a rename overtakes would remember the
    /// old name.
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
