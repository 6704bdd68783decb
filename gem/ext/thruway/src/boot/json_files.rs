//! Which JSON file a thread opened last: a text that is parsed next most likely came from it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest path that is remembered, with the NUL that ends it.
const PATH_BYTES: usize = 512;

/// Whether JSON files are remembered.
static ARE_NOTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OPENED: Cell<Option<[u8; PATH_BYTES]>> = const { Cell::new(None) };
}

/// A path that is remembered, and NULs behind it.
pub(super) struct OpenedPath([u8; PATH_BYTES]);

/// From now on each JSON file that is opened is remembered.
pub(super) fn note() {
    ARE_NOTED.store(true, Ordering::Relaxed);
}

pub(super) fn are_noted() -> bool {
    ARE_NOTED.load(Ordering::Relaxed)
}

/// libruby opens a file; one whose name ends in `.json` is remembered.
pub(super) fn opened(path: &[u8]) {
    if path.ends_with(b".json") && path.len() < PATH_BYTES {
        let mut kept = [0; PATH_BYTES];
        kept[..path.len()].copy_from_slice(path);
        OPENED.set(Some(kept));
    }
}

/// The file that this thread opened since this was asked last.
pub(super) fn take() -> Option<OpenedPath> {
    OPENED.take().map(OpenedPath)
}

impl OpenedPath {
    pub(super) fn bytes(&self) -> &[u8] {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(0);
        &self.0[..length]
    }
}
