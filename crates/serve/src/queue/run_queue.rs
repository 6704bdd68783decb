//! The connections of a worker that wait for service, lowest key first.
//!
//! An indexed binary heap: the position of each slot is known, so that a removal leaves nothing behind. A key is a time
//! in microseconds. Entries with equal keys leave in the order of their arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The position of a slot that does not wait.
const NONE: u32 = u32::MAX;

/// The entries that [`RunQueue::find_oldest`] inspects at most: a long queue of unwanted entries costs little.
const SEARCH_MAX: usize = 64;

/// Slots in the order of their keys. Each slot waits at most once.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    heap: Vec<QueuedItem>,
    /// The position of each slot in the heap.
    positions: Vec<u32>,
    /// The number of slots enqueued so far.
    enqueued: u64,
}

/// An entry, ordered by key and then by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct QueuedItem {
    key_us: u64,
    sequence: u64,
    slot: u32,
}

impl RunQueue {
    /// Adds `slot`. If the slot already waits, the lower key applies.
    pub(crate) fn enqueue(&mut self, slot: u32, key_us: u64) {
        match self.position(slot) {
            None => self.push(slot, key_us),
            Some(at) if key_us < self.heap[at].key_us => {
                self.heap[at].key_us = key_us;
                self.sift_up(at);
            }
            Some(_) => {}
        }
    }

    /// Takes out the slot with the lowest key.
    pub(crate) fn next(&mut self) -> Option<(u32, u64)> {
        let oldest = *self.heap.first()?;
        self.remove_at(0);
        Some((oldest.slot, oldest.key_us))
    }

    /// Removes `slot`, if it waits.
    pub(crate) fn remove(&mut self, slot: u32) {
        if let Some(at) = self.position(slot) {
            self.remove_at(at);
        }
    }

