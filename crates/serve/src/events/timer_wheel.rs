//! The deadlines of many connections in a hashed timer wheel, where a postponement is cheap.
//!
//! Each slot has at most one deadline. A postponement only writes a number: at the old time, the wheel moves the slot
//! to a later bucket.

/// The span of a bucket. A deadline is reported late by this span at most.
const TICK_MS: u64 = 64;
/// The number of buckets, a power of two. A deadline beyond one revolution is checked once per revolution.
const BUCKETS: usize = 1024;
const WORDS: usize = BUCKETS / 64;
const NONE: u32 = u32::MAX;

/// Deadlines in milliseconds of a monotonic clock.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    entries: Vec<Timer>,
    firsts: Vec<u32>,
    /// One bit for each bucket that is not empty.
    taken: [u64; WORDS],
    tick: u64,
}

#[derive(Debug, Clone, Copy)]
struct Timer {
    deadline_ms: u64,
    /// The tick of the bucket; 0 if the slot is in no bucket.
    tick: u64,
    before: u32,
    after: u32,
}

impl TimerWheel {
    /// Creates a wheel that starts at `now_ms`, which is not zero.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            entries: Vec::new(),
            firsts: vec![NONE; BUCKETS],
            taken: [0; WORDS],
            tick: now_ms / TICK_MS,
        }
    }

    /// Sets or replaces the deadline of `slot`.
    pub(crate) fn set(&mut self, slot: u32, deadline_ms: u64) {
        let at = slot as usize;
        if at >= self.entries.len() {
            let idle = Timer { deadline_ms: 0, tick: 0, before: NONE, after: NONE };
            self.entries.resize(at + 1, idle);
        }
        let entry = &mut self.entries[at];
        entry.deadline_ms = deadline_ms;
        let tick = self.tick_of(deadline_ms);
        let linked = self.entries[at].tick;
        if linked == 0 || tick < linked {
            self.unlink(slot);
            self.link(slot, tick);
        }
    }

    /// Removes the deadline of `slot`.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.unlink(slot);
    }

    /// Advances to `now_ms`, and reports each slot whose deadline has passed once.
    pub(crate) fn advance(&mut self, now_ms: u64, due: &mut Vec<u32>) {
        let now = now_ms / TICK_MS;
        if now <= self.tick {
            return;
        }
        let buckets = (now - self.tick).min(BUCKETS as u64);
        let first = now - buckets + 1;
        self.tick = now;
        for tick in first..=now {
            self.expire(bucket_of(tick), now_ms, due);
        }
    }

    /// Milliseconds until the next bucket with a slot; none without deadlines.
    pub(crate) fn next_expiry_ms(&self, now_ms: u64) -> Option<u64> {
        let start = bucket_of(self.tick + 1);
        // The bits from `start` to the end of its word, the words after it, and the bits before `start`.
        let words = (0..=WORDS).map(|step| {
            let word = (start / 64 + step) % WORDS;
            let mask = match step {
                0 => u64::MAX << (start % 64),
                WORDS => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            (word, self.taken[word] & mask)
        });
        let (word, bits) = words.into_iter().find(|(_, bits)| *bits != 0)?;
        let bucket = word * 64 + bits.trailing_zeros() as usize;
        let ahead = (bucket + BUCKETS - start) % BUCKETS;
        Some(((self.tick + 1 + ahead as u64) * TICK_MS).saturating_sub(now_ms))
    }

    /// The first tick that begins after the deadline, within one revolution.
    fn tick_of(&self, deadline_ms: u64) -> u64 {
        let tick = deadline_ms.div_ceil(TICK_MS);
        tick.clamp(self.tick + 1, self.tick + BUCKETS as u64 - 1)
    }

    fn expire(&mut self, bucket: usize, now_ms: u64, due: &mut Vec<u32>) {
        let mut slot = std::mem::replace(&mut self.firsts[bucket], NONE);
        self.taken[bucket / 64] &= !(1 << (bucket % 64));
        while slot != NONE {
            let entry = &mut self.entries[slot as usize];
            let after = entry.after;
            entry.tick = 0;
            let deadline_ms = entry.deadline_ms;
            if deadline_ms <= now_ms {
                due.push(slot);
            } else {
                self.link(slot, self.tick_of(deadline_ms));
            }
            slot = after;
        }
    }

    fn link(&mut self, slot: u32, tick: u64) {
        let bucket = bucket_of(tick);
        let after = std::mem::replace(&mut self.firsts[bucket], slot);
        if after != NONE {
            self.entries[after as usize].before = slot;
        }
        self.taken[bucket / 64] |= 1 << (bucket % 64);
        let entry = &mut self.entries[slot as usize];
        (entry.tick, entry.before, entry.after) = (tick, NONE, after);
    }

    fn unlink(&mut self, slot: u32) {
        let Some(entry) = self.entries.get(slot as usize).copied() else { return };
        if entry.tick == 0 {
            return;
        }
        let bucket = bucket_of(entry.tick);
        match entry.before {
            NONE => self.firsts[bucket] = entry.after,
            before => self.entries[before as usize].after = entry.after,
        }
        if entry.after != NONE {
            self.entries[entry.after as usize].before = entry.before;
        }
        if self.firsts[bucket] == NONE {
            self.taken[bucket / 64] &= !(1 << (bucket % 64));
        }
        self.entries[slot as usize].tick = 0;
    }
}

