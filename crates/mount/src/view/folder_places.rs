//! The inodes of folders by their places.

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};

/// The inodes of folders by place: the folder above, and the name. Two places may share an entry, so an inode that is
/// found has to be checked.
#[derive(Debug, Default)]
pub(super) struct FolderPlaces {
    /// By the hash of the place, which is seeded at random, since users choose the names.
    ids: Mutex<IdMap<InodeId>>,
    hasher: RandomState,
}

impl FolderPlaces {
    /// Notes the place of a folder, and returns the other inode that may have had the place before.
    pub(super) fn insert(&self, parent: InodeId, name: &[u8], id: InodeId) -> Option<InodeId> {
        let before = lock(&self.ids).insert(self.hash(parent, name), id);
        before.filter(|before| *before != id)
    }

    /// Returns an inode that may have this place.
    pub(super) fn find(&self, parent: InodeId, name: &[u8]) -> Option<InodeId> {
        lock(&self.ids).get(&self.hash(parent, name)).copied()
    }

    /// Removes the place, unless another folder has it by now.
    pub(super) fn remove(&self, parent: InodeId, name: &[u8], id: InodeId) {
        let hash = self.hash(parent, name);
        let mut ids = lock(&self.ids);
        if ids.get(&hash) == Some(&id) {
            ids.remove(&hash);
        }
    }

    fn hash(&self, parent: InodeId, name: &[u8]) -> u64 {
        self.hasher.hash_one((parent.0, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_another_folder_has_taken_stays_that_folders() {
        let (places, one, other) = (FolderPlaces::default(), InodeId(7), InodeId(8));
        places.insert(InodeId::ROOT, b"name", one);
        assert_eq!(places.find(InodeId::ROOT, b"name"), Some(one));
        assert_eq!((places.find(one, b"name"), places.find(InodeId::ROOT, b"other")), (None, None));
        places.insert(InodeId::ROOT, b"name", other);
        places.remove(InodeId::ROOT, b"name", one);
        assert_eq!(places.find(InodeId::ROOT, b"name"), Some(other));
        places.remove(InodeId::ROOT, b"name", other);
        assert_eq!(places.find(InodeId::ROOT, b"name"), None);
    }
}
