//! The memory that the traced programs, the tracer and the recorder share: rings of records.
//!
//! Each ring has one writer and one reader, so no lock is needed. The layout is
//! [`thruway_sys::stub::layout`].

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::thread::gettid;
use thruway_sys::shared_memory::{Memfd, OWNER_DIED};
use thruway_sys::stub::layout::{self, RECORD_MAX, RING_BYTES, SLOTS_MAX};

use crate::record::Record;

/// The number of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// The table's entry for a traced thread without a slot.
const NO_SLOT: u32 = SLOTS_MAX as u32;

/// The shared memory.
#[derive(Debug)]
pub(crate) struct SharedRings {
    memory: Memfd,
    cookie: u64,
}

impl Slot {
    /// The tracer's own slot.
    pub(crate) const TRACER: Self = Self(0);

    /// Returns all slots but the tracer's.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (1..SLOTS_MAX).map(Self)
    }

    /// The slot's number, as stored in the table of threads.
    fn number(self) -> u32 {
        u32::try_from(self.0).unwrap_or(0)
    }

    /// Returns the slot's address in a program that has mapped the rings at `base`.
    pub(crate) fn address(self, base: u64) -> u64 {
        base + self.head(0) as u64
    }

    /// Returns the addresses of all slots that threads can have.
    pub(crate) fn addresses(base: u64) -> std::ops::RangeInclusive<u64> {
        Self(1).address(base)..=Self(SLOTS_MAX - 1).address(base)
    }

    fn head(self, field: usize) -> usize {
        layout::SLOTS + (self.0 << layout::SLOT_SHIFT) + field
    }

    /// Returns the offset at which a program reports the address of its mapping.
    pub(crate) fn report(self) -> usize {
        self.head(layout::BASE)
    }

    fn ring(self) -> usize {
        layout::RINGS + self.0 * RING_BYTES
    }

    /// Returns the offset of a record at `position`, which lies inside the ring whatever a program has
    /// written there.
    fn place(self, position: u64) -> usize {
        self.ring() + ((start(position) as usize % RING_BYTES) & !7)
    }
}

/// Returns the start of the first record at or after `position`. A record never crosses the end of the ring.
fn start(position: u64) -> u64 {
    let mask = RING_BYTES as u64 - 1;
    if position & mask > mask + 1 - RECORD_MAX as u64 {
        (position | mask).wrapping_add(1)
    } else {
        position
    }
}

impl SharedRings {
    /// Creates the memory. `shapes` tells the stub how to record each call.
    pub(crate) fn new(shapes: &[u8; layout::SHAPES_MAX]) -> io::Result<Self> {
        let memory = Memfd::new(c"thruway-trace", layout::AREA_BYTES / 8)?;
        // A random number, so that no program passes the filter by chance. Traced programs can read the
        // number, which is not a secret.
        let cookie = RandomState::new().hash_one(gettid().as_raw_pid()) | 1;
        let rings = Self { memory, cookie };
        #[cfg(target_arch = "x86_64")]
        rings.put(layout::CODE, thruway_sys::stub::code())?;
        rings.put(layout::COOKIE, &cookie.to_ne_bytes())?;
        rings.put(layout::SHAPES, shapes)?;
        rings
            .memory
            .word64(Slot::TRACER.head(layout::RING))
            .store(Slot::TRACER.ring() as u64, Relaxed);
        Ok(rings)
    }

