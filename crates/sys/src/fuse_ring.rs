//! Serves FUSE requests over io_uring (`fs/fuse/dev_uring.c`): requests arrive in this process's memory, and a single
//! system call sends a reply and waits for the next request.
//!
//! The kernel has a queue for each CPU, and puts a request into the queue of the caller's CPU. A queue has **slots**,
//! each with memory for a request and its reply. The kernel owns a slot until a request has **arrived** there; this
//! process owns the slot until the reply is sent.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::io_ring::{Entry, IoRing};

/// Byte offsets in the headers: the header of the request or reply comes first, then the operation's argument, then the
/// fields of the ring itself.
const ARGUMENT_AT: usize = 128;
const RING_AT: usize = 256;
const COMMIT_ID_AT: usize = RING_AT + 8;
const PAYLOAD_SIZE_AT: usize = RING_AT + 16;
const HEADERS_BYTES: usize = 288;
/// The offset of the vectors that tell the kernel the addresses of the headers and the payload.
const VECTORS_AT: usize = 512;
/// The offset of the payload, which starts on its own page.
const PAYLOAD_AT: usize = 4096;

/// The size of a reply's header.
const REPLY_HEADER_BYTES: usize = 16;

/// Commands to the FUSE device.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Opcodes of io_uring.
const POLL_ADD: u8 = 6;
const DEVICE_COMMAND: u8 = 46;
/// The flag of a poll that stays active after an event.
const POLL_ADD_MULTI: u32 = 1;

/// The number of the poll on the bell, by which other threads wake the ring's thread.
const WAKE: u64 = u64::MAX;

/// A request that has arrived. Every arrival needs a [reply](FuseRing::reply).
#[derive(Debug)]
pub struct Arrival {
    slot: usize,
}

/// The reason why a wait ended.
#[derive(Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// Requests may have arrived.
    Requests,
    /// Another thread rang the bell.
    Bell,
    /// The file system was unmounted.
    Unmounted,
}

/// Wakes the thread that waits on a ring.
#[derive(Debug)]
pub struct Bell {
    event: OwnedFd,
}

/// The queues that a thread serves. Only the thread that created the ring may use it.
#[derive(Debug)]
pub struct FuseRing {
    ring: IoRing,
    device: OwnedFd,
    bell: OwnedFd,
    slots: Vec<Slot>,
    payload_bytes: usize,
    /// The number of slots that the kernel still uses.
    alive: usize,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Headers, then the payload. The memory is never freed, since the kernel may write to it at any time.
    memory: NonNull<u8>,
    queue: u16,
}

/// Whether the system lets this process create a ring.
#[must_use]
pub fn is_available() -> bool {
    IoRing::new(1).is_ok()
}

impl FuseRing {
    /// Creates a ring for the calling thread with the given queues, each as a number and a depth in slots. The
    /// connection of `device` must have negotiated io_uring. The payload of a request has at most `payload_bytes`
    /// bytes.
    ///
    /// # Errors
    /// The system refuses to create the ring.
    pub fn new(device: OwnedFd, queues: &[(u16, usize)], payload_bytes: usize) -> io::Result<Self> {
        let count: usize = queues.iter().map(|(_, depth)| depth).sum();
        let entries = u32::try_from(count + 1).map_err(io::Error::other)?.next_power_of_two();
        let mut ring = IoRing::new(entries)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut slots = Vec::with_capacity(count);
        for &(queue, depth) in queues {
            for _ in 0..depth {
                slots.push(Slot::new(queue, payload_bytes)?);
            }
        }
        for (number, slot) in slots.iter().enumerate() {
            slot.put_vectors(payload_bytes);
            let entry = slot.command(&device, REGISTER, number);
            // SAFETY: the slot's memory is never freed.
            unsafe { ring.push(&entry) }?;
        }
        let mut this = Self { ring, device, bell, alive: slots.len(), slots, payload_bytes };
        this.listen()?;
        Ok(this)
    }

