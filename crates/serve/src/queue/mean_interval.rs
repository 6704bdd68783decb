//! Mean intervals: the length of a round, and the pauses of clients.
//!
//! A round is the time in which each client with requests has one of them served.

/// The number of requests in the mean.
const REQUESTS: u64 = 32;

/// The number of means to which an interval is limited: a long absence says little.
const MEANS_MAX: u64 = 4;

/// The mean interval between two requests of a client, over the requests of all clients.
///
/// Clients with many requests count more often. So the mean is the number of clients divided by the requests per
/// second.
#[derive(Debug, Default)]
pub(crate) struct MeanInterval {
    sum_us: u64,
    requests: u64,
}

impl MeanInterval {
    /// Adds the interval between the ready times of two consecutive requests of a client.
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

    /// Whether enough requests have arrived to call an interval long.
    pub(crate) fn is_known(&self) -> bool {
        self.requests == REQUESTS
    }

    /// The mean in microseconds; zero before any client has come back.
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
        // Nine clients send a request every 25 ms, one every 100 ms: 370 requests per second from ten clients.
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
