//! An io_uring: a queue of commands to the kernel, and one of what has become of them.
//!
//! No more than what commands to devices need: entries of 128 bytes, and one thread that submits.
//! Completions wait until that thread asks for them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io_uring::{
    IoringEnterFlags, IoringSetupFlags, io_uring_enter, io_uring_params, io_uring_setup,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A command as the kernel reads it.
pub(crate) type Entry = [u8; ENTRY_BYTES];

/// What has become of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Completion {
    /// The number that was given to the command.
    pub(crate) number: u64,
    /// Zero or more, or an errno, negative.
    pub(crate) result: i32,
    /// The command goes on, and completes again.
    pub(crate) more: bool,
}

const ENTRY_BYTES: usize = 128;
const COMPLETION_BYTES: usize = 16;
const COMPLETION_MORE: u32 = 1 << 1;

/// Where the kernel shows its two rings, and the entries.
const RINGS_OFFSET: u64 = 0;
const ENTRIES_OFFSET: u64 = 0x1000_0000;

/// The ring; it stays with the thread that made it.
#[derive(Debug)]
pub(crate) struct IoRing {
    descriptor: OwnedFd,
    rings: Map,
    entries: Map,
    params: io_uring_params,
    /// Entries that the kernel has not been told of yet.
    waiting: u32,
}

impl IoRing {
    /// A ring for at least `entries` commands at a time. Only the thread that submits
    /// first may submit.
    ///
    /// # Errors
    /// `ENOSYS`, `EPERM`: the system has none, or forbids it; `EINVAL`: before Linux 6.6.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SQE128
            | IoringSetupFlags::NO_SQARRAY
            | IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN;
        // SAFETY: the parameters name no memory of ours, nor any descriptor.
        let descriptor = unsafe { io_uring_setup(entries, &mut params) }?;
        let completions =
            params.cq_off.cqes as usize + COMPLETION_BYTES * params.cq_entries as usize;
        let rings = Map::new(&descriptor, completions, RINGS_OFFSET)?;
        let bytes = ENTRY_BYTES * params.sq_entries as usize;
        let entries = Map::new(&descriptor, bytes, ENTRIES_OFFSET)?;
        Ok(Self { descriptor, rings, entries, params, waiting: 0 })
    }

    /// Adds a command; it is submitted with the next [`wait`](Self::wait), or before if the queue is
    /// full.
    ///
    /// # Safety
    /// What the command lets the kernel read and write must stay valid until it has completed.
    ///
    /// # Errors
    /// Whatever the system says to submitting.
    pub(crate) unsafe fn push(&mut self, entry: &Entry) -> io::Result<()> {
        if self.waiting == self.params.sq_entries {
            self.enter(0)?;
        }
        let tail = self.word(self.params.sq_off.tail).load(Ordering::Relaxed);
        let place = self.entries.at((tail & (self.params.sq_entries - 1)) as usize * ENTRY_BYTES);
        // SAFETY: inside the entries, and the kernel reads it only when the tail has moved on.
        unsafe { place.cast::<Entry>().write(*entry) };
        self.word(self.params.sq_off.tail).store(tail.wrapping_add(1), Ordering::Release);
        self.waiting += 1;
        Ok(())
    }

    /// Submits what was added, and waits until something has completed.
    ///
    /// # Errors
    /// Whatever the system says; a signal is none.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        match self.enter(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            entered => entered,
        }
    }

    /// The next completion.
    pub(crate) fn complete(&mut self) -> Option<Completion> {
        let (head_at, tail_at) = (self.params.cq_off.head, self.params.cq_off.tail);
        let head = self.word(head_at).load(Ordering::Relaxed);
        if head == self.word(tail_at).load(Ordering::Acquire) {
            return None;
        }
        let index = (head & (self.params.cq_entries - 1)) as usize;
        let place = self.rings.at(self.params.cq_off.cqes as usize + index * COMPLETION_BYTES);
        // SAFETY: inside the ring, and the kernel leaves it alone until the head has moved on.
        let [a, b, result, flags] = unsafe { place.cast::<[u32; 4]>().read() };
        self.word(head_at).store(head.wrapping_add(1), Ordering::Release);
        let [a, b] = [a, b].map(u32::to_ne_bytes);
        let number = u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]);
        let more = flags & COMPLETION_MORE != 0;
        Some(Completion { number, result: result.cast_signed(), more })
    }

    fn enter(&mut self, completions: u32) -> io::Result<()> {
        let (ring, flags) = (self.descriptor.as_fd(), IoringEnterFlags::GETEVENTS);
        // SAFETY: the caller of `push` answers for what an entry names.
        let submitted = unsafe { io_uring_enter(ring, self.waiting, completions, flags) }?;
        self.waiting = self.waiting.saturating_sub(submitted);
        Ok(())
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        let place = self.rings.at(offset as usize).cast();
        // SAFETY: the kernel says that an aligned word lies there, and uses it atomically.
        unsafe { place.as_ref() }
    }
}

/// Memory that is shared with the kernel.
#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    length: usize,
}

impl Map {
    fn new(descriptor: &OwnedFd, length: usize, offset: u64) -> io::Result<Self> {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start =
            unsafe { mmap(std::ptr::null_mut(), length, access, kind, descriptor, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.length, "{offset} is outside of the ring");
        // SAFETY: inside the mapping, as was just checked.
        unsafe { self.start.byte_add(offset) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the map was made by `new` with this start and length, and it is not borrowed.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thruway_testing::skipped;

    /// A command that does nothing.
    fn nothing(number: u64) -> Entry {
        let mut entry = [0; ENTRY_BYTES];
        entry[32..40].copy_from_slice(&number.to_ne_bytes());
        entry
    }

    #[test]
    fn commands_complete_under_their_numbers_and_more_of_them_than_fit() {
        let mut ring = match IoRing::new(4) {
            Ok(ring) => ring,
            Err(error) => return skipped(format_args!("io_uring: {error}")),
        };
        for number in 0..6 {
            // SAFETY: the command names no memory.
            unsafe { ring.push(&nothing(number << 40)) }.unwrap();
        }
        let mut numbers = Vec::new();
        while numbers.len() < 6 {
            ring.wait().unwrap();
            while let Some(completion) = ring.complete() {
                assert_eq!((completion.result, completion.more), (0, false));
                numbers.push(completion.number >> 40);
            }
        }
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    }
}
