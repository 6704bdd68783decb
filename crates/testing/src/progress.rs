//! Reports the progress of a long test: a line every few seconds if `THRUWAY_PROGRESS` is set, as by `cargo x prove`.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The interval between lines.
const INTERVAL: Duration = Duration::from_secs(5);

/// Counts cases.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    cases: AtomicU64,
    /// The time of the last line; `None` if lines are disabled.
    written: Option<Mutex<Instant>>,
}

impl Progress {
    /// Creates a counter that starts now.
    #[must_use]
    pub fn start() -> Self {
        let start = Instant::now();
        let is_wanted = std::env::var_os("THRUWAY_PROGRESS").is_some();
        let written = is_wanted.then(|| Mutex::new(start));
        Self { start, cases: AtomicU64::new(0), written }
    }

    /// Adds finished cases.
    pub fn add(&self, cases: u64) {
        let all = self.cases.fetch_add(cases, Relaxed) + cases;
        let Some(Ok(mut written)) = self.written.as_ref().map(Mutex::try_lock) else { return };
        if written.elapsed() >= INTERVAL {
            *written = Instant::now();
            let line = line(all, self.start.elapsed());
            let _ = io::stderr().write_all(line.as_bytes());
        }
    }
}

fn line(cases: u64, took: Duration) -> String {
    let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    format!("{cases} cases, {} a second\n", cases * 1000 / milliseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_many_and_how_fast() {
        assert_eq!(line(300, Duration::from_millis(1500)), "300 cases, 200 a second\n");
        assert_eq!(line(0, Duration::ZERO), "0 cases, 0 a second\n");
    }
}