fn bucket_of(tick: u64) -> usize {
    // The remainder is below BUCKETS.
    usize::try_from(tick % BUCKETS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn due(wheel: &mut TimerWheel, now_ms: u64) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.advance(now_ms, &mut due);
        due.sort_unstable();
        due
    }

    #[test]
    fn a_deadline_comes_once_and_not_early() {
        let mut wheel = TimerWheel::new(1_000);
        wheel.set(3, 1_500);
        assert_eq!(due(&mut wheel, 1_499), []);
        assert_eq!(due(&mut wheel, 1_500 + TICK_MS), [3]);
        assert_eq!(due(&mut wheel, 900_000), []);
    }

    #[test]
    fn it_can_be_put_off_brought_forward_and_forgotten() {
        let mut wheel = TimerWheel::new(1_000);
        (0..3).for_each(|slot| wheel.set(slot, 5_000));
        wheel.set(0, 9_000);
        wheel.set(1, 2_000);
        wheel.remove(2);
        assert_eq!(due(&mut wheel, 3_000), [1]);
        assert_eq!(due(&mut wheel, 8_000), []);
        assert_eq!(due(&mut wheel, 9_100), [0]);
    }

    #[test]
    fn a_deadline_beyond_the_wheel_waits_for_its_revolution() {
        let mut wheel = TimerWheel::new(1_000);
        wheel.set(0, 10_000_000);
        let mut now = 1_000;
        while now < 9_990_000 {
            assert_eq!(due(&mut wheel, now), []);
            now += 30_000;
        }
        assert_eq!(due(&mut wheel, 10_000_100), [0]);
    }

    #[test]
    fn a_quiet_wheel_says_so() {
        let mut wheel = TimerWheel::new(1_000);
        assert_eq!(wheel.next_expiry_ms(1_000), None);
        wheel.set(0, 2_000);
        let quiet = wheel.next_expiry_ms(1_000).unwrap();
        assert!((1_000..=1_000 + TICK_MS).contains(&quiet), "{quiet}");
        wheel.remove(0);
        assert_eq!(wheel.next_expiry_ms(1_000), None);
    }

    proptest! {
        #[test]
        fn every_deadline_is_met_within_a_tick(
            steps in prop::collection::vec((0_u32..8, 0_u64..200_000, 0_u64..5_000), 1..100),
        ) {
            let mut now = 10_000;
            let mut wheel = TimerWheel::new(now);
            let mut model = BTreeMap::new();
            for (slot, ahead, passes) in steps {
                wheel.set(slot, now + ahead);
                model.insert(slot, now + ahead);
                now += passes;
                let came = due(&mut wheel, now);
                for slot in &came {
                    prop_assert!(model.remove(slot).is_some_and(|deadline| deadline <= now));
                }
                prop_assert!(model.values().all(|deadline| deadline + 2 * TICK_MS > now));
                if let Some(soonest) = model.values().min() {
                    let quiet = wheel.next_expiry_ms(now).unwrap();
                    prop_assert!(now + quiet <= soonest.max(&now) + 2 * TICK_MS);
                }
            }
        }
    }
}
