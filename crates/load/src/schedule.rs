//! When a client wants its next request.

/// One client's rule. Times are nanoseconds since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// At once: whenever fewer are pending than may be.
    Always,
    /// A pause after each response.
    After { pause_ns: u64 },
    /// At a constant rate that does not wait for responses (open loop): request `n` is due at `first + n × interval`.
    Every { first_ns: u64, interval_ns: u64 },
    /// One request, then silence.
    Once,
}

impl Schedule {
    /// When the next request is due, given how many were asked and when the last response came.
    ///
    /// In an open loop it may lie in the past: latency counts from there, not from when the client got
    /// round to it, so a server that stalls cannot hide how long others would have waited
    /// ("coordinated omission").
    pub(crate) fn due_ns(self, asked: u64, last_response_ns: u64, now_ns: u64) -> Option<u64> {
        match self {
            Self::Always => Some(now_ns),
            Self::After { pause_ns } if asked > 0 => Some(last_response_ns + pause_ns),
            Self::After { .. } => Some(now_ns),
            Self::Every { first_ns, interval_ns } => Some(first_ns + asked * interval_ns),
            Self::Once => (asked == 0).then_some(now_ns),
        }
    }

    /// How many requests are due and not yet asked, and since when the oldest of them.
    pub(crate) fn overdue(self, asked: u64, now_ns: u64) -> Option<(u64, u64)> {
        let Self::Every { interval_ns, .. } = self else { return None };
        let due_ns = self.due_ns(asked, 0, now_ns)?;
        let late_ns = now_ns.checked_sub(due_ns)?;
        Some((late_ns / interval_ns.max(1) + 1, due_ns))
    }
}

/// The schedule of one of `clients` clients that together ask `rate` times a second, evenly spread.
pub(crate) fn open_loop(rate: f64, clients: u32, client: u32) -> Schedule {
    let gap_ns = 1e9 / rate;
    let interval_ns = nanoseconds(gap_ns * f64::from(clients)).max(1);
    Schedule::Every { first_ns: nanoseconds(gap_ns * f64::from(client)), interval_ns }
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
        let schedule = Schedule::Every { first_ns: 10, interval_ns: 100 };
        assert_eq!(schedule.due_ns(3, 1_000_000, 2_000_000), Some(310));
    }

    #[test]
    fn requests_that_were_due_are_counted() {
        let schedule = Schedule::Every { first_ns: 10, interval_ns: 100 };
        assert_eq!(schedule.overdue(1, 109), None);
        assert_eq!(schedule.overdue(1, 110), Some((1, 110)));
        assert_eq!(schedule.overdue(1, 350), Some((3, 110)));
        assert_eq!(Schedule::Always.overdue(0, 100), None);
    }

    #[test]
    fn together_the_clients_keep_the_rate_evenly() {
        let mut due: Vec<_> = (0..4)
            .flat_map(|client| {
                let schedule = open_loop(1000.0, 4, client);
                (0..250).filter_map(move |asked| schedule.due_ns(asked, 0, 0))
            })
            .collect();
        due.sort_unstable();
        let even: Vec<_> = (0..1000).map(|request| request * 1_000_000).collect();
        assert_eq!(due, even);
    }
}
