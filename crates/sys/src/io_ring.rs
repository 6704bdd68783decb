//! An io_uring: a queue of commands to the kernel and a queue of their completions.
//!
//! Supports only the subset that device commands need: entries of 128 bytes, a single submitting thread, and
//! completions that are processed when that thread asks for them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io_uring::{
    IoringEnterFlags, IoringSetupFlags, io_uring_enter, io_uring_params, io_uring_setup,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A command in the kernel's layout.
pub(crate) type Entry = [u8; ENTRY_BYTES];

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Completion {
    /// The number that the submitter gave to the command.
    pub(crate) number: u64,
    /// The result: zero or more, or a negated errno.
    pub(crate) result: i32,
    /// Whether the command stays active and will complete again.
    pub(crate) more: bool,
}

const ENTRY_BYTES: usize = 128;
const COMPLETION_BYTES: usize = 16;
const COMPLETION_MORE: u32 = 1 << 1;

/// Offsets at which the kernel maps its two rings and the entries.
const RINGS_OFFSET: u64 = 0;
const ENTRIES_OFFSET: u64 = 0x1000_0000;

/// A ring, which only the thread that created it may use.
#[derive(Debug)]
pub(crate) struct IoRing {
    descriptor: OwnedFd,
    rings: Map,
    entries: Map,
    params: io_uring_params,
    /// The number of entries that were not yet submitted to the kernel.
    waiting: u32,
}

impl IoRing {
    /// Creates a ring for at least `entries` simultaneous commands. The first thread that submits becomes the only
    /// thread that may submit.
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM`: the system lacks or forbids io_uring; `EINVAL`: the kernel is older than Linux 6.6.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SQE128
            | IoringSetupFlags::NO_SQARRAY
            | IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN;
        // SAFETY: the parameters name neither memory nor descriptors of this process.
        let descriptor = unsafe { io_uring_setup(entries, &mut params) }?;
        let completions =
            params.cq_off.cqes as usize + COMPLETION_BYTES * params.cq_entries as usize;
        let rings = Map::new(&descriptor, completions, RINGS_OFFSET)?;
        let bytes = ENTRY_BYTES * params.sq_entries as usize;
        let entries = Map::new(&descriptor, bytes, ENTRIES_OFFSET)?;
        Ok(Self { descriptor, rings, entries, params, waiting: 0 })
    }

    /// Queues a command. It is submitted by the next [`wait`](Self::wait), or at once if the queue is full.
    ///
    /// # Safety
    /// The memory that the command lets the kernel read or write must stay valid until the command has completed.
    ///
    /// # Errors
    /// Any error of the submission.
    pub(crate) unsafe fn push(&mut self, entry: &Entry) -> io::Result<()> {
        if self.waiting == self.params.sq_entries {
            self.enter(0)?;
        }
        let tail = self.word(self.params.sq_off.tail).load(Ordering::Relaxed);
        let place = self.entries.at((tail & (self.params.sq_entries - 1)) as usize * ENTRY_BYTES);
        // SAFETY: the place is inside the entries, and the kernel reads it only after the tail has advanced.
        unsafe { place.cast::<Entry>().write(*entry) };
        self.word(self.params.sq_off.tail).store(tail.wrapping_add(1), Ordering::Release);
        self.waiting += 1;
        Ok(())
    }

    /// Submits the queued commands, and waits until a command has completed or a signal arrives.
    ///
    /// # Errors
    /// Any error of the system call except an interruption.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        match self.enter(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            entered => entered,
        }
    }

    /// Returns the next completion, if there is one.
    pub(crate) fn complete(&mut self) -> Option<Completion> {
        let (head_at, tail_at) = (self.params.cq_off.head, self.params.cq_off.tail);
        let head = self.word(head_at).load(Ordering::Relaxed);
        if head == self.word(tail_at).load(Ordering::Acquire) {
            return None;
        }
        let index = (head & (self.params.cq_entries - 1)) as usize;
        let place = self.rings.at(self.params.cq_off.cqes as usize + index * COMPLETION_BYTES);
        // SAFETY: the place is inside the ring, and the kernel does not write there until the head has advanced.
        let [a, b, result, flags] = unsafe { place.cast::<[u32; 4]>().read() };
        self.word(head_at).store(head.wrapping_add(1), Ordering::Release);
        let [a, b] = [a, b].map(u32::to_ne_bytes);
        let number = u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]);
        let more = flags & COMPLETION_MORE != 0;
        Some(Completion { number, result: result.cast_signed(), more })
    }

    fn enter(&mut self, completions: u32) -> io::Result<()> {
        let (ring, flags) = (self.descriptor.as_fd(), IoringEnterFlags::GETEVENTS);
        // SAFETY: callers of `push` guarantee that the memory of each entry is valid.
        let submitted = unsafe { io_uring_enter(ring, self.waiting, completions, flags) }?;
        self.waiting = self.waiting.saturating_sub(submitted);
        Ok(())
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        let place = self.rings.at(offset as usize).cast();
        // SAFETY: the kernel places an aligned word at this offset, and accesses it atomically.
        unsafe { place.as_ref() }
    }
}

/// A mapping of memory that is shared with the kernel.
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
        // SAFETY: the offset is inside the mapping, as the assertion has checked.
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

    /// Returns a command that does nothing.
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
