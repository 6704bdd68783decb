//! Staying near the program that asks.
//!
//! On a busy machine the kernel leaves a thread where it was, and an answer from another processor then
//! waits for whatever runs there, twice; on a quiet one it wakes the reader on the processor that is
//! idle, which takes longer than the request. So who reads requests looks now and then where the program
//! runs that asks, and moves there. A courteous one (see `courtesy`) stays until it is released; any other
//! may be moved away again.

use std::fs;
use std::time::Duration;

use rustix::thread::sched_getcpu;
use thruway_fuse::Operation;

use crate::schedule::reader_activity::Work;

/// Requests between two looks: one costs some microseconds.
const INTERVAL: u32 = 64;

/// One who stays and has waited for so long was probably called from elsewhere: a program that runs here
/// would not have let it run before asking.
const LONG: Duration = Duration::from_micros(5);

/// For a thread that reads.
#[derive(Debug, Default)]
pub(crate) struct Company {
    since: u32,
    caller: u32,
    has_waited: bool,
}

impl Company {
    /// It took so long until the next request was there.
    pub(crate) fn note_wait(&mut self, wait: Duration) {
        self.has_waited |= wait > LONG;
    }

    /// This process waits for the answer to a request. A courteous thread stays where it is.
    pub(crate) fn keep(&mut self, pid: u32, operation: &Operation<'_>, work: &Work) {
        let stays = work.courtesy().is_shown();
        let held_at = work.courtesy().tether().at();
        self.since += 1;
        if may_be_looked_at(operation) {
            let is_another = std::mem::replace(&mut self.caller, pid) != pid;
            let is_due = self.since >= INTERVAL;
            if is_due || stays && (is_another || self.has_waited || held_at.is_none()) {
                (self.since, self.has_waited) = (0, false);
                join(pid, work, stays);
            }
        }
        match held_at {
            Some(processor) if stays => work.invite(processor),
            Some(_) => work.courtesy().tether().untie(),
            None => {}
        }
    }
}

fn join(pid: u32, work: &Work, stays: bool) {
    let Some(there) = processor_of(pid) else { return };
    let tether = work.courtesy().tether();
    if stays {
        tether.tie(there);
    } else if sched_getcpu() != there {
        tether.tie(there);
        // It may be moved again.
        tether.untie();
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
    use std::sync::Arc;

    use rustix::thread::{CpuSet, sched_getaffinity};

    use super::*;
    use thruway_testing::skipped;

    const LOOK_UP: Operation<'_> = Operation::Lookup { name: c"name" };

    #[test]
    fn a_thread_runs_where_it_says() {
        let own = CpuSet::MAX_CPU;
        let stat = format!("7 (a) b) S {}5 0 0", "0 ".repeat(35));
        assert_eq!(processor(&stat), Some(5));
        assert!(processor_of(std::process::id()).unwrap() < own);
        assert_eq!(processor_of(0), None);
    }

    /// The calling thread's.
    fn work() -> Arc<Work> {
        let work = Work::new(&Arc::default());
        work.courtesy().introduce().unwrap();
        work
    }

    #[test]
    fn one_that_stays_may_go_nowhere_until_it_need_not() {
        let before = sched_getaffinity(None).unwrap();
        let work = work();
        work.courtesy().show(true);
        if !work.courtesy().is_shown() {
            return skipped("the nice value cannot be lowered");
        }
        let mut company = Company::default();
        company.keep(std::process::id(), &LOOK_UP, &work);
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        work.courtesy().show(false);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn one_that_moves_may_go_everywhere_again() {
        let before = sched_getaffinity(None).unwrap();
        let (mut company, work) = (Company::default(), work());
        let moves = 0..2 * INTERVAL;
        moves.for_each(|_| company.keep(std::process::id(), &LOOK_UP, &work));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
