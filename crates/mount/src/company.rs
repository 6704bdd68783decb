//! Staying near the program that asks.
//!
//! On a busy machine the kernel leaves a thread where it was, and an answer from another processor then
//! waits for whatever runs there, twice; on a quiet one it wakes the reader on the processor that is
//! idle, which takes longer than the request. So who reads requests looks now and then where the program
//! runs that asks, and moves there. A courteous one (see `courtesy`) stays until it is released; any other
//! may be moved away again.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use thruway_fuse::Operation;

/// Requests between two looks: one costs some microseconds.
const INTERVAL: u32 = 64;

/// One who stays and has waited for so long was probably called from elsewhere: a program that runs here
/// would not have let it run before asking.
const LONG: Duration = Duration::from_micros(5);

/// For the thread that reads.
#[derive(Debug)]
pub(crate) struct Company {
    allowed: CpuSet,
    since: u32,
    caller: u32,
    has_waited: bool,
    /// Where this thread has to stay.
    held_at: Option<usize>,
}

impl Company {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            allowed: sched_getaffinity(None)?,
            since: 0,
            caller: 0,
            has_waited: false,
            held_at: None,
        })
    }

    /// It took so long until the next request was there.
    pub(crate) fn note_wait(&mut self, wait: Duration) {
        self.has_waited |= wait > LONG;
    }

    /// This process waits for the answer to a request; whether to stay where it is.
    pub(crate) fn keep(&mut self, pid: u32, operation: &Operation<'_>, stays: bool) {
        if !stays {
            self.leave();
        }
        self.since += 1;
        if !may_be_looked_at(operation) {
            return;
        }
        let is_another = std::mem::replace(&mut self.caller, pid) != pid;
        let is_due = self.since >= INTERVAL;
        if is_due || stays && (is_another || self.has_waited || self.held_at.is_none()) {
            (self.since, self.has_waited) = (0, false);
            self.join(pid, stays);
        }
    }

    fn join(&mut self, pid: u32, stays: bool) {
        let Some(there) = processor_of(pid) else { return };
        let here = self.held_at.unwrap_or_else(sched_getcpu);
        let is_allowed = there < CpuSet::MAX_CPU && self.allowed.is_set(there);
        if !is_allowed || there == here && stays == self.held_at.is_some() {
            return;
        }
        let mut only = CpuSet::new();
        only.set(there);
        // Where it cannot go it need not be.
        if sched_setaffinity(None, &only).is_ok() {
            self.held_at = Some(there);
        }
        if !stays {
            self.leave();
        }
    }

    /// May be moved again.
    fn leave(&mut self) {
        if self.held_at.take().is_some() {
            let _ = sched_setaffinity(None, &self.allowed);
        }
    }
}

/// A program that becomes another one closes files, and writes what it had mapped, under a lock that
/// `/proc/PID/stat` waits for (`exec_update_lock`); and it waits for us. So only those are looked at
/// who ask for a name or its attributes, which nobody does under it.
fn may_be_looked_at(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Lookup { .. }
            | Operation::GetAttr(_)
            | Operation::Open(_)
            | Operation::Create { .. }
            | Operation::OpenDir(_)
            | Operation::ReadDirPlus(_)
            | Operation::MkDir { .. }
            | Operation::Unlink { .. }
            | Operation::RmDir { .. }
    )
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

    const LOOK_UP: Operation<'_> = Operation::Lookup { name: c"name" };

    #[test]
    fn a_thread_runs_where_it_says() {
        let own = CpuSet::MAX_CPU;
        let stat = format!("7 (a) b) S {}5 0 0", "0 ".repeat(35));
        assert_eq!(processor(&stat), Some(5));
        assert!(processor_of(std::process::id()).unwrap() < own);
        assert_eq!(processor_of(0), None);
    }

    #[test]
    fn one_that_stays_may_go_nowhere_until_it_is_released() {
        let mut company = Company::new().unwrap();
        company.keep(std::process::id(), &LOOK_UP, true);
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        company.keep(std::process::id(), &LOOK_UP, false);
        assert_eq!(sched_getaffinity(None).unwrap(), company.allowed);
    }

    #[test]
    fn one_that_moves_may_go_everywhere_again() {
        let mut company = Company::new().unwrap();
        (0..2 * INTERVAL).for_each(|_| company.keep(std::process::id(), &LOOK_UP, false));
        let after = sched_getaffinity(None).unwrap();
        assert_eq!(after, company.allowed);
    }
}
