//! By which name each inode was last looked up.
//!
//! Kept only where it is needed: for a policy that goes by paths, and where files cannot be opened by
//! handle. A file with several names has the one that was used last.

use std::ffi::CString;
use std::sync::Mutex;

use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};

/// Locks; more than there are processors, so that they rarely meet.
const SHARDS: usize = 16;
/// Longest path in components: a loop in the table would never end.
const DEPTH_MAX: usize = 2048;

#[derive(Debug)]
struct Name {
    parent: InodeId,
    name: Box<[u8]>,
}

#[derive(Debug)]
pub(crate) struct Names {
    shards: Box<[Mutex<IdMap<Name>>]>,
}

impl Default for Names {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Names {
    pub(crate) fn remember(&self, id: InodeId, parent: InodeId, name: &[u8]) {
        let mut shard = lock(self.shard(id));
        match shard.get_mut(&id.0) {
            Some(known) if &*known.name == name => known.parent = parent,
            _ => drop(shard.insert(id.0, Name { parent, name: name.into() })),
        }
    }

    /// The folder and the name in it.
    pub(crate) fn get(&self, id: InodeId) -> Option<(InodeId, CString)> {
        let shard = lock(self.shard(id));
        let known = shard.get(&id.0)?;
        Some((known.parent, CString::new(&*known.name).ok()?))
    }

    pub(crate) fn forget(&self, id: InodeId) {
        lock(self.shard(id)).remove(&id.0);
    }

    /// The path below the mount's root, without a slash at its start; empty for the root. `None` if
    /// a name on the way is not known.
    pub(crate) fn path(&self, id: InodeId) -> Option<Vec<u8>> {
        let mut components = Vec::new();
        let mut id = id;
        while id != InodeId::ROOT {
            if components.len() == DEPTH_MAX {
                return None;
            }
            let shard = lock(self.shard(id));
            let known = shard.get(&id.0)?;
            components.push(known.name.clone());
            id = known.parent;
        }
        components.reverse();
        Some(components.join(&b'/'))
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits of the number will do")]
    fn shard(&self, id: InodeId) -> &Mutex<IdMap<Name>> {
        &self.shards[id.0 as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_names_up_to_the_root() {
        let names = Names::default();
        names.remember(InodeId(2), InodeId::ROOT, b"a");
        names.remember(InodeId(3), InodeId(2), b"b");
        assert_eq!(names.path(InodeId(3)), Some(b"a/b".to_vec()));
        names.remember(InodeId(2), InodeId::ROOT, b"renamed");
        assert_eq!(names.path(InodeId(3)), Some(b"renamed/b".to_vec()));
        assert_eq!(names.path(InodeId::ROOT), Some(Vec::new()));
        names.forget(InodeId(2));
        assert_eq!(names.path(InodeId(3)), None);
    }

    #[test]
    fn a_loop_has_an_end() {
        let names = Names::default();
        names.remember(InodeId(2), InodeId(3), b"a");
        names.remember(InodeId(3), InodeId(2), b"b");
        assert_eq!(names.path(InodeId(3)), None);
    }
}
