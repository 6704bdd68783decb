//! When a client's next request is due.

/// The distribution of an open loop's requests over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal intervals.
    Even,
    /// Random and independent, like those of many people: a Poisson process. Each run has the same intervals.
    Poisson,
}

/// The schedule of one client. Times are nanoseconds since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Schedule {
    /// Whenever fewer requests are pending than allowed.
    Always,
    /// After a pause that follows each response.
    After { pause_ns: u64 },
    /// At a constant rate, independent of responses (open loop): request `n` is due at `first + n ×
    /// interval`.
    Every { first_ns: u64, interval_ns: u64, ramp: Ramp },
    /// At a constant rate of bursts: request `n` of all clients is due with the first one of its burst.
    Bursts { number: u64, clients: u64, burst: u64, gap_ns: f64, ramp: Ramp },
    /// At random intervals with this mean, independent of responses.
    Random { next_ns: u64, mean_ns: f64, draw: Draw, ramp: Ramp },
    /// One request only.
    Once,
}

/// The begin of an open loop, in which its rate rises from 0 evenly. Requests are scheduled as if the rate was
/// constant; their times are stretched here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ramp {
    pub(crate) ramp_ns: u64,
}

impl Ramp {
    /// Returns the time of a request that a constant rate would send at `even_ns`.
    ///
    /// After a time `t` of a ramp of `T`, a rate that rises to `r` has sent `r × t² ÷ 2T` requests.
    #[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
    fn stretched(self, even_ns: u64) -> u64 {
        let half_ns = self.ramp_ns / 2;
        if even_ns >= half_ns {
            return even_ns.saturating_add(half_ns);
        }
        nanoseconds((2.0 * self.ramp_ns as f64 * even_ns as f64).sqrt())
    }

    /// The inverse of `stretched`: the time on the even schedule.
    #[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
    fn even(self, now_ns: u64) -> u64 {
        if now_ns >= self.ramp_ns {
            return now_ns - self.ramp_ns / 2;
        }
        nanoseconds(now_ns as f64 * now_ns as f64 / (2.0 * self.ramp_ns as f64))
    }
}

impl Schedule {
    /// Returns when the next request is due, given the number of requests so far and the time of the last
    /// response.
    ///
    /// In an open loop the time may lie in the past. Latency counts from then, and not from when the client
    /// was able to send, so that a server that stalls cannot hide how long other requests would have waited
    /// ("coordinated omission").
    pub(crate) fn due_ns(&self, asked: u64, last_response_ns: u64, now_ns: u64) -> Option<u64> {
        match *self {
            Self::Always => Some(now_ns),
            Self::After { pause_ns } if asked > 0 => Some(last_response_ns + pause_ns),
            Self::After { .. } => Some(now_ns),
            Self::Every { first_ns, interval_ns, ramp } => {
                Some(ramp.stretched(first_ns + asked * interval_ns))
            }
            Self::Bursts { number, clients, burst, gap_ns, ramp } => {
                let first = (asked * clients + number) / burst * burst;
                Some(ramp.stretched(multiple(first, gap_ns)))
            }
            Self::Random { next_ns, ramp, .. } => Some(ramp.stretched(next_ns)),
            Self::Once => (asked == 0).then_some(now_ns),
        }
    }

    /// Moves on after the due request was asked.
    pub(crate) fn advance(&mut self) {
        if let Self::Random { next_ns, mean_ns, draw, .. } = self {
            *next_ns += draw.distance_ns(*mean_ns);
        }
    }

