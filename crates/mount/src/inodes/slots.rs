//! The free slots of the table. The memory of unused slots is released.

use std::sync::atomic::Ordering::Relaxed;

use super::record::WORDS;
use crate::memory::{Memory, SLOTS_MAX};

/// The first slot. Slot zero is not used, since an id of zero means "no inode".
pub(super) const FIRST: u32 = 1;

/// The number of slots whose memory is released together: 416 KiB.
const CHUNK: u32 = 4096;
const _: () = assert!(CHUNK as usize * WORDS * 8 == 416 << 10);
/// The end of a list of free slots.
const NONE: u32 = u32::MAX;
/// The word of a free slot's record that holds the next free slot.
const NEXT: usize = 1;

#[derive(Debug)]
struct Chunk {
    live: u32,
    /// The first free slot that was used before.
    free: u32,
    /// The first slot that was never used, relative to the chunk.
    fresh: u32,
}

impl Chunk {
    fn new(index: u32) -> Self {
        Self { live: 0, free: NONE, fresh: if index == 0 { FIRST } else { 0 } }
    }
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    chunks: Vec<Chunk>,
    /// Chunks that have free slots.
    roomy: Vec<u32>,
    live: usize,
}

impl Slots {
    /// Takes a free slot. Returns `None` if the table is full.
    pub(super) fn take(&mut self, memory: &Memory) -> Option<u32> {
        let index = match self.roomy.last() {
            Some(&index) => index,
            None => self.grow()?,
        };
        let chunk = &mut self.chunks[index as usize];
        let slot = if chunk.free == NONE {
            chunk.fresh += 1;
            index * CHUNK + chunk.fresh - 1
        } else {
            let slot = chunk.free;
            chunk.free = next(memory, slot);
            slot
        };
        chunk.live += 1;
        self.live += 1;
        if chunk.free == NONE && chunk.fresh == CHUNK {
            self.roomy.pop();
        }
        Some(slot)
    }

    /// Frees a slot, whose record must be clear.
    pub(super) fn free(&mut self, slot: u32, memory: &Memory) {
        let index = slot / CHUNK;
        let chunk = &mut self.chunks[index as usize];
        if chunk.free == NONE && chunk.fresh == CHUNK {
            self.roomy.push(index);
        }
        set_next(memory, slot, std::mem::replace(&mut chunk.free, slot));
        chunk.live -= 1;
        self.live -= 1;
        if chunk.live == 0 {
            *chunk = Chunk::new(index);
            memory.release_slots(index * CHUNK..(index + 1) * CHUNK);
        }
    }

    /// Marks a slot as free, after a crash.
    pub(super) fn leave_free(&mut self, slot: u32, memory: &Memory) {
        self.reach(slot);
        let chunk = &mut self.chunks[(slot / CHUNK) as usize];
        chunk.fresh = slot % CHUNK + 1;
        set_next(memory, slot, std::mem::replace(&mut chunk.free, slot));
    }

    /// Marks a slot as used: the root's slot, or a slot of the previous worker.
    pub(super) fn occupy(&mut self, slot: u32) {
        self.reach(slot);
        let chunk = &mut self.chunks[(slot / CHUNK) as usize];
        chunk.fresh = chunk.fresh.max(slot % CHUNK + 1);
        chunk.live += 1;
        self.live += 1;
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Adds chunks until `slot` exists.
    fn reach(&mut self, slot: u32) {
        while self.chunks.len() <= (slot / CHUNK) as usize {
            if self.grow().is_none() {
                return;
            }
        }
    }

    fn grow(&mut self) -> Option<u32> {
        let index = u32::try_from(self.chunks.len()).ok().filter(|&i| i < SLOTS_MAX / CHUNK)?;
        self.chunks.push(Chunk::new(index));
        self.roomy.push(index);
        Some(index)
    }
}

fn next(memory: &Memory, slot: u32) -> u32 {
    u32::try_from(memory.slot(slot)[NEXT].load(Relaxed)).unwrap_or(NONE)
}

fn set_next(memory: &Memory, slot: u32, next: u32) {
    memory.slot(slot)[NEXT].store(u64::from(next), Relaxed);
}
