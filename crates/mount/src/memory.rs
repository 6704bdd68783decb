//! Memory that outlives a worker: the table of inodes, the negotiated features, and counters.
//!
//! The supervisor holds the memory, and each worker maps it.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::time::{ClockId, clock_gettime};
use thruway_fuse::ConnectionOptions;
use thruway_fuse::wire::UNIQUE_RESEND;
use thruway_sys::shared_memory::Memfd;

use crate::inodes::RECORD_WORDS;

/// The maximum number of inodes of a mount: 6.5 GiB of memory if all are in use.
pub(crate) const SLOTS_MAX: u32 = 1 << 26;
const _: () = assert!(SLOTS_MAX as usize * RECORD_WORDS * 8 == 13 << 29);

/// The kernel keeps 32 bits of a generation.
const GENERATION_MAX: u64 = u32::MAX as u64;

/// The number of words before the first slot.
const HEADER_WORDS: usize = 256;
const SLOTS_USED: usize = 0;
const INCARNATION: usize = 1;
/// Nonzero once a worker has replied to INIT.
const HAS_NEGOTIATED: usize = 2;
const NEGOTIATED: usize = 3;
const NEGOTIATED_WORDS: usize = 3;
const GENERATION: usize = NEGOTIATED + NEGOTIATED_WORDS;
/// One word for each operation, by opcode.
const REQUESTS: usize = 64;
/// The number of counted operations; the kernel's highest opcode is 53.
pub(crate) const OPERATIONS: usize = 64;
/// The first word of the other counters.
const COUNTS: usize = REQUESTS + OPERATIONS;

/// The number of renames that were noted, and the notes on the last ones: two words each.
const RENAMES_NOTED: usize = 190;
const RENAMES: usize = 192;
/// The number of notes: more than the number of threads that rename at the same time.
const RENAMES_MAX: usize = 32;
const _: () = assert!(RENAMES + 2 * RENAMES_MAX == HEADER_WORDS);

/// A counter other than those of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Count {
    /// Workers that were started after a worker had died.
    Restarts,
    /// Opens with a backing file.
    Passthrough,
    /// Opens whose data goes through the daemon.
    DaemonIo,
    /// Changes behind the mount that were reported to the kernel.
    ReportedChanges,
    /// Reports that came late, for which the kernel looks up all names once more.
    LateReports,
    /// Requests that the policy has refused.
    Refused,
    /// Readings of all names of a merged folder.
    FolderReads,
}

#[derive(Debug)]
pub(crate) struct Memory {
    words: Memfd,
}

impl Memory {
    /// Allocates memory for a new mount.
    pub(crate) fn new() -> io::Result<Self> {
        let words = HEADER_WORDS + RECORD_WORDS * SLOTS_MAX as usize;
        let memory = Self { words: Memfd::new(c"thruway-mount", words)? };
        let now = clock_gettime(ClockId::Realtime);
        let milliseconds = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
        memory.words[GENERATION].store(milliseconds.cast_unsigned() & GENERATION_MAX, Relaxed);
        Ok(memory)
    }

    /// Returns a number that earlier mounts almost certainly did not have, so that their file handles are stale in this
    /// mount.
    pub(crate) fn generation(&self) -> u64 {
        self.words[GENERATION].load(Relaxed)
    }

    /// Maps the memory of the previous worker.
    pub(crate) fn from_file(file: OwnedFd) -> io::Result<Self> {
        Ok(Self { words: Memfd::from_file(file)? })
    }

    /// Returns the words of a slot.
    pub(crate) fn slot(&self, slot: u32) -> &[AtomicU64] {
        let start = HEADER_WORDS + slot as usize * RECORD_WORDS;
        &self.words[start..start + RECORD_WORDS]
    }

    /// Frees the memory of slots whose records are clear.
    pub(crate) fn release_slots(&self, slots: Range<u32>) {
        let word = |slot: u32| HEADER_WORDS + slot as usize * RECORD_WORDS;
        // An error only means that the memory stays in use.
        let _ = self.words.release(word(slots.start)..word(slots.end));
    }

    /// Returns the highest slot that was ever used, plus one.
    #[expect(clippy::cast_possible_truncation, reason = "it is below SLOTS_MAX")]
    pub(crate) fn slots_used(&self) -> u32 {
        self.words[SLOTS_USED].load(Acquire) as u32
    }

    pub(crate) fn set_slots_used(&self, slots: u32) {
        self.words[SLOTS_USED].fetch_max(u64::from(slots), Release);
    }

