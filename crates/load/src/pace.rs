//! The pace of a slow client, which sends its next byte or reads its next few bytes at intervals.

use crate::plan::{ClientKind, nanoseconds};

/// The pace of one client. Times are nanoseconds since the start of the run.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The interval; `None` for clients that are not slow.
    gap_ns: Option<u64>,
    /// When the next step is due.
    pub(crate) next_ns: u64,
}

impl Pace {
    pub(crate) fn of(kind: ClientKind) -> Self {
        let gap_ns = match kind {
            ClientKind::Trickle { gap } | ClientKind::SlowRead { gap, .. } => {
                Some(nanoseconds(gap))
            }
            _ => None,
        };
        Self { gap_ns, next_ns: 0 }
    }

    /// Whether a slow client may take a step now. Sets the time of the next one.
    pub(crate) fn step(&mut self, now_ns: u64) -> bool {
        let Some(gap_ns) = self.gap_ns.filter(|_| now_ns >= self.next_ns) else { return false };
        self.next_ns = now_ns + gap_ns;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_slow_client_steps_once_in_its_time() {
        let mut pace = Pace::of(ClientKind::Trickle { gap: Duration::from_nanos(10) });
        assert_eq!(
            [0, 1, 9, 10, 11, 25].map(|now_ns| pace.step(now_ns)),
            [true, false, false, true, false, true]
        );
        assert!(!Pace::of(ClientKind::Greedy).step(0));
    }
}
