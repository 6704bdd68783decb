//! Chooses the next URL of a client by smooth weighted round-robin, so that shares are exact and evenly
//! spread.

use crate::plan::{Class, Plan};

/// The URLs of one client, in turn.
#[derive(Debug)]
pub(crate) struct Rotation {
    shares: Vec<Share>,
    sum: i64,
}

#[derive(Debug)]
struct Share {
    /// The index of the URL in the plan.
    url: usize,
    weight: i64,
    /// How far the URL is behind its share.
    credit: i64,
}

impl Rotation {
    /// Creates the rotation of client `number` of a class. Each client starts at a different position, so
    /// that clients do not all ask for the same URL at once.
    pub(crate) fn new(plan: &Plan, class: &Class, number: u32) -> Self {
        let of_class = |url: &usize| class.url.is_none_or(|only| only == *url);
        let urls = (0..plan.urls.len()).filter(of_class);
        let weighted = urls.map(|url| (url, i64::from(plan.urls[url].weight.max(1))));
        let mut rotation = Self::of(weighted);
        for _ in 0..i64::from(number) % rotation.sum.max(1) {
            rotation.next();
        }
        rotation
    }

    fn of(weighted: impl Iterator<Item = (usize, i64)>) -> Self {
        let shares: Vec<_> =
            weighted.map(|(url, weight)| Share { url, weight, credit: 0 }).collect();
        let sum = shares.iter().map(|share| share.weight).sum();
        Self { shares, sum }
    }

    /// Returns the index of the next URL.
    pub(crate) fn next(&mut self) -> usize {
        if let [only] = self.shares.as_slice() {
            return only.url;
        }
        self.shares.iter_mut().for_each(|share| share.credit += share.weight);
        // The first of several that are equally far behind.
        let Some(next) = self.shares.iter_mut().rev().max_by_key(|share| share.credit) else {
            return 0;
        };
        next.credit -= self.sum;
        next.url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(weights: &[i64], count: usize) -> Vec<usize> {
        let mut rotation = Rotation::of(weights.iter().copied().enumerate());
        (0..count).map(|_| rotation.next()).collect()
    }

    #[test]
    fn equal_weights_take_turns() {
        assert_eq!(turns(&[1, 1, 1], 6), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_heavier_url_is_spread_between_the_others() {
        assert_eq!(turns(&[3, 1], 8), [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(turns(&[5, 1, 1], 7), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn shares_are_exact_after_each_round() {
        let turns = turns(&[7, 2, 4], 13 * 5);
        let count = |url| turns.iter().filter(|turn| **turn == url).count();
        assert_eq!([count(0), count(1), count(2)], [35, 10, 20]);
    }

    #[test]
    fn one_url_is_always_next() {
        assert_eq!(turns(&[4], 3), [0, 0, 0]);
    }
}
