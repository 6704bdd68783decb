//! Measures how equally the responses are shared among connections.

/// Returns Jain's index of the shares: (Σx)² ÷ (n · Σx²). 1 if all shares are equal, 1/n if one connection
/// has everything.
///
/// `None` if no connection got anything. R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and
/// Discrimination for Resource Allocation in Shared Computer Systems", DEC TR-301, 1984.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "2^53 requests are never made")]
pub fn jain(shares: impl IntoIterator<Item = u64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        let share = share as f64;
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

/// Whether a connection that asked is starved: it has no response, or less than a tenth of its class's mean
/// share.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "2^53 requests are never made")]
pub fn is_starved(share: u64, mean: f64) -> bool {
    share == 0 || (share as f64) < mean / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(index: Option<f64>, expected: f64) -> bool {
        index.is_some_and(|index| (index - expected).abs() < 5e-4)
    }

    #[test]
    fn equal_shares_are_perfectly_fair() {
        assert!(close(jain([7; 10]), 1.0));
    }

    #[test]
    fn one_winner_of_ten_has_a_tenth() {
        assert!(close(jain([9, 0, 0, 0, 0, 0, 0, 0, 0, 0]), 0.1));
    }

    #[test]
    fn a_published_run_is_convicted() {
        let shares = [28596, 45787, 29882, 1, 1, 1, 45461, 1, 1, 1];
        assert!(close(jain(shares), 0.3817));
        let mean = shares.iter().sum::<u64>() as f64 / 10.0;
        assert_eq!(shares.iter().filter(|share| is_starved(**share, mean)).count(), 6);
    }

    #[test]
    fn shares_are_not_judged_where_there_are_none() {
        assert_eq!(jain([0, 0]), None);
        assert_eq!(jain([]), None);
    }

    #[test]
    fn a_tenth_of_the_mean_is_not_starved() {
        assert!(is_starved(0, 0.0));
        assert!(is_starved(9, 100.0));
        assert!(!is_starved(10, 100.0));
    }

    proptest! {
        #[test]
        fn the_index_is_between_one_winner_and_equal(shares in proptest::collection::vec(0u64..1 << 40, 1..50)) {
            if let Some(index) = jain(shares.iter().copied()) {
                prop_assert!(index <= 1.0 + 1e-9);
                prop_assert!(index >= 1.0 / shares.len() as f64 - 1e-9);
            }
        }

        #[test]
        fn the_index_does_not_know_units(shares in proptest::collection::vec(1u64..1 << 20, 1..50)) {
            let (once, tenfold) = (jain(shares.iter().copied()), jain(shares.iter().map(|share| share * 10)));
            prop_assert!((once.unwrap() - tenfold.unwrap()).abs() < 1e-9);
        }
    }
}
