//! A histogram of latencies with a bounded relative error.

/// Each power of two is divided into 2⁷ buckets, so a reported value differs from the recorded one by at most
/// 0.4 %.
const PRECISION_BITS: u32 = 7;

/// Counts of values in buckets whose width grows with the value, as in an HDR histogram.
///
/// The memory grows with the largest recorded value, to at most 60 KB.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: u64,
    sum: u128,
    squares: u128,
}

/// A range of values, and how many recorded values lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest value of the range.
    pub from: u64,
    /// The smallest value above the range.
    pub to: u64,
    /// The number of recorded values in the range.
    pub count: u64,
}

impl Histogram {
    /// Counts a value, in a unit of the caller's choice.
    pub fn record(&mut self, value: u64) {
        let bucket = bucket(value);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.largest = self.largest.max(value);
        self.sum += u128::from(value);
        self.squares = self.squares.saturating_add(u128::from(value) * u128::from(value));
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.total, self.largest, self.sum, self.squares) = (0, 0, 0, 0);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, others) in self.counts.iter_mut().zip(&other.counts) {
            *own += others;
        }
        self.total += other.total;
        self.largest = self.largest.max(other.largest);
        self.sum += other.sum;
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Returns the mean of all values exactly; 0 if empty.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "15 digits are enough")]
    pub fn mean(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sum as f64 / self.total as f64 }
    }

    /// Returns the standard deviation of all values; 0 if empty.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "15 digits are enough")]
    pub fn deviation(&self) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        let mean = self.mean();
        (self.squares as f64 / self.total as f64 - mean * mean).max(0.0).sqrt()
    }

    /// Returns the buckets that hold values, in order.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let held = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        held.map(|(bucket, count)| Bucket {
            from: first(bucket),
            to: first(bucket + 1),
            count: *count,
        })
    }

    /// Returns the number of recorded values.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the largest value exactly; 0 if empty.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// Returns the value that a `share` (0 to 1) of all values do not exceed; 0 if empty.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a rank is between 1 and the total, and 2^53 requests are never made"
    )]
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return middle(bucket).min(self.largest);
            }
        }
        self.largest
    }
}

/// Returns the bucket of a value. Values below 2⁸ have a bucket of their own; for larger values the first
/// eight bits count.
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - PRECISION_BITS - 1).saturating_sub(value.leading_zeros());
    ((shift as usize) << PRECISION_BITS) + (value >> shift) as usize
}

/// Returns the smallest value of a bucket.
fn first(bucket: usize) -> u64 {
    let shift = (bucket >> PRECISION_BITS).saturating_sub(1);
    let first = u128::from((bucket - (shift << PRECISION_BITS)) as u64) << shift;
    u64::try_from(first).unwrap_or(u64::MAX)
}

/// Returns the value in the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let shift = (bucket >> PRECISION_BITS).saturating_sub(1);
    first(bucket) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram
    }

    #[test]
    fn quantiles_are_ranks() {
        let hundred = histogram(1..=100);
        assert_eq!(hundred.quantile(0.5), 50);
        assert_eq!(hundred.quantile(0.99), 99);
        assert_eq!(hundred.quantile(0.999), 100);
        assert_eq!((hundred.quantile(0.0), hundred.quantile(1.0)), (1, 100));
    }

    #[test]
    fn the_largest_value_is_exact_and_never_exceeded() {
        let one = histogram([1_234_567]);
        assert_eq!((one.largest(), one.total()), (1_234_567, 1));
        assert!(one.quantile(0.5) <= 1_234_567);
    }

    #[test]
    fn mean_and_deviation_are_those_of_the_values() {
        let four = histogram([2, 4, 4, 4, 5, 5, 7, 9]);
        assert!((four.mean() - 5.0).abs() < 1e-9 && (four.deviation() - 2.0).abs() < 1e-9);
        let none = Histogram::default();
        assert!(none.mean().abs() < 1e-9 && none.deviation().abs() < 1e-9);
    }

    #[test]
    fn cleared_values_leave_no_trace() {
        let mut cleared = histogram([5, 1000, u64::MAX]);
        cleared.clear();
        cleared.record(7);
        assert_eq!((cleared.total(), cleared.largest(), cleared.quantile(1.0)), (1, 7, 7));
        assert!((cleared.mean() - 7.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_recorded_is_zero() {
        let none = Histogram::default();
        assert_eq!((none.quantile(0.5), none.largest(), none.total()), (0, 0, 0));
    }

    #[test]
    fn the_largest_number_has_a_bucket() {
        assert_eq!(histogram([u64::MAX]).quantile(1.0), middle(bucket(u64::MAX)));
    }

    proptest! {
        #[test]
        fn a_bucket_is_within_its_error(value: u64) {
            let error = middle(bucket(value)).abs_diff(value);
            prop_assert!(u128::from(error) * 256 <= u128::from(value));
        }

        #[test]
        fn each_value_lies_in_its_bucket(values: Vec<u64>) {
            let histogram = histogram(values.clone());
            let held: Vec<_> = histogram.buckets().collect();
            prop_assert_eq!(held.iter().map(|bucket| bucket.count).sum::<u64>(), values.len() as u64);
            for value in values {
                prop_assert!(held.iter().any(|bucket| bucket.from <= value && value <= bucket.to));
            }
        }

        #[test]
        fn buckets_keep_the_order(one: u64, other: u64) {
            prop_assert!((one <= other) == (bucket(one) <= bucket(other)) || bucket(one) == bucket(other));
        }

        #[test]
        fn merged_is_recorded_together(left: Vec<u64>, right: Vec<u64>, share in 0.0..=1.0f64) {
            let mut merged = histogram(left.clone());
            merged.merge(&histogram(right.clone()));
            let together = histogram(left.into_iter().chain(right));
            prop_assert_eq!(merged.quantile(share), together.quantile(share));
            prop_assert_eq!(merged.total(), together.total());
        }
    }
}
