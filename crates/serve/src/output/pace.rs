//! Checks whether a client takes its response fast enough.

/// The number of checks within the time in which a client has to take some bytes.
const LOOKS: u64 = 4;

/// The bytes of a response that a client has taken, and the time of each progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// When the next check is due.
    next_ms: u64,
    /// The bytes taken by the last check (none before the first one), and when the client last made progress.
    taken_bytes: Option<i64>,
    taken_ms: u64,
    /// The start of the window over which the rate is measured, and the bytes taken by then.
    window_ms: u64,
    window_bytes: i64,
}

/// The minimum pace of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MinimumPace {
    /// The time within which the client has to take some bytes.
    pub(crate) within_ms: u64,
    /// The minimum rate, on average over that time.
    pub(crate) bytes_per_second_min: u64,
}

impl MinimumPace {
    fn window_bytes_min(self) -> i64 {
        let bytes = self.bytes_per_second_min.saturating_mul(self.within_ms) / 1000;
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }
}

impl Pace {
    /// The pace of a client that begins to take its response now.
    pub(crate) fn new(now_ms: u64, pace_min: MinimumPace) -> Self {
        let next_ms = now_ms + pace_min.within_ms / LOOKS;
        Self { next_ms, taken_bytes: None, taken_ms: now_ms, window_ms: now_ms, window_bytes: 0 }
    }

    /// When the next check is due.
    pub(crate) fn next_ms(&self) -> u64 {
        self.next_ms
    }

    /// Checks the total of taken bytes, counted from an arbitrary start; false if the client is too slow.
    pub(crate) fn look(&mut self, now_ms: u64, taken_bytes: i64, pace_min: MinimumPace) -> bool {
        self.next_ms = now_ms + pace_min.within_ms / LOOKS;
        match self.taken_bytes {
            None => (self.window_ms, self.window_bytes) = (now_ms, taken_bytes),
            Some(before) if taken_bytes > before => self.taken_ms = now_ms,
            Some(_) => {}
        }
        self.taken_bytes = Some(taken_bytes);
        if now_ms.saturating_sub(self.taken_ms) >= pace_min.within_ms {
            return false;
        }
        if now_ms.saturating_sub(self.window_ms) < pace_min.within_ms {
            return true;
        }
        let taken = taken_bytes - self.window_bytes;
        (self.window_ms, self.window_bytes) = (now_ms, taken_bytes);
        taken >= pace_min.window_bytes_min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: MinimumPace = MinimumPace { within_ms: 1000, bytes_per_second_min: 100 };

    /// The number of checks that a client passes whose progress at each check is given.
    fn passed(taken: impl Fn(u64) -> i64) -> u64 {
        let mut pace = Pace::new(5000, DEMAND);
        let looks = (1..100).take_while(|look| {
            let now_ms = pace.next_ms();
            assert_eq!(now_ms, 5000 + 250 * look);
            pace.look(now_ms, taken(*look), DEMAND)
        });
        looks.count() as u64
    }

    #[test]
    fn a_client_that_takes_nothing_is_too_slow_when_the_time_is_over() {
        assert_eq!(passed(|_| 7), 3);
        assert_eq!(passed(|look| look.min(10) as i64 * 100), 13);
    }

    #[test]
    fn a_client_that_takes_enough_is_never_too_slow() {
        assert_eq!(passed(|look| look as i64 * 25), 99);
        assert_eq!(passed(|look| look as i64 / 2 * 50), 99, "not at each look");
    }

    #[test]
    fn a_client_that_takes_less_than_the_rate_is_too_slow() {
        assert_eq!(passed(|look| look as i64 * 24), 4);
    }
}
