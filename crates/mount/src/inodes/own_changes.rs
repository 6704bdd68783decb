//! The times up to which changes are known to come through the mount, of inodes that the kernel has forgotten.
//!
//! When the kernel looks up all names once more, it forgets the inodes in between. Without that time, the attributes of
//! a file that was just written through the mount would not be cached: another program might still write to it.

use std::mem;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use thruway_sys::handle::FileHandle;

use super::inode::Identity;
use crate::id_map::IdMap;

/// The maximum number of inodes in a generation: some 100 KiB.
const GENERATION_MAX: usize = 1024;

/// A bounded table in two generations. When the young one is full, it replaces the old one.
#[derive(Debug, Default)]
pub(super) struct OwnChanges {
    generations: Mutex<Generations>,
    /// Whether the table has an inode. Mostly it has none, and then no lock is taken.
    is_used: AtomicBool,
}

#[derive(Debug, Default)]
struct Generations {
    young: IdMap<ForgottenFile>,
    old: IdMap<ForgottenFile>,
}

/// A file that the kernel has forgotten.
#[derive(Debug)]
struct ForgottenFile {
    identity: Identity,
    handle: Option<FileHandle>,
    until: u64,
}

impl OwnChanges {
    /// A poisoned table is consistent: no step of a change panics.
    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the time for a file. Without a handle, a file that is young may be taken for another one.
    pub(super) fn keep(&self, identity: &Identity, handle: Option<FileHandle>, until: u64) {
        if until == 0 || identity.is_folder() || identity.young && handle.is_none() {
            return;
        }
        let mut generations = self.generations();
        if generations.young.len() >= GENERATION_MAX {
            generations.old = mem::take(&mut generations.young);
        }
        let file = ForgottenFile { identity: *identity, handle, until };
        generations.young.insert(identity.hash(), file);
        self.is_used.store(true, Relaxed);
    }

    /// Takes the time of a file.
    pub(super) fn take(&self, identity: &Identity, handle: Option<&FileHandle>) -> Option<u64> {
        if !self.is_used.load(Relaxed) {
            return None;
        }
        let mut generations = self.generations();
        let Generations { young, old } = &mut *generations;
        let hash = identity.hash();
        let taken = young.remove(&hash).or_else(|| old.remove(&hash));
        self.is_used.store(!young.is_empty() || !old.is_empty(), Relaxed);
        let is_it = |file: &ForgottenFile| {
            file.identity.is_same_file(identity) && file.handle.as_ref() == handle
        };
        taken.filter(is_it).map(|file| file.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(number: u64) -> Identity {
        Identity { volume: 0, number, birth: 5, kind: 8, young: false }
    }

    #[test]
    fn the_time_is_that_of_the_same_file() {
        let changes = OwnChanges::default();
        let handle = |byte| FileHandle::from_parts(1, &[byte]);
        changes.keep(&identity(7), handle(1), 100);
        assert_eq!(changes.take(&identity(8), handle(1).as_ref()), None);
        assert_eq!(changes.take(&identity(7), handle(1).as_ref()), Some(100));
        assert_eq!(changes.take(&identity(7), handle(1).as_ref()), None);
        // The file system has reused the number.
        changes.keep(&identity(7), handle(1), 100);
        assert_eq!(changes.take(&identity(7), handle(2).as_ref()), None);
        changes.keep(&identity(7), handle(1), 100);
        let later = Identity { birth: 6, ..identity(7) };
        assert_eq!(changes.take(&later, handle(1).as_ref()), None);
    }

    #[test]
    fn nothing_is_kept_of_files_that_cannot_be_told_apart_and_of_folders() {
        let changes = OwnChanges::default();
        let (young, folder) =
            (Identity { young: true, ..identity(7) }, Identity { kind: 4, ..identity(8) });
        changes.keep(&young, None, 100);
        changes.keep(&folder, None, 100);
        changes.keep(&identity(9), None, 0);
        let taken = [young, folder, identity(9)].map(|it| changes.take(&it, None));
        assert_eq!(taken, [None; 3]);
    }

    #[test]
    fn the_table_is_bounded() {
        let changes = OwnChanges::default();
        let count = 3 * GENERATION_MAX as u64;
        (0..count).for_each(|number| changes.keep(&identity(number), None, 1));
        let kept = (0..count).filter(|&number| changes.take(&identity(number), None).is_some());
        assert_eq!(kept.count(), 2 * GENERATION_MAX);
        assert!(!changes.is_used.load(Relaxed));
    }
}
