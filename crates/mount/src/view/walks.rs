//! The last name by which each thread has looked up a file with several names.

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thruway_fuse::{Caller, Operation};

use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};
use crate::names::Name;

/// The maximum number of threads whose last lookup is kept. If there are more, all are dropped.
const WALKS_MAX: usize = 1 << 12;

/// The names in use under a policy.
#[derive(Debug, Default)]
pub(super) struct Walks {
    /// The last lookup of a file with several names, by thread.
    last: Mutex<IdMap<FolderWalk>>,
    /// Held for reading while a name is looked up and remembered, and for writing while a new name is checked and
    /// created.
    naming: RwLock<()>,
}

#[derive(Debug)]
struct FolderWalk {
    uid: u32,
    id: InodeId,
    name: Name,
}

/// A guard that keeps names unchanged.
#[expect(dead_code, reason = "the guards are held, not used")]
pub(super) enum NameGuard<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl Walks {
    /// Notes the name by which the caller has looked up a file with several names.
    pub(super) fn note(&self, caller: &Caller, id: InodeId, parent: InodeId, name: &CStr) {
        // A thread in another PID namespace has no id in this one.
        if caller.pid == 0 {
            return;
        }
        let name = Name { parent, name: name.to_bytes().into() };
        let mut last = lock(&self.last);
        if last.len() >= WALKS_MAX {
            last.clear();
        }
        last.insert(u64::from(caller.pid), FolderWalk { uid: caller.uid, id, name });
    }

    /// Returns the name by which this thread last looked up the inode.
    pub(super) fn name_used(&self, caller: &Caller, id: InodeId) -> Option<Name> {
        let last = lock(&self.last);
        let walk = last.get(&u64::from(caller.pid))?;
        (walk.id == id && walk.uid == caller.uid).then(|| walk.name.clone())
    }

    /// Locks names for the duration of the operation. Otherwise, a lookup that is overtaken by a rename would remember
    /// the old name.
    pub(super) fn hold_names(&self, operation: &Operation<'_>) -> Option<NameGuard<'_>> {
        match operation {
            Operation::Lookup { .. } | Operation::ReadDirPlus(_) => {
                let held = self.naming.read().unwrap_or_else(PoisonError::into_inner);
                Some(NameGuard::Shared(held))
            }
            Operation::Rename { .. } | Operation::Link { .. } => Some(self.hold_alone()),
            _ => None,
        }
    }

    /// Locks names exclusively.
    pub(super) fn hold_alone(&self) -> NameGuard<'_> {
        NameGuard::Alone(self.naming.write().unwrap_or_else(PoisonError::into_inner))
    }
}
