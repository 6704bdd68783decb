//! Staying near the program that asks.
//!
//! On a busy machine the kernel leaves a thread where it was, and an answer from another processor then
//! waits for whatever runs there, twice. So who reads requests looks now and then where the program
//! runs that asks, and moves there. The kernel may move it away again at any time, and on a quiet machine
//! does: staying there by force was tried, and then the program is moved instead (docs/design/mount.md).

use std::fs;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Requests between two looks: one costs some microseconds.
const INTERVAL: u32 = 64;

/// For the thread that reads.
#[derive(Debug)]
pub(crate) struct Company {
    allowed: CpuSet,
    since: u32,
}

impl Company {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { allowed: sched_getaffinity(None)?, since: 0 })
    }

    /// This process has asked for something, and waits.
    pub(crate) fn keep(&mut self, pid: u32) {
        self.since += 1;
        if self.since < INTERVAL {
            return;
        }
        self.since = 0;
        let Some(there) = processor_of(pid) else { return };
        if there == sched_getcpu() || there >= CpuSet::MAX_CPU || !self.allowed.is_set(there) {
            return;
        }
        let mut only = CpuSet::new();
        only.set(there);
        // Where it cannot go it need not be.
        if sched_setaffinity(None, &only).is_ok() {
            let _ = sched_setaffinity(None, &self.allowed);
        }
    }
}

/// Where the thread has run last.
fn processor_of(pid: u32) -> Option<usize> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    processor(&stat)
}

/// Field 39 of `/proc/PID/stat` (proc(5)); the name before the third may hold anything.
fn processor(stat: &str) -> Option<usize> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_says() {
        let own = CpuSet::MAX_CPU;
        let stat = format!("7 (a) b) S {}5 0 0", "0 ".repeat(35));
        assert_eq!(processor(&stat), Some(5));
        assert!(processor_of(std::process::id()).unwrap() < own);
        assert_eq!(processor_of(0), None);
    }

    #[test]
    fn one_that_moves_may_go_everywhere_again() {
        let mut company = Company::new().unwrap();
        (0..2 * INTERVAL).for_each(|_| company.keep(std::process::id()));
        let after = sched_getaffinity(None).unwrap();
        assert_eq!(after, company.allowed);
    }
}