    /// The number of waiting slots.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The lowest key.
    pub(crate) fn oldest_us(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.key_us)
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.position(slot).is_some()
    }

    /// All slots, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.heap.iter().map(|entry| entry.slot)
    }

    /// The first slot that `is_wanted`, with its key, among the [`SEARCH_MAX`] slots with the lowest keys.
    pub(crate) fn find_oldest(&self, mut is_wanted: impl FnMut(u32) -> bool) -> Option<(u32, u64)> {
        let oldest = self.heap.first()?;
        if is_wanted(oldest.slot) {
            return Some((oldest.slot, oldest.key_us));
        }
        let others = self.ascending().take(SEARCH_MAX).skip(1);
        let mut wanted = others.filter(|entry| is_wanted(entry.slot));
        wanted.next().map(|entry| (entry.slot, entry.key_us))
    }

    /// Entries in ascending order, by a search through the heap from its root.
    fn ascending(&self) -> impl Iterator<Item = QueuedItem> + '_ {
        let at = |position: usize| Some(Reverse((*self.heap.get(position)?, position)));
        let mut frontier: BinaryHeap<_> = at(0).into_iter().collect();
        std::iter::from_fn(move || {
            let Reverse((entry, position)) = frontier.pop()?;
            frontier.extend([2 * position + 1, 2 * position + 2].into_iter().filter_map(at));
            Some(entry)
        })
    }

    fn position(&self, slot: u32) -> Option<usize> {
        let position = self.positions.get(slot as usize).copied();
        position.filter(|position| *position != NONE).map(|position| position as usize)
    }

    fn push(&mut self, slot: u32, key_us: u64) {
        if slot as usize >= self.positions.len() {
            self.positions.resize(slot as usize + 1, NONE);
        }
        self.enqueued += 1;
        self.heap.push(QueuedItem { key_us, sequence: self.enqueued, slot });
        self.sift_up(self.heap.len() - 1);
    }

    fn remove_at(&mut self, at: usize) {
        let removed = self.heap.swap_remove(at);
        self.positions[removed.slot as usize] = NONE;
        if at < self.heap.len() {
            // The last entry came from another branch, so its place may be above or below.
            self.sift_up(at);
            self.sift_down(at);
        }
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.heap.swap(at, (at - 1) / 2);
            self.note_position(at);
            at = (at - 1) / 2;
        }
        self.note_position(at);
    }

    fn sift_down(&mut self, mut at: usize) {
        while let Some(child) = self.lower_child(at)
            && self.heap[child] < self.heap[at]
        {
            self.heap.swap(at, child);
            self.note_position(at);
            at = child;
        }
        self.note_position(at);
    }

    fn lower_child(&self, at: usize) -> Option<usize> {
        let children = 2 * at + 1..(2 * at + 3).min(self.heap.len());
        children.min_by_key(|child| self.heap[*child])
    }

    fn note_position(&mut self, at: usize) {
        self.positions[self.heap[at].slot as usize] = u32::try_from(at).unwrap_or(NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_key_goes_first_and_equal_keys_in_order() {
        let mut queue = RunQueue::default();
        let entries = [(3, 20), (1, 10), (7, 20), (5, 20)];
        entries.iter().for_each(|(slot, key_us)| queue.enqueue(*slot, *key_us));
        let order: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(order, [(1, 10), (3, 20), (7, 20), (5, 20)]);
    }

    #[test]
    fn a_slot_that_waits_keeps_its_place() {
        let mut queue = RunQueue::default();
        queue.enqueue(1, 10);
        queue.enqueue(2, 10);
        queue.enqueue(1, 15);
        queue.enqueue(1, 10);
        assert_eq!((queue.len(), queue.next()), (2, Some((1, 10))));
    }

    #[test]
    fn a_long_queue_is_searched_no_further_than_its_oldest() {
        let mut queue = RunQueue::default();
        (0..10_000).for_each(|slot| queue.enqueue(slot, u64::from(10_000 - slot)));
        let mut asked = Vec::new();
        let found = queue.find_oldest(|slot| {
            asked.push(slot);
            false
        });
        assert_eq!(found, None);
        assert_eq!(asked, (9_936..10_000).rev().collect::<Vec<_>>());
    }

    #[test]
    fn ten_thousand_that_come_and_go_take_no_more_memory() {
        let mut queue = RunQueue::default();
        (0..10_000).for_each(|slot| queue.enqueue(slot, 0));
        let held = (queue.heap.capacity(), queue.positions.capacity());
        for round in 1..20 {
            (0..10_000).filter(|slot| slot % 3 == 0).for_each(|slot| queue.remove(slot));
            while queue.next().is_some() {}
            (0..10_000).for_each(|slot| queue.enqueue(slot, round));
        }
        assert_eq!((queue.heap.capacity(), queue.positions.capacity()), held);
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_list(steps in prop::collection::vec((0..5, 0_u32..40, 0_u64..20), 0..300)) {
            let mut queue = RunQueue::default();
            let mut list: Vec<(u64, u64, u32)> = Vec::new();
            for ((step, slot, key_us), sequence) in steps.into_iter().zip(0..) {
                match step {
                    0 | 1 => {
                        queue.enqueue(slot, key_us);
                        match list.iter_mut().find(|entry| entry.2 == slot) {
                            Some(entry) => entry.0 = entry.0.min(key_us),
                            None => list.push((key_us, sequence, slot)),
                        }
                    }
                    2 => {
                        queue.remove(slot);
                        list.retain(|entry| entry.2 != slot);
                    }
                    3 => {
                        let first = list.first().copied();
                        prop_assert_eq!(queue.next(), first.map(|entry| (entry.2, entry.0)));
                        list.retain(|entry| Some(*entry) != first);
                    }
                    _ => {
                        let wanted = list.iter().find(|entry| entry.2 % 8 == slot % 8);
                        let found = queue.find_oldest(|other| other % 8 == slot % 8);
                        prop_assert_eq!(found, wanted.map(|entry| (entry.2, entry.0)));
                    }
                }
                list.sort_unstable();
                prop_assert_eq!(queue.len(), list.len());
                prop_assert_eq!(queue.contains(slot), list.iter().any(|entry| entry.2 == slot));
                prop_assert_eq!(queue.oldest_us(), list.first().map(|entry| entry.0));
                let mut slots: Vec<_> = queue.iter().collect();
                slots.sort_unstable();
                let mut expected: Vec<_> = list.iter().map(|entry| entry.2).collect();
                expected.sort_unstable();
                prop_assert_eq!(slots, expected);
            }
        }
    }
}