    /// Returns the number of requests that are due but not asked yet, and when the oldest was due.
    pub(crate) fn overdue(&self, asked: u64, now_ns: u64) -> Option<(u64, u64)> {
        let due_ns = self.due_ns(asked, 0, now_ns)?;
        if due_ns > now_ns {
            return None;
        }
        match *self {
            Self::Every { first_ns, interval_ns, ramp } => {
                let late_ns = ramp.even(now_ns).saturating_sub(first_ns + asked * interval_ns);
                Some((late_ns / interval_ns.max(1) + 1, due_ns))
            }
            Self::Bursts { .. } => {
                let is_due = |more: &u64| {
                    self.due_ns(asked + more, 0, now_ns).is_some_and(|due_ns| due_ns <= now_ns)
                };
                Some(((1..).find(|more| !is_due(more)).unwrap_or(1), due_ns))
            }
            Self::Random { next_ns, mean_ns, mut draw, ramp } => {
                let (mut count, mut next_ns) = (0, next_ns);
                let even_ns = ramp.even(now_ns);
                while next_ns <= even_ns {
                    count += 1;
                    next_ns += draw.distance_ns(mean_ns);
                }
                Some((count.max(1), due_ns))
            }
            _ => None,
        }
    }
}

/// Returns the schedule of one of `clients` clients that together make `rate` requests per second.
pub(crate) fn open_loop(
    rate: f64,
    arrivals: Arrivals,
    clients: u32,
    client: u32,
    ramp: Ramp,
) -> Schedule {
    let gap_ns = 1e9 / rate;
    let mean_ns = gap_ns * f64::from(clients);
    match arrivals {
        Arrivals::Even => {
            let interval_ns = nanoseconds(mean_ns).max(1);
            let first_ns = nanoseconds(gap_ns * f64::from(client));
            Schedule::Every { first_ns, interval_ns, ramp }
        }
        // The Poisson processes of all clients together are one of the whole rate.
        Arrivals::Poisson => {
            let mut draw = Draw { state: u64::from(client) };
            Schedule::Random { next_ns: draw.distance_ns(mean_ns), mean_ns, draw, ramp }
        }
    }
}

/// Returns the schedule of one of `clients` clients that together make `rate` requests per second, `burst` at a
/// time.
pub(crate) fn bursts(rate: f64, burst: u32, clients: u32, client: u32, ramp: Ramp) -> Schedule {
    let (number, clients, burst) = (u64::from(client), u64::from(clients), u64::from(burst));
    Schedule::Bursts { number, clients, burst, gap_ns: 1e9 / rate, ramp }
}

#[expect(clippy::cast_precision_loss, reason = "2^53 requests are never made")]
fn multiple(count: u64, gap_ns: f64) -> u64 {
    nanoseconds(count as f64 * gap_ns)
}