    /// Returns a new incarnation, which distinguishes the inodes that use a slot in succession.
    #[expect(clippy::cast_possible_truncation, reason = "it wraps after 4 billion")]
    pub(crate) fn next_incarnation(&self) -> u32 {
        (self.words[INCARNATION].fetch_add(1, Relaxed) as u32).wrapping_add(1)
    }

    /// Returns the negotiated features, if a worker has negotiated any.
    #[expect(clippy::cast_possible_truncation, reason = "fields of the words")]
    pub(crate) fn negotiated(&self) -> Option<ConnectionOptions> {
        let word = |index: usize| self.words[NEGOTIATED + index].load(Relaxed);
        (self.words[HAS_NEGOTIATED].load(Acquire) == 1).then(|| ConnectionOptions {
            features: word(0),
            minor: word(1) as u32,
            pages_max: (word(1) >> 32) as u16,
            stack_depth_max: word(2) as u32,
            readahead_bytes_max: (word(2) >> 32) as u32,
        })
    }

    pub(crate) fn set_negotiated(&self, negotiated: &ConnectionOptions) {
        let words: [u64; NEGOTIATED_WORDS] = [
            negotiated.features,
            u64::from(negotiated.pages_max) << 32 | u64::from(negotiated.minor),
            u64::from(negotiated.readahead_bytes_max) << 32 | u64::from(negotiated.stack_depth_max),
        ];
        for (index, word) in words.into_iter().enumerate() {
            self.words[NEGOTIATED + index].store(word, Relaxed);
        }
        self.words[HAS_NEGOTIATED].store(1, Release);
    }

    /// Notes that a request renames a name in these branches, one bit each. If this worker dies, the next one finishes.
    pub(crate) fn note_rename(&self, unique: u64, branches: u64) {
        let place = self.words[RENAMES_NOTED].fetch_add(1, Relaxed) as usize % RENAMES_MAX;
        let [request, of_branches] = [0, 1].map(|word| &self.words[RENAMES + 2 * place + word]);
        request.store(0, Release);
        of_branches.store(branches, Release);
        request.store(unique & !UNIQUE_RESEND, Release);
    }

    /// Returns the branches in which the previous worker has begun to rename a name, if the kernel has sent the request
    /// again.
    pub(crate) fn begun_rename(&self, unique: u64) -> Option<u64> {
        if unique & UNIQUE_RESEND == 0 {
            return None;
        }
        let mut notes = self.words[RENAMES..HEADER_WORDS].chunks_exact(2);
        let noted = notes.find(|note| note[0].load(Acquire) == unique & !UNIQUE_RESEND)?;
        Some(noted[1].load(Acquire))
    }

    /// Counts a request.
    pub(crate) fn count_request(&self, opcode: u32) {
        let index = REQUESTS + (opcode as usize).min(OPERATIONS - 1);
        self.words[index].fetch_add(1, Relaxed);
    }

    /// Returns the number of requests of each operation, by opcode.
    pub(crate) fn requests(&self) -> Vec<u64> {
        self.words[REQUESTS..COUNTS].iter().map(|word| word.load(Relaxed)).collect()
    }

    pub(crate) fn count(&self, counter: Count) {
        self.add(counter, 1);
    }

    pub(crate) fn add(&self, counter: Count, number: u64) {
        self.words[COUNTS + counter as usize].fetch_add(number, Relaxed);
    }

    pub(crate) fn counted(&self, counter: Count) -> u64 {
        self.words[COUNTS + counter as usize].load(Relaxed)
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_is_known_to_the_next_worker_if_its_request_is_sent_again() {
        let memory = Memory::new().unwrap();
        memory.note_rename(8, 0b101);
        assert_eq!(memory.begun_rename(8), None);
        assert_eq!(memory.begun_rename(8 | UNIQUE_RESEND), Some(0b101));
        assert_eq!(memory.begun_rename(10 | UNIQUE_RESEND), None);
        // A worker dies for the second time.
        memory.note_rename(8 | UNIQUE_RESEND, 0b111);
        (1..RENAMES_MAX as u64).for_each(|number| memory.note_rename(100 + number, 1));
        assert_eq!(memory.begun_rename(8 | UNIQUE_RESEND), Some(0b111));
        memory.note_rename(200, 1);
        assert_eq!(memory.begun_rename(8 | UNIQUE_RESEND), None);
    }

    #[test]
    fn the_page_says_how_much_memory_an_inode_takes() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explanation/design/mount.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(&format!(" {} bytes an inode", 8 * RECORD_WORDS)));
    }
}
