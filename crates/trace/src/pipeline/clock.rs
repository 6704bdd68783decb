//! Converts the ticks in records to nanoseconds since the start.

use std::time::Instant;

/// The clock of the records. Its rate is measured over the whole time so far, so that the error stays below
/// that of a single reading of the system's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    read: fn() -> u64,
    start_ticks: u64,
    start: Instant,
    ns_per_tick: f64,
}

impl Clock {
    pub(crate) fn start(read: fn() -> u64) -> Self {
        Self { read, start_ticks: read(), start: Instant::now(), ns_per_tick: 0.0 }
    }

    /// Measures the rate again.
    pub(crate) fn calibrate(&mut self) {
        let (ticks, elapsed) = ((self.read)() - self.start_ticks, self.start.elapsed());
        self.ns_per_tick = elapsed.as_nanos() as f64 / ticks.max(1) as f64;
    }

    pub(crate) fn ns(&self, ticks: u64) -> u64 {
        self.duration_ns(ticks.saturating_sub(self.start_ticks))
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.ns((self.read)())
    }

    pub(crate) fn duration_ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

#[cfg(test)]
mod tests {
    use thruway_sys::ticks::ticks;

    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        let mut clock = Clock::start(ticks);
        std::thread::sleep(std::time::Duration::from_millis(20));
        clock.calibrate();
        let now = clock.now_ns();
        assert!(now >= 20_000_000, "{now}");
    }
}
