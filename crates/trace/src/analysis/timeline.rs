//! The distribution of look-ups over the time of a recording.

use serde::Serialize;

/// The look-ups in an interval of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Look-ups that began in the interval.
    pub asked: u64,
    /// Misses among them.
    pub missed: u64,
}

/// Intervals of equal length, from the start of the recording.
#[derive(Debug)]
pub(super) struct Timeline {
    /// A power of two, so that no call costs a division.
    width_ns: u64,
    buckets: Vec<Bucket>,
}

/// The most intervals. With more, neighbours are merged and the length doubles.
const BUCKETS_MAX: usize = 512;
const WIDTH_SMALLEST_NS: u64 = 1 << 16;

impl Default for Timeline {
    fn default() -> Self {
        Self { width_ns: WIDTH_SMALLEST_NS, buckets: Vec::new() }
    }
}

impl Timeline {
    pub(super) fn push(&mut self, at_ns: u64, is_missed: bool) {
        while self.index(at_ns) >= BUCKETS_MAX as u64 {
            self.widen();
        }
        // Less than `BUCKETS_MAX` because of the loop above.
        let index = self.index(at_ns) as usize;
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, Bucket::default());
        }
        self.buckets[index].asked += 1;
        self.buckets[index].missed += u64::from(is_missed);
    }

    fn index(&self, at_ns: u64) -> u64 {
        at_ns >> self.width_ns.trailing_zeros()
    }

    fn widen(&mut self) {
        self.width_ns *= 2;
        let pairs = self.buckets.chunks(2);
        let sum = |pair: &[Bucket]| Bucket {
            asked: pair.iter().map(|bucket| bucket.asked).sum(),
            missed: pair.iter().map(|bucket| bucket.missed).sum(),
        };
        self.buckets = pairs.map(sum).collect();
    }

    /// Returns the length of an interval, in nanoseconds, and the intervals.
    pub(super) fn buckets(&self) -> (u64, &[Bucket]) {
        (self.width_ns, &self.buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_recording_has_longer_stretches() {
        let mut timeline = Timeline::default();
        for second in 0..100 {
            timeline.push(second * 1_000_000_000, second % 2 == 0);
        }
        let (width_ns, buckets) = timeline.buckets();
        assert!(buckets.len() <= BUCKETS_MAX && width_ns * buckets.len() as u64 >= 99_000_000_000);
        assert_eq!(buckets.iter().map(|bucket| bucket.asked).sum::<u64>(), 100);
        assert_eq!(buckets.iter().map(|bucket| bucket.missed).sum::<u64>(), 50);
    }
}
