//! The flags of an inode, which are bits of the record's first word.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

pub(super) const LIVE: u64 = 1 << 0;
/// Set when the file system has reused the inode's number for another file.
pub(super) const DETACHED: u64 = 1 << 1;
pub(super) const YOUNG: u64 = 1 << 2;
pub(super) const CHECKED: u64 = 1 << 3;
/// Set for a folder that is watched.
pub(super) const WATCHED: u64 = 1 << 4;
/// Set for a folder that cannot be watched.
pub(super) const UNWATCHABLE: u64 = 1 << 5;
/// Set for a file that was opened for reading and writing, and so may be changed through a mapping.
pub(super) const MAPPABLE: u64 = 1 << 6;

/// Whether the changes in a folder are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchState {
    /// No watch was attempted yet.
    Untried,
    /// The folder is watched.
    Watched,
    /// The folder cannot be watched.
    Unwatchable,
}

/// The flags of a record.
#[derive(Clone, Copy)]
pub(crate) struct Flags<'a> {
    word: &'a AtomicU64,
}

impl<'a> Flags<'a> {
    pub(super) fn new(word: &'a AtomicU64) -> Self {
        Self { word }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.load() & LIVE != 0
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.load() & DETACHED != 0
    }

    pub(crate) fn detach(&self) {
        self.word.fetch_or(DETACHED, Release);
    }

    pub(crate) fn set_checked(&self) {
        self.word.fetch_or(CHECKED, Release);
    }

    pub(crate) fn is_mappable(&self) -> bool {
        self.load() & MAPPABLE != 0
    }

    pub(crate) fn set_mappable(&self) {
        self.word.fetch_or(MAPPABLE, Release);
    }

    pub(crate) fn watched(&self) -> WatchState {
        match self.load() {
            state if state & WATCHED != 0 => WatchState::Watched,
            state if state & UNWATCHABLE != 0 => WatchState::Unwatchable,
            _ => WatchState::Untried,
        }
    }

    pub(crate) fn set_watched(&self, watched: WatchState) {
        let bits = match watched {
            WatchState::Untried => 0,
            WatchState::Watched => WATCHED,
            WatchState::Unwatchable => UNWATCHABLE,
        };
        self.word.fetch_and(!(WATCHED | UNWATCHABLE), Release);
        self.word.fetch_or(bits, Release);
    }

    fn load(&self) -> u64 {
        self.word.load(Acquire)
    }
}
