//! Keeps a reader on the CPU of the calling program.
//!
//! On a busy machine the scheduler leaves a reader on another CPU, and each request then waits there twice for other
//! tasks. On a quiet machine it wakes the reader on an idle CPU, which takes longer than the request. So a reader
//! looks now and then where its caller runs, and moves there. A reader with `SCHED_IDLE` (see
//! [`idle_policy`](super::idle_policy)) stays pinned until the policy is cleared; any other may be migrated again.

use std::fs;
use std::time::Duration;

use rustix::thread::sched_getcpu;
use thruway_fuse::Operation;

use crate::schedule::reader_activity::Activity;

/// Requests between two checks of the caller's CPU, which cost some microseconds.
const LOOK_INTERVAL: u32 = 64;

/// A pinned reader that has waited this long was probably woken from another CPU. A caller on the same CPU leaves it
/// no time to wait.
const LONG_WAIT: Duration = Duration::from_micros(5);

/// Follows the callers of one reader from CPU to CPU.
#[derive(Debug, Default)]
pub(crate) struct FollowCaller {
    /// The number of requests since the last check.
    requests: u32,
    caller: u32,
    has_waited_long: bool,
}

impl FollowCaller {
    /// Notes how long the reader waited for the next request.
    pub(crate) fn note_wait(&mut self, wait: Duration) {
        self.has_waited_long |= wait > LONG_WAIT;
    }

    /// Follows the process that waits for the reply to a request. A reader with `SCHED_IDLE` stays pinned there.
    pub(crate) fn follow(&mut self, pid: u32, operation: &Operation<'_>, activity: &Activity) {
        let stays = activity.sched_idle().is_set();
        let pinned_to = activity.sched_idle().cpu_pin().processor();
        self.requests += 1;
        if may_read_stat_of(operation) {
            let is_another = std::mem::replace(&mut self.caller, pid) != pid;
            let is_due = self.requests >= LOOK_INTERVAL;
            if is_due || stays && (is_another || self.has_waited_long || pinned_to.is_none()) {
                (self.requests, self.has_waited_long) = (0, false);
                move_to(pid, activity, stays);
            }
        }
        match pinned_to {
            Some(processor) if stays => activity.move_monitor(processor),
            Some(_) => activity.sched_idle().cpu_pin().unpin(),
            None => {}
        }
    }
}

fn move_to(pid: u32, activity: &Activity, stays: bool) {
    let Some(there) = processor_of(pid) else { return };
    let cpu_pin = activity.sched_idle().cpu_pin();
    if stays {
        cpu_pin.pin(there);
    } else if sched_getcpu() != there {
        cpu_pin.pin(there);
        // The scheduler may migrate it again.
        cpu_pin.unpin();
    }
}

/// Whether reading `/proc/PID/stat` of the caller cannot deadlock. During `exec`, a program closes files and writes
/// back its maps under `exec_update_lock`, and waits for the daemon; reading that file takes the same lock. Requests
/// for names and attributes are never sent under the lock.
fn may_read_stat_of(operation: &Operation<'_>) -> bool {
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

/// Returns the CPU on which the thread last ran.
fn processor_of(pid: u32) -> Option<usize> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    processor(&stat)
}

/// Parses field 39 of `/proc/PID/stat` (proc(5)). The second field is the program's name in parentheses, which may
/// contain any character.
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

    const LOOKUP: Operation<'_> = Operation::Lookup { name: c"name" };

    #[test]
    fn the_cpu_of_a_thread_is_read_from_its_stat() {
        let own = CpuSet::MAX_CPU;
        let stat = format!("7 (a) b) S {}5 0 0", "0 ".repeat(35));
        assert_eq!(processor(&stat), Some(5));
        assert!(processor_of(std::process::id()).unwrap() < own);
        assert_eq!(processor_of(0), None);
    }

    /// The activity of the calling thread.
    fn activity() -> Arc<Activity> {
        let activity = Activity::new(&Arc::default());
        activity.sched_idle().register().unwrap();
        activity
    }

    #[test]
    fn a_reader_with_sched_idle_is_pinned_until_the_policy_is_cleared() {
        let before = sched_getaffinity(None).unwrap();
        let activity = activity();
        activity.sched_idle().set(true);
        if !activity.sched_idle().is_set() {
            return skipped("the nice value cannot be lowered");
        }
        let mut follow_caller = FollowCaller::default();
        follow_caller.follow(std::process::id(), &LOOKUP, &activity);
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        activity.sched_idle().set(false);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn a_reader_without_sched_idle_moves_and_is_not_pinned() {
        let before = sched_getaffinity(None).unwrap();
        let (mut follow_caller, activity) = (FollowCaller::default(), activity());
        let moves = 0..2 * LOOK_INTERVAL;
        moves.for_each(|_| follow_caller.follow(std::process::id(), &LOOKUP, &activity));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