    /// Writes to the part that each program maps privately. Only programs that start later see the change.
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.memory.file().write_all_at(bytes, at as u64)
    }

    /// The value of the sixth argument with which a call passes the filter.
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie
    }

    /// The descriptor of the memory's file.
    pub(crate) fn descriptor(&self) -> i32 {
        self.memory.file().as_raw_fd()
    }

    /// Makes the calling thread the recorder. When this thread ends, for whatever reason, the stubs stop
    /// recording.
    pub(crate) fn become_recorder(&self) -> io::Result<()> {
        self.memory.word32(layout::STATE).store(gettid().as_raw_pid().unsigned_abs(), Release);
        self.memory.mark_at_my_end(layout::STATE)
    }

    /// Whether a thread has ever become the recorder. The command starts only afterwards.
    pub(crate) fn had_recorder(&self) -> bool {
        self.memory.word32(layout::STATE).load(Acquire) != 0
    }

    /// Tells the stubs that the recorder no longer reads.
    pub(crate) fn close(&self) {
        self.memory.word32(layout::STATE).fetch_or(OWNER_DIED, Release);
    }

    /// Whether the recorder has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.memory.word32(layout::STATE).load(Acquire) & OWNER_DIED != 0
    }

    /// Assigns a slot, or none, to a traced thread.
    pub(crate) fn assign(&self, thread: i32, slot: Option<Slot>) {
        if let Some(slot) = slot {
            self.memory.word64(slot.head(layout::RING)).store(slot.ring() as u64, Relaxed);
            self.memory.word64(slot.head(layout::BUSY)).store(0, Relaxed);
            let own_thread = self.memory.word32(slot.head(layout::OWN_THREAD));
            own_thread.store(thread.unsigned_abs(), Release);
            self.memory.word64(layout::SLOTS_USED).fetch_max(slot.0 as u64, Release);
        }
        self.enter(thread, slot.map_or(NO_SLOT, Slot::number));
    }

    /// Removes a thread that is no longer traced.
    pub(crate) fn forget(&self, thread: i32) {
        self.enter(thread, 0);
    }

    fn enter(&self, thread: i32, slot: u32) {
        if let Ok(thread) = usize::try_from(thread)
            && thread < layout::THREADS
        {
            self.memory.word32(layout::TABLE + 4 * thread).store(slot, Release);
        }
    }

    /// Returns the traced threads with IDs below `limit`.
    pub(crate) fn threads(&self, limit: usize) -> Vec<i32> {
        let entry = |id: &usize| self.memory.word32(layout::TABLE + 4 * id).load(Acquire);
        let traced = (0..limit.min(layout::THREADS)).filter(|id| entry(id) != 0);
        traced.filter_map(|id| i32::try_from(id).ok()).collect()
    }

    /// Returns the slots whose ring may hold records.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        let highest = self.memory.word64(layout::SLOTS_USED).load(Acquire) as usize;
        (0..=highest.min(SLOTS_MAX - 1)).map(Slot)
    }

    /// Counts a stop of a traced thread.
    pub(crate) fn count_stop(&self) {
        self.memory.word64(layout::STOPS).fetch_add(1, Relaxed);
    }

    /// Returns the number of stops.
    pub(crate) fn stops(&self) -> u64 {
        self.memory.word64(layout::STOPS).load(Relaxed)
    }

    /// Returns the address of the rings in the program of the slot's thread, if the program could map them.
    pub(crate) fn base(&self, slot: Slot) -> Option<u64> {
        let base = self.memory.word64(slot.report()).load(Acquire);
        (base != 0).then_some(base)
    }

    /// Returns the address of the second copy of the private part, close to the program's code, if there is
    /// one.
    pub(crate) fn near(&self, slot: Slot) -> Option<u64> {
        let near = self.memory.word64(slot.head(layout::NEAR)).load(Acquire);
        (near != 0).then_some(near)
    }

    /// Clears both addresses, because a new program begins.
    pub(crate) fn forget_base(&self, slot: Slot) {
        self.memory.word64(slot.report()).store(0, Release);
        self.memory.word64(slot.head(layout::NEAR)).store(0, Release);
    }

    /// Returns the position of the slot's next record.
    pub(crate) fn position(&self, slot: Slot) -> u64 {
        self.memory.word64(slot.head(layout::HEAD)).load(Acquire)
    }

    /// Whether the slot's ring has room for the longest record.
    pub(crate) fn has_room(&self, slot: Slot) -> bool {
        let read = self.memory.word64(slot.head(layout::TAIL)).load(Acquire);
        start(self.position(slot)).wrapping_sub(read) <= (RING_BYTES - RECORD_MAX) as u64
    }

    /// Whether the stub is in the middle of a call.
    pub(crate) fn is_busy(&self, slot: Slot) -> bool {
        self.memory.word64(slot.head(layout::BUSY)).load(Acquire) != 0
    }

    /// Completes the stub's current call, for a thread that will not return to the stub.
    pub(crate) fn finish(&self, slot: Slot, ended: u64, result: i64) {
        let head = self.memory.word64(slot.head(layout::HEAD));
        let position = head.load(Acquire);
        let at = slot.place(position);
        let size = self.memory.word32(at + layout::SIZE).load(Relaxed);
        self.memory.word64(at + layout::ENDED).store(ended, Relaxed);
        self.memory.word64(at + layout::RESULT).store(result.cast_unsigned(), Relaxed);
        head.store(position.wrapping_add(u64::from(size)), Release);
        self.memory.word64(slot.head(layout::BUSY)).store(0, Release);
    }

    /// Returns the bytes of the stub's current call.
    pub(crate) fn unfinished(&self, slot: Slot) -> Vec<u8> {
        let position = self.memory.word64(slot.head(layout::HEAD)).load(Acquire);
        let at = slot.place(position);
        let size = self.memory.word32(at + layout::SIZE).load(Relaxed) as usize;
        let mut bytes = Vec::new();
        if is_size(size) {
            self.memory.read(at, size, &mut bytes);
        }
        bytes
    }

    /// Appends a record to the tracer's ring. Returns `false` if the ring is full until the recorder reads.
    pub(crate) fn append(&self, record: &Record) -> bool {
        let slot = Slot::TRACER;
        let bytes = record.bytes();
        let head = self.memory.word64(slot.head(layout::HEAD));
        if !self.has_room(slot) {
            return false;
        }
        let position = start(head.load(Relaxed));
        self.memory.write(slot.place(position), &bytes);
        head.store(position.wrapping_add(bytes.len() as u64), Release);
        true
    }

    /// Reads all records of a ring: appends their bytes, and passes the offset and length of each to `each`.
    pub(crate) fn take(&self, slot: Slot, bytes: &mut Vec<u8>, mut each: impl FnMut(usize, usize)) {
        let head = self.memory.word64(slot.head(layout::HEAD)).load(Acquire);
        let tail = self.memory.word64(slot.head(layout::TAIL));
        let mut position = tail.load(Relaxed);
        while position < head {
            position = start(position);
            if position >= head {
                break;
            }
            let at = slot.place(position);
            let size = self.memory.word32(at + layout::SIZE).load(Relaxed) as usize;
            if !is_size(size) {
                // A program overwrote the ring, so the boundaries of later records are lost.
                position = head;
                break;
            }
            each(bytes.len(), size);
            self.memory.read(at, size, bytes);
            position += size as u64;
        }
        tail.store(position, Release);
    }
}

