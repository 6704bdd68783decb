//! Counts errors by their number.

use std::collections::BTreeMap;
use std::io::Error;
use std::sync::Mutex;

use rustix::io::Errno;

use crate::inodes::lock;

/// The number of times that each error occurred: errors of the kernel, which refused backing files, or of a source.
#[derive(Debug, Default)]
pub(super) struct ErrorCounts {
    counts: Mutex<BTreeMap<i32, u64>>,
}

impl ErrorCounts {
    pub(super) fn note(&self, errno: Errno) {
        *lock(&self.counts).entry(errno.raw_os_error()).or_default() += 1;
    }

    /// Returns the counts by the system's description of the error.
    pub(super) fn by_name(&self) -> BTreeMap<String, u64> {
        let counts = lock(&self.counts);
        let reason = |errno| Error::from_raw_os_error(errno).to_string();
        counts.iter().map(|(&errno, &count)| (reason(errno), count)).collect()
    }
}
