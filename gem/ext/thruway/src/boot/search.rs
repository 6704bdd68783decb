//! What this thread is in the middle of: a search of Ruby's for a feature, step by step.
//!
//! Ruby looks for a feature with `open`, `fstat`, `close`, `realpath` and `stat`, in this order and on
//! one thread. No Ruby code runs in between. Between [`begin`] and [`end`] those calls may be answered;
//! at any other time, and on any other thread, they are not ours.

use std::cell::Cell;

use thruway_boot::{Boot, FoundFile};

use super::current;

/// What a search has seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    /// The file that was seen last, by which path, and what this process had been told by then.
    pub(super) seen: Option<(PathMark, FoundFile, u64)>,
    /// The last real path that was answered.
    pub(super) real_path: Option<PathMark>,
    /// Whether the load path has been looked through for the name: what was not there is missing.
    pub(super) is_settled: bool,
}

impl Search {
    /// Whether that is the file which was seen last. No Ruby code has run since.
    pub(super) fn has_seen(&self, path: PathMark) -> bool {
        self.seen.is_some_and(|(seen, ..)| seen == path)
    }
}

/// How far a search has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Ruby is not searching on this thread.
    Idle,
    /// It opens candidates.
    Opening,
    /// It has opened one; what it holds is [`FAKE_DESCRIPTOR`](super::interpose::FAKE_DESCRIPTOR).
    Opened,
    /// It has found its file, closed it, and asks for its real path.
    Found,
}

/// Stands for a path of which only equality matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathMark {
    hash: u128,
}

impl PathMark {
    pub(super) fn of(path: &[u8]) -> Self {
        Self { hash: thruway_boot::path::mark(path) }
    }
}

const IDLE: Search = Search { seen: None, real_path: None, is_settled: false };

thread_local! {
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Idle) };
    static SEARCH: Cell<Search> = const { Cell::new(IDLE) };
}

/// Ruby is about to search on this thread.
pub(super) fn begin() {
    SEARCH.set(IDLE);
    PHASE.set(Phase::Opening);
}

/// The search is over, or Ruby code is about to run: what was seen may be otherwise when it has.
pub(super) fn end() {
    SEARCH.set(IDLE);
    PHASE.set(Phase::Idle);
}

/// The file that this thread's search saw last. It counts no more if this process has been told anything
/// since: a search may wait for another thread to load the feature. In the portable mode it is never told.
pub(super) fn seen() -> Option<(PathMark, FoundFile)> {
    let (mark, file, epoch) = SEARCH.get().seen?;
    let counts = |boot: &Boot| !boot.options.portable && boot.files.epoch() == epoch;
    current::boot().is_some_and(counts).then_some((mark, file))
}

/// The search has seen a file by that path.
pub(super) fn see(path: PathMark, file: FoundFile) {
    let epoch = current::boot().map_or(0, |boot| boot.files.epoch());
    set(Search { seen: Some((path, file, epoch)), ..current() });
}

/// This process has changed something: what was seen may be that.
pub(super) fn forget() {
    set(Search { seen: None, ..current() });
}

/// How far this thread's search has come.
pub(super) fn phase() -> Phase {
    PHASE.get()
}

/// The search goes on.
pub(super) fn advance(phase: Phase) {
    PHASE.set(phase);
}

/// What this thread's search has seen.
pub(super) fn current() -> Search {
    SEARCH.get()
}

/// What the search has seen now.
pub(super) fn set(search: Search) {
    SEARCH.set(search);
}