/// A random number generator that repeats in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    /// Returns an exponentially distributed interval of at least 1 ns, so that time always advances.
    fn distance_ns(&mut self, mean_ns: f64) -> u64 {
        nanoseconds(-self.uniform().ln() * mean_ns).max(1)
    }

    /// Returns a number above 0 and at most 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and a float that is too large becomes the largest integer"
)]
fn nanoseconds(time: f64) -> u64 {
    time.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: Ramp = Ramp { ramp_ns: 0 };

    #[test]
    fn a_greedy_client_wants_the_next_at_once() {
        assert_eq!(Schedule::Always.due_ns(5, 70, 100), Some(100));
    }

    #[test]
    fn a_polite_client_pauses_after_each_response_but_not_before_the_first_request() {
        let schedule = Schedule::After { pause_ns: 50 };
        assert_eq!(schedule.due_ns(0, 0, 10), Some(10));
        assert_eq!(schedule.due_ns(1, 70, 100), Some(120));
    }

    #[test]
    fn an_idle_client_asks_once() {
        assert_eq!(Schedule::Once.due_ns(0, 0, 10), Some(10));
        assert_eq!(Schedule::Once.due_ns(1, 10, 20), None);
    }

    #[test]
    fn an_open_loop_does_not_wait_for_responses() {
        let schedule = Schedule::Every { first_ns: 10, interval_ns: 100, ramp: STEADY };
        assert_eq!(schedule.due_ns(3, 1_000_000, 2_000_000), Some(310));
    }

    #[test]
    fn requests_that_were_due_are_counted() {
        let schedule = Schedule::Every { first_ns: 10, interval_ns: 100, ramp: STEADY };
        assert_eq!(schedule.overdue(1, 109), None);
        assert_eq!(schedule.overdue(1, 110), Some((1, 110)));
        assert_eq!(schedule.overdue(1, 350), Some((3, 110)));
        assert_eq!(Schedule::Always.overdue(0, 100), None);
    }

    #[test]
    fn together_the_clients_keep_the_rate_evenly() {
        let mut due: Vec<_> = (0..4)
            .flat_map(|client| {
                let schedule = open_loop(1000.0, Arrivals::Even, 4, client, STEADY);
                (0..250).filter_map(move |asked| schedule.due_ns(asked, 0, 0))
            })
            .collect();
        due.sort_unstable();
        let even: Vec<_> = (0..1000).map(|request| request * 1_000_000).collect();
        assert_eq!(due, even);
    }

    /// Returns when the first `count` requests of a client are due.
    fn due(mut schedule: Schedule, count: u64) -> Vec<u64> {
        let next = |asked| {
            let due_ns = schedule.due_ns(asked, 0, 0);
            schedule.advance();
            due_ns
        };
        (0..count).filter_map(next).collect()
    }

    #[test]
    fn random_arrivals_keep_their_rate_and_are_not_even() {
        let due = due(open_loop(1000.0, Arrivals::Poisson, 1, 0, STEADY), 100_000);
        let last_s = due[99_999] as f64 / 1e9;
        assert!((98.0..102.0).contains(&last_s), "{last_s} s for 100,000 at 1,000 a second");
        let short = due.windows(2).filter(|two| two[1] - two[0] < 1_000_000).count();
        // Of exponential intervals, 1 - 1/e are below the mean: 0.632.
        assert!((62_000..64_500).contains(&short), "{short}");
    }

    #[test]
    fn random_arrivals_repeat_and_differ_by_client() {
        let of = |client| due(open_loop(10.0, Arrivals::Poisson, 2, client, STEADY), 5);
        assert_eq!(of(0), of(0));
        assert_ne!(of(0), of(1));
    }

    #[test]
    fn random_arrivals_that_were_due_are_counted() {
        let schedule = open_loop(1000.0, Arrivals::Poisson, 1, 7, STEADY);
        let due = due(schedule, 10);
        assert_eq!(schedule.overdue(0, due[0] - 1), None);
        assert_eq!(schedule.overdue(0, due[0]), Some((1, due[0])));
        assert_eq!(schedule.overdue(0, due[6]), Some((7, due[0])));
    }

    #[test]
    fn a_rate_rises_evenly() {
        let ramp = Ramp { ramp_ns: 1_000_000_000 };
        let schedule = open_loop(1000.0, Arrivals::Even, 1, 0, ramp);
        let due_s = |asked| schedule.due_ns(asked, 0, 0).unwrap_or_default() as f64 / 1e9;
        // The ramp has 500 requests, a quarter of them in its first half.
        for (asked, expected) in [(0, 0.0), (125, 0.5), (500, 1.0), (1500, 2.0)] {
            assert!((due_s(asked) - expected).abs() < 1e-6, "{asked}: {}", due_s(asked));
        }
        assert_eq!(schedule.overdue(0, 500_000_000), Some((126, 0)));
    }

    #[test]
    fn a_burst_is_due_at_once() {
        let due = |client| due(bursts(1000.0, 4, 2, client, STEADY), 4);
        assert_eq!(due(0), [0, 0, 4_000_000, 4_000_000]);
        assert_eq!(due(1), due(0));
        let schedule = bursts(1000.0, 4, 2, 0, STEADY);
        assert_eq!(schedule.overdue(0, 3_999_999), Some((2, 0)));
        assert_eq!(schedule.overdue(2, 3_999_999), None);
    }
}