    /// Returns the bell by which other threads wake this ring's thread.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn bell(&self) -> io::Result<Bell> {
        Ok(Bell { event: self.bell.try_clone()? })
    }

    /// Sends all replies, waits, and appends the requests that have arrived to `arrivals`.
    ///
    /// # Errors
    /// The system call fails.
    pub fn wait(&mut self, arrivals: &mut Vec<Arrival>) -> io::Result<WakeReason> {
        self.ring.wait()?;
        let mut reason = WakeReason::Requests;
        while let Some(completion) = self.ring.complete() {
            if completion.number == WAKE {
                reason = WakeReason::Bell;
                if !completion.more {
                    self.listen()?;
                }
                continue;
            }
            match usize::try_from(completion.number) {
                Ok(slot) if completion.result == 0 => arrivals.push(Arrival { slot }),
                _ => self.alive -= 1,
            }
        }
        if reason == WakeReason::Bell {
            // The read only resets the counter; the number of rings does not matter.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        Ok(if self.alive == 0 { WakeReason::Unmounted } else { reason })
    }

    /// Returns the three parts of a request: header, argument (padded), and payload.
    #[must_use]
    pub fn parts(&self, arrival: &Arrival) -> (&[u8], &[u8], &[u8]) {
        let slot = &self.slots[arrival.slot];
        let headers = slot.bytes(0, HEADERS_BYTES);
        let mut size = [0; 4];
        size.copy_from_slice(&headers[PAYLOAD_SIZE_AT..PAYLOAD_SIZE_AT + 4]);
        let size = (u32::from_ne_bytes(size) as usize).min(self.payload_bytes);
        let payload = slot.bytes(PAYLOAD_AT, size);
        (&headers[..ARGUMENT_AT], &headers[ARGUMENT_AT..RING_AT], payload)
    }

    /// Sends the reply to a request: a header of 16 bytes, then the body.
    ///
    /// # Errors
    /// The body is longer than the negotiated payload, or the system refuses the reply.
    pub fn reply(&mut self, arrival: Arrival, reply: &[u8]) -> io::Result<()> {
        let slot = self.slots[arrival.slot];
        let (head, payload) =
            reply.split_at_checked(REPLY_HEADER_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        if payload.len() > self.payload_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        slot.put(0, head);
        slot.put(PAYLOAD_AT, payload);
        let size = u32::try_from(payload.len()).map_err(io::Error::other)?;
        slot.put(PAYLOAD_SIZE_AT, &size.to_ne_bytes());
        let entry = slot.command(&self.device, COMMIT_AND_FETCH, arrival.slot);
        // SAFETY: the slot's memory is never freed.
        unsafe { self.ring.push(&entry) }
    }

    fn listen(&mut self) -> io::Result<()> {
        let mut entry = [0; size_of::<Entry>()];
        entry[0] = POLL_ADD;
        entry[4..8].copy_from_slice(&self.bell.as_raw_fd().to_ne_bytes());
        entry[24..28].copy_from_slice(&POLL_ADD_MULTI.to_ne_bytes());
        entry[28..32].copy_from_slice(&u32::from(PollFlags::IN.bits()).to_ne_bytes());
        entry[32..40].copy_from_slice(&WAKE.to_ne_bytes());
        // SAFETY: a poll names no memory.
        unsafe { self.ring.push(&entry) }
    }
}

impl Bell {
    /// Wakes the thread that waits on the ring.
    pub fn ring(&self) {
        // The write fails only if the counter is full, and then the thread wakes anyway.
        let _ = rustix::io::write(self.event.as_fd(), &1_u64.to_ne_bytes());
    }
}

impl Slot {
    fn new(queue: u16, payload_bytes: usize) -> io::Result<Self> {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let length = PAYLOAD_AT + payload_bytes;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, kind) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, queue })
    }

    /// Writes the two `struct iovec` that describe the headers and the payload.
    fn put_vectors(&self, payload_bytes: usize) {
        let start = self.memory.addr().get();
        let words = [start, HEADERS_BYTES, start + PAYLOAD_AT, payload_bytes];
        for (index, word) in words.into_iter().enumerate() {
            self.put(VECTORS_AT + index * size_of::<usize>(), &word.to_ne_bytes());
        }
    }

    fn command(&self, device: &OwnedFd, command: u32, number: usize) -> Entry {
        let mut entry = [0; size_of::<Entry>()];
        let mut put = |at: usize, bytes: &[u8]| entry[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[DEVICE_COMMAND]);
        put(4, &device.as_raw_fd().to_ne_bytes());
        put(8, &command.to_ne_bytes());
        put(16, &(self.memory.addr().get() + VECTORS_AT).to_ne_bytes());
        put(24, &2_u32.to_ne_bytes());
        put(32, &number.to_ne_bytes());
        // `struct fuse_uring_cmd_req`: flags, the request's commit id, and the queue's number.
        put(56, self.bytes(COMMIT_ID_AT, 8));
        put(64, &self.queue.to_ne_bytes());
        entry
    }

    fn bytes(&self, at: usize, length: usize) -> &[u8] {
        // SAFETY: the slot is larger than the headers and the payload together.
        let start = unsafe { self.memory.byte_add(at) };
        // SAFETY: as above; the memory is never freed. The kernel writes to the slot only while it owns the slot, and
        // then no `Arrival` exists by which to read.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        // SAFETY: the slot is larger than the headers and the payload together.
        let place = unsafe { self.memory.byte_add(at) };
        // SAFETY: as above; this process owns the slot, and `bytes` do not overlap with it.
        unsafe { place.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thruway_testing::skipped;

    #[test]
    fn a_device_without_a_mount_ends_at_once_and_a_bell_wakes() {
        let Ok(device) = crate::fuse::open() else {
            return skipped("/dev/fuse cannot be opened");
        };
        if !is_available() {
            return skipped("no io_uring");
        }
        let mut ring = FuseRing::new(device, &[(0, 2)], 8192).unwrap();
        ring.bell().unwrap().ring();
        let mut arrivals = Vec::new();
        let mut reason = Vec::new();
        while reason.last() != Some(&WakeReason::Unmounted) {
            reason.push(ring.wait(&mut arrivals).unwrap());
        }
        assert!(arrivals.is_empty());
        assert_eq!(ring.alive, 0);
    }
}
