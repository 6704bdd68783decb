//! The time as an engine last read it.

use rustix::time::{ClockId, clock_gettime};
use thruway_http1::Date;
use thruway_http1::date::DATE_BYTES;

/// Times of the last reading, so that a turn reads the clock as seldom as it can.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Milliseconds of the monotonic clock.
    pub(crate) now_ms: u64,
    /// Microseconds of the monotonic clock; they may have been read later.
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

    /// Reads the clocks.
    pub(crate) fn update(&mut self) {
        self.now_us = monotonic_us();
        self.now_ms = self.now_us / 1000;
        self.unix_seconds = unix_seconds();
    }

    /// The date for a response.
    pub(crate) fn date(&mut self) -> [u8; DATE_BYTES] {
        *self.date.at(self.unix_seconds)
    }
}

/// Microseconds of the monotonic clock, which all processes share.
#[must_use]
pub fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let us = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
    u64::try_from(us).unwrap_or(0)
}

fn unix_seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}
