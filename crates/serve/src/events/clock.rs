//! The time as an engine last read it.

use rustix::time::{ClockId, clock_gettime};
use thruway_http1::Date;
use thruway_http1::date::DATE_BYTES;

/// The times of the last reading. A turn reads the clock as seldom as it can.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Milliseconds of the monotonic clock.
    pub(crate) now_ms: u64,
    /// Microseconds of the monotonic clock, possibly of a later reading.
    pub(crate) now_us: u64,
    unix_seconds: u64,
    date: Date,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let now_us = monotonic_us();
        let unix_seconds = unix_seconds();
        Self { now_ms: now_us / 1000, now_us, unix_seconds, date: Date::new(unix_seconds) }
    }

    /// Reads the clocks again.
    pub(crate) fn update(&mut self) {
        self.now_us = monotonic_us();
        self.now_ms = self.now_us / 1000;
        self.unix_seconds = unix_seconds();
    }

    /// The `Date` of a response.
    pub(crate) fn date(&mut self) -> [u8; DATE_BYTES] {
        *self.date.at(self.unix_seconds)
    }
}

/// Microseconds of the monotonic clock, which all processes share.
#[must_use]
pub fn monotonic_us() -> u64 {
    #[cfg(test)]
    if let Some(now_us) = stopped::now_us() {
        return now_us;
    }
    let now = clock_gettime(ClockId::Monotonic);
    let us = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
    u64::try_from(us).unwrap_or(0)
}

fn unix_seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}

/// A monotonic clock that stands still: the outcome of a test does not depend on how often the test is preempted.
#[cfg(test)]
pub(crate) mod stopped {
    use std::cell::Cell;

    thread_local! {
        static NOW_US: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Stops the clock of the current thread until the value is dropped. Only the test moves the clock.
    #[derive(Debug)]
    pub(crate) struct StoppedClock(());

    impl StoppedClock {
        pub(crate) fn new() -> Self {
            NOW_US.set(Some(super::monotonic_us()));
            Self(())
        }

        pub(crate) fn advance_ms(&self, ms: u64) {
            NOW_US.set(NOW_US.get().map(|now_us| now_us + ms * 1000));
        }
    }

    impl Drop for StoppedClock {
        fn drop(&mut self) {
            NOW_US.set(None);
        }
    }

    pub(super) fn now_us() -> Option<u64> {
        NOW_US.get()
    }
}