fn is_size(size: usize) -> bool {
    (layout::NAMES..=RECORD_MAX).contains(&size) && size.is_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Calls, Notice, View};

    fn rings() -> SharedRings {
        SharedRings::new(&Calls::new().shapes()).unwrap()
    }

    fn taken(rings: &SharedRings) -> Vec<i32> {
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        rings.take(Slot::TRACER, &mut bytes, |at, size| places.push(at..at + size));
        places.into_iter().map(|place| View::new(&bytes[place]).unwrap().thread()).collect()
    }

    #[test]
    fn records_come_out_in_order_around_the_end_many_times() {
        let rings = rings();
        let mut sent = 0;
        for round in 0..200_i32 {
            let first = sent;
            for _ in 0..(round % 97) {
                let mut record = Record::notice(Notice::Exit, sent, 0, [0; 2]);
                record.names[0] = vec![b'n'; (sent % 4_000).unsigned_abs() as usize];
                if !rings.append(&record) {
                    break;
                }
                sent += 1;
            }
            assert_eq!(taken(&rings), (first..sent).collect::<Vec<_>>());
        }
        assert!(sent > 5_000);
    }

    #[test]
    fn a_full_ring_takes_nothing_more_until_it_is_read() {
        let rings = rings();
        let record = Record::notice(Notice::Exit, 1, 0, [0; 2]);
        let count = (0..1_000_000).take_while(|_| rings.append(&record)).count();
        assert!(count > 10_000 && count < 20_000, "{count}");
        assert_eq!(taken(&rings).len(), count);
        assert!(rings.append(&record));
    }

    #[test]
    fn damage_in_a_ring_loses_that_ring_only_up_to_now() {
        let rings = rings();
        let record = Record::notice(Notice::Exit, 1, 0, [0; 2]);
        assert!(rings.append(&record) && rings.append(&record));
        rings.memory.word32(Slot::TRACER.ring()).store(3, Relaxed);
        assert!(taken(&rings).is_empty());
        assert!(rings.append(&record));
        assert_eq!(taken(&rings), [1]);
    }

    #[test]
    fn the_end_of_the_recorder_closes_the_area() {
        let rings = rings();
        assert!(!rings.is_closed() && !rings.had_recorder());
        rings.close();
        assert!(rings.is_closed());
    }
}
