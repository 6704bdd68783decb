//! The state of Ruby's search for a feature on the current thread.
//!
//! Ruby searches with `open`, `fstat`, `close`, `realpath` and `stat`, in this order and on one thread. No Ruby code
//! runs in between. Between [`begin`] and [`end`], those calls may be answered; at other times, and on other threads,
//! they go to libc.

use std::cell::Cell;

use thruway_boot::{Boot, FoundFile};

use super::current;

/// The results of a search so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    /// The last file that the search has found: a mark of its path, the file, and the boot's epoch at that time.
    pub(super) last_file: Option<(PathMark, FoundFile, u64)>,
    /// The last answered real path.
    pub(super) real_path: Option<PathMark>,
    /// Whether the whole load path was searched for the name, so that an unlisted candidate does not exist.
    pub(super) is_settled: bool,
}

impl Search {
    /// Whether the file at `path` is the last one that the search has found. No Ruby code has run since.
    pub(super) fn is_last_file(&self, path: PathMark) -> bool {
        self.last_file.is_some_and(|(mark, ..)| mark == path)
    }
}

/// The progress of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Ruby is not searching on this thread.
    Idle,
    /// Ruby opens candidates.
    Opening,
    /// Ruby has opened a candidate, and holds a [fake descriptor](super::answers).
    Opened,
    /// Ruby has found its file, has closed the descriptor, and asks for the real path.
    Found,
}

/// A hash in place of a path, where only equality matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathMark {
    hash: u128,
}

impl PathMark {
    pub(super) fn of(path: &[u8]) -> Self {
        Self { hash: thruway_boot::path::mark(path) }
    }
}

const IDLE: Search = Search { last_file: None, real_path: None, is_settled: false };

thread_local! {
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Idle) };
    static SEARCH: Cell<Search> = const { Cell::new(IDLE) };
}

/// Starts a search of Ruby on the current thread.
pub(super) fn begin() {
    SEARCH.set(IDLE);
    PHASE.set(Phase::Opening);
}

/// Ends the search. Also called before Ruby code runs, because such code may change the files that the search has
/// found.
pub(super) fn end() {
    SEARCH.set(IDLE);
    PHASE.set(Phase::Idle);
}

/// The last file that this thread's search has found. `None` if the boot has learned of any change since: a search may
/// wait for another thread to load the feature. In the portable mode, the boot learns of no changes, so there is no
/// file, unless the waits of a search are observed.
pub(super) fn last_file() -> Option<(PathMark, FoundFile)> {
    let (mark, file, epoch) = SEARCH.get().last_file?;
    let counts = |boot: &Boot| boot.answers_search() && boot.files.epoch() == epoch;
    current::boot().is_some_and(counts).then_some((mark, file))
}

/// Records a file that the search has found at `path`.
pub(super) fn record_file(path: PathMark, file: FoundFile) {
    let epoch = current::boot().map_or(0, |boot| boot.files.epoch());
    set(Search { last_file: Some((path, file, epoch)), ..current() });
}

/// Forgets the last file, because this process may have changed it since.
pub(super) fn forget_file() {
    set(Search { last_file: None, ..current() });
}

/// The progress of this thread's search.
pub(super) fn phase() -> Phase {
    PHASE.get()
}

/// Sets the progress of this thread's search.
pub(super) fn advance(phase: Phase) {
    PHASE.set(phase);
}

/// The results of this thread's search so far.
pub(super) fn current() -> Search {
    SEARCH.get()
}

/// Replaces the results of this thread's search.
pub(super) fn set(search: Search) {
    SEARCH.set(search);
}
