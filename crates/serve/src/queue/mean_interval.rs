//! Mean intervals: how long a round lasts, and how long clients rest.
//!
//! A round is the time in which each client that asks has one request served.

/// Requests that the mean is taken over.
const REQUESTS: u64 = 32;

/// An interval counts as this many means at most, so that a long absence says little.
const MEANS_MAX: u64 = 4;

/// The mean interval between two requests of a client, over the requests of all.
///
/// Clients that ask often count often. So the mean is the number of clients, divided by the requests a second.
#[derive(Debug, Default)]
pub(crate) struct MeanInterval {
    sum_us: u64,
    requests: u64,
}

impl MeanInterval {
    /// A request is ready, so long after the last one of its client was.
    pub(crate) fn note(&mut self, interval_us: u64) {
        let interval_us = match self.requests {
            0 => interval_us,
            _ => interval_us.min(self.us().saturating_mul(MEANS_MAX)),
        };
        if self.requests < REQUESTS {
            self.requests += 1;
        } else {
            self.sum_us -= self.us();
        }
        self.sum_us = self.sum_us.saturating_add(interval_us);
    }

    /// Whether so many requests have come that an interval can be called long.
    pub(crate) fn is_known(&self) -> bool {
        self.requests == REQUESTS
    }

    /// Microseconds; zero before a client has come back.
    pub(crate) fn us(&self) -> u64 {
        self.sum_us / self.requests.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_the_number_of_clients_times_the_time_of_one() {
        let mut round = MeanInterval::default();
        assert_eq!((round.us(), round.is_known()), (0, false));
        // Nine clients ask every 25 ms, one every 100 ms: 370 requests a second of ten.
        for request in 0..370 {
            round.note(if request % 37 == 0 { 100_000 } else { 25_000 });
        }
        assert!(round.is_known());
        assert!((26_000..29_000).contains(&round.us()), "{round:?}");
    }

    #[test]
    fn a_round_follows_what_clients_do() {
        let mut round = MeanInterval::default();
        (0..100).for_each(|_| round.note(100));
        (0..300).for_each(|_| round.note(50_000));
        assert!((49_000..=50_000).contains(&round.us()), "{round:?}");
        (0..300).for_each(|_| round.note(100));
        assert!((90..120).contains(&round.us()), "{round:?}");
    }

    #[test]
    fn a_client_that_was_away_for_a_day_says_little() {
        let mut round = MeanInterval::default();
        (0..100).for_each(|_| round.note(1_000));
        round.note(86_400_000_000);
        assert!(round.us() < 1_200, "{round:?}");
    }
}
