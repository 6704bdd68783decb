//! Changes made by this process, about which a frozen pack is wrong.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use crate::path::{self, PathHasher};

/// The maximum number of paths that are kept. After another change, all paths are treated as changed.
const PATHS_MAX: usize = 1 << 12;

/// The paths that were created, moved or removed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    paths: HashSet<Box<[u8]>, BuildHasherDefault<PathHasher>>,
    /// Whether anything else may have changed, too.
    are_all: bool,
}

impl Changes {
    /// Records a change to the file at `path`.
    pub(super) fn add(&mut self, path: &[u8]) {
        if self.paths.len() < PATHS_MAX {
            self.paths.insert(path::folded(path).into());
        } else {
            self.add_all();
        }
    }

    /// Records a change at an unknown path.
    pub(super) fn add_all(&mut self) {
        self.are_all = true;
    }

    /// Whether there are no changes.
    pub(super) fn is_empty(&self) -> bool {
        !self.are_all && self.paths.is_empty()
    }

    /// Whether all paths are treated as changed.
    pub(super) fn are_all(&self) -> bool {
        self.are_all
    }

    /// Whether the file at `path`, or a folder above it, has changed.
    pub(super) fn concern(&self, path: &[u8]) -> bool {
        if self.are_all || self.paths.is_empty() {
            return self.are_all;
        }
        let path = path::folded(path);
        let mut above =
            std::iter::successors(Some(&*path), |path| path::split(path).map(|(folder, _)| folder));
        above.any(|path| self.paths.contains(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(windows))]
    #[test]
    fn what_is_below_a_change_is_changed() {
        let mut changes = Changes::default();
        assert!(!changes.concern(b"/a/b"));
        changes.add(b"/a/b");
        for (path, is_changed) in
            [("/a/b", true), ("/a/b/c/d", true), ("/a", false), ("/a/bc", false)]
        {
            assert_eq!(changes.concern(path.as_bytes()), is_changed, "{path}");
        }
    }

    #[cfg(windows)]
    #[test]
    fn a_change_is_known_in_any_case() {
        let mut changes = Changes::default();
        changes.add(b"C:/App/Lib");
        assert!(changes.concern(b"c:/app/LIB/a.rb") && changes.concern(b"C:/App/Lib"));
        assert!(!changes.concern(b"C:/App/Library") && !changes.concern(b"C:/App"));
    }

    #[test]
    fn more_changes_than_are_kept_are_all() {
        let mut changes = Changes::default();
        for number in 0..=PATHS_MAX {
            assert!(!changes.concern(b"/other"));
            changes.add(format!("/{number}").as_bytes());
        }
        assert!(changes.concern(b"/other"));
    }
}
