//! The JSON file that each thread opened last. The JSON text that the thread parses next most likely comes from there.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Length of the longest path that is remembered, including the NUL at its end.
const PATH_BYTES: usize = 512;

/// Whether JSON files are remembered.
static ARE_NOTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OPENED: Cell<Option<[u8; PATH_BYTES]>> = const { Cell::new(None) };
}

/// A remembered path, padded with NULs.
pub(super) struct OpenedPath([u8; PATH_BYTES]);

/// Starts to remember JSON files that are opened.
pub(super) fn note() {
    ARE_NOTED.store(true, Ordering::Relaxed);
}

pub(super) fn are_noted() -> bool {
    ARE_NOTED.load(Ordering::Relaxed)
}

/// Remembers a file that libruby opens, if its name ends in `.json`.
pub(super) fn opened(path: &[u8]) {
    if path.ends_with(b".json") && path.len() < PATH_BYTES {
        let mut kept = [0; PATH_BYTES];
        kept[..path.len()].copy_from_slice(path);
        OPENED.set(Some(kept));
    }
}

/// The JSON file that this thread has opened since the last call of this function.
pub(super) fn take() -> Option<OpenedPath> {
    OPENED.take().map(OpenedPath)
}

impl OpenedPath {
    pub(super) fn bytes(&self) -> &[u8] {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(0);
        &self.0[..length]
    }
}
