//! The names of each inode.
//!
//! Names are kept for merged sources, for policies, whose rules concern paths, and for files that cannot be opened by
//! handle. Without a policy, the last used name suffices.

use std::ffi::CString;
use std::sync::Mutex;

use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};

/// The number of locks. With more locks than CPUs, threads rarely contend.
const SHARDS: usize = 16;
/// The maximum number of components in a path, which ends a loop in the table.
const DEPTH_MAX: usize = 2048;
/// The maximum number of names that are kept of an inode. If an inode has more, some names are unknown.
const NAMES_MAX: usize = 64;

/// A name in a folder. Empty for a file that was created in the folder without a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) parent: InodeId,
    pub(crate) name: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Shard {
    /// The last used name of each inode.
    last: IdMap<Name>,
    /// The other names of an inode, if it has any.
    others: IdMap<Vec<Name>>,
}

#[derive(Debug)]
pub(crate) struct Names {
    shards: Box<[Mutex<Shard>]>,
}

impl Default for Names {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Names {
    /// Remembers a name of the inode. With `is_only`, the inode has no other names.
    pub(crate) fn remember(&self, id: InodeId, parent: InodeId, name: &[u8], is_only: bool) {
        let mut shard = lock(self.shard(id));
        let shard = &mut *shard;
        if is_only {
            shard.others.remove(&id.0);
        }
        if let Some(last) = shard.last.get_mut(&id.0)
            && (is_only || last.name.is_empty() || &*last.name == name && last.parent == parent)
        {
            last.parent = parent;
            if &*last.name != name {
                last.name = name.into();
            }
            return;
        }
        let name = Name { parent, name: name.into() };
        let before = shard.last.insert(id.0, name.clone());
        let Some(before) = before else { return };
        let others = shard.others.entry(id.0).or_default();
        others.retain(|other| *other != name);
        if others.len() < NAMES_MAX {
            others.push(before);
        }
    }

    /// Returns the last used name and its folder.
    pub(crate) fn get(&self, id: InodeId) -> Option<(InodeId, CString)> {
        let shard = lock(self.shard(id));
        let known = shard.last.get(&id.0)?;
        Some((known.parent, CString::new(&*known.name).ok()?))
    }

    /// Returns all known names if there are several.
    pub(crate) fn several(&self, id: InodeId) -> Option<Vec<Name>> {
        let shard = lock(self.shard(id));
        let others = shard.others.get(&id.0)?;
        Some(others.iter().chain(shard.last.get(&id.0)).cloned().collect())
    }

    /// Forgets a name that was removed from the inode. The only known name is kept, since the file may be open.
    pub(crate) fn forget_name(&self, id: InodeId, parent: InodeId, name: &[u8]) {
        let mut shard = lock(self.shard(id));
        let shard = &mut *shard;
        let (Some(last), Some(others)) = (shard.last.get_mut(&id.0), shard.others.get_mut(&id.0))
        else {
            return;
        };
        if others.len() >= NAMES_MAX {
            // Some names are unknown, and dropping one would make the list seem complete.
            return;
        }
        let gone = Name { parent, name: name.into() };
        others.retain(|other| *other != gone);
        if *last == gone
            && let Some(other) = others.pop()
        {
            *last = other;
        }
        if others.is_empty() {
            shard.others.remove(&id.0);
        }
    }

    pub(crate) fn forget(&self, id: InodeId) {
        let mut shard = lock(self.shard(id));
        shard.last.remove(&id.0);
        shard.others.remove(&id.0);
    }

    /// Returns the path below the mount's root, without a leading slash; empty for the root. Returns `None` if a name
    /// on the path is unknown.
    pub(crate) fn path(&self, id: InodeId) -> Option<Vec<u8>> {
        let mut components = Vec::new();
        let mut id = id;
        while id != InodeId::ROOT {
            if components.len() == DEPTH_MAX {
                return None;
            }
            let shard = lock(self.shard(id));
            let known = shard.last.get(&id.0)?;
            components.push(known.name.clone());
            id = known.parent;
        }
        components.reverse();
        Some(components.join(&b'/'))
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits of the number will do")]
    fn shard(&self, id: InodeId) -> &Mutex<Shard> {
        &self.shards[id.0 as usize % SHARDS]
    }
}

impl Name {
    /// Whether the inode has so many names that some may be unknown.
    pub(crate) fn are_too_many(names: &[Self]) -> bool {
        names.len() > NAMES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_names_up_to_the_root() {
        let names = Names::default();
        names.remember(InodeId(2), InodeId::ROOT, b"a", true);
        names.remember(InodeId(3), InodeId(2), b"b", true);
        assert_eq!(names.path(InodeId(3)), Some(b"a/b".to_vec()));
        names.remember(InodeId(2), InodeId::ROOT, b"renamed", true);
        assert_eq!(names.path(InodeId(3)), Some(b"renamed/b".to_vec()));
        assert_eq!(names.path(InodeId::ROOT), Some(Vec::new()));
        names.forget(InodeId(2));
        assert_eq!(names.path(InodeId(3)), None);
    }

    #[test]
    fn a_loop_ends() {
        let names = Names::default();
        names.remember(InodeId(2), InodeId(3), b"a", true);
        names.remember(InodeId(3), InodeId(2), b"b", true);
        assert_eq!(names.path(InodeId(3)), None);
    }

    #[test]
    fn all_names_are_kept_until_the_file_has_only_one() {
        let (names, id) = (Names::default(), InodeId(2));
        let known = || {
            let several = names.several(id).unwrap_or_default();
            let mut known: Vec<_> = several.into_iter().map(|name| name.name.to_vec()).collect();
            known.sort();
            known
        };
        names.remember(id, InodeId::ROOT, b"", true);
        [b"a", b"b", b"a", b"c"]
            .iter()
            .for_each(|name| names.remember(id, InodeId::ROOT, *name, false));
        assert_eq!(known(), [b"a", b"b", b"c"]);
        names.remember(id, InodeId::ROOT, b"d", true);
        assert_eq!((known().len(), names.path(id)), (0, Some(b"d".to_vec())));
    }

    #[test]
    fn a_name_that_is_gone_is_forgotten_unless_it_is_the_only_one() {
        let (names, id) = (Names::default(), InodeId(2));
        [b"a", b"b", b"c"].iter().for_each(|name| names.remember(id, InodeId::ROOT, *name, false));
        names.forget_name(id, InodeId(3), b"a");
        assert_eq!(names.several(id).unwrap().len(), 3);
        names.forget_name(id, InodeId::ROOT, b"c");
        names.forget_name(id, InodeId::ROOT, b"a");
        assert_eq!((names.several(id), names.path(id)), (None, Some(b"b".to_vec())));
        names.forget_name(id, InodeId::ROOT, b"b");
        assert_eq!(names.path(id), Some(b"b".to_vec()));
    }

    #[test]
    fn of_too_many_names_not_all_are_known() {
        let (names, id) = (Names::default(), InodeId(2));
        for name in 0..=NAMES_MAX as u8 {
            names.remember(id, InodeId::ROOT, &[name + 1], false);
        }
        names.forget_name(id, InodeId::ROOT, &[1]);
        assert!(Name::are_too_many(&names.several(id).unwrap()));
    }
}
