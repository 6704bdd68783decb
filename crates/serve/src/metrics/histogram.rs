//! Histograms of durations.

use std::sync::atomic::{AtomicU64, Ordering};

use super::adding::AddMode;

/// The upper bounds of the buckets, in microseconds; longer times go to one more bucket.
pub(super) const BOUNDS_US: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The same bounds in seconds, as the page shows them.
pub(super) const BOUNDS_SECONDS: [&str; 18] = [
    "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1",
    "0.25", "0.5", "1", "2.5", "5", "10", "30", "60",
];

const BUCKETS: usize = BOUNDS_US.len() + 1;

/// The words of a histogram: its buckets, and the sum of all times.
pub(super) const WORDS: usize = BUCKETS + 1;

/// Records a time.
pub(super) fn record(words: &[AtomicU64], us: u64, adding: AddMode) {
    // Most times of a quick application belong to the first bucket.
    let is_short = us <= BOUNDS_US[0];
    let bucket = if is_short { 0 } else { BOUNDS_US.partition_point(|bound| *bound < us) };
    adding.add(&words[bucket], 1);
    adding.add(&words[BUCKETS], us);
}

/// A snapshot of a histogram.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    pub(super) buckets: [u64; BUCKETS],
    pub(super) sum_us: u64,
}

impl Histogram {
    /// Adds the counts of another row.
    pub(super) fn add(&mut self, words: &[AtomicU64]) {
        for (bucket, word) in self.buckets.iter_mut().zip(words) {
            *bucket += word.load(Ordering::Relaxed);
        }
        self.sum_us += words[BUCKETS].load(Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The bound in microseconds below which the given share of all times lies; none without times, or beyond the last
    /// bound.
    pub(super) fn quantile_us(&self, share: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|bucket| {
            seen += bucket;
            seen >= wanted && wanted > 0
        });
        BOUNDS_US.get(bucket?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_the_same_in_seconds() {
        for (us, seconds) in BOUNDS_US.into_iter().zip(BOUNDS_SECONDS) {
            assert_eq!(seconds.parse::<f64>().unwrap() * 1e6, us as f64);
        }
        assert!(BOUNDS_US.is_sorted());
    }

    #[test]
    fn a_time_is_counted_in_the_bucket_whose_bound_it_does_not_exceed() {
        let words: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        for us in [0, 100, 101, 60_000_000, 60_000_001] {
            record(&words, us, AddMode::Alone);
        }
        let mut histogram = Histogram::default();
        histogram.add(&words);
        assert_eq!((histogram.buckets[0], histogram.buckets[1]), (2, 1));
        assert_eq!((histogram.buckets[17], histogram.buckets[18]), (1, 1));
        assert_eq!((histogram.count(), histogram.sum_us), (5, 120_000_202));
        assert_eq!(histogram.quantile_us(0.5), Some(250));
        assert_eq!(histogram.quantile_us(1.0), None, "the longest is beyond all bounds");
        assert_eq!(Histogram::default().quantile_us(0.5), None);
    }
}
