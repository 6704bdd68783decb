//! Attributes of a single thread: umask, current folder and scheduling policy.

use std::io;

use rustix::thread::Pid;

/// Gives the calling thread its own umask and current folder; the process's other threads keep theirs.
///
/// # Errors
/// Any error of `unshare`.
pub fn unshare_umask() -> io::Result<()> {
    // SAFETY: only the current folder, the root and the umask are unshared; descriptors stay shared.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }?)
}

/// Gives a thread of this process the policy `SCHED_IDLE`, under which it yields to every other thread on its CPU, or
/// the default policy again.
///
/// # Errors
/// Any error of `sched_setscheduler`. Leaving `SCHED_IDLE` requires the right to lower the nice value.
pub fn set_idle_policy(thread: Pid, is_idle: bool) -> io::Result<()> {
    let policy = if is_idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters outlive the call, which does not keep the pointer.
    match unsafe { libc::sched_setscheduler(thread.as_raw_pid(), policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling thread the lowest priority of `SCHED_FIFO`. Once woken, the thread preempts the program on its
/// CPU.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, or in a cgroup without a real-time budget.
pub fn set_fifo_policy() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters outlive the call, which does not keep the pointer.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the calling thread has the default policy, `SCHED_OTHER`.
#[must_use]
pub fn has_usual_policy() -> bool {
    // SAFETY: the call takes a plain number.
    unsafe { libc::sched_getscheduler(0) == libc::SCHED_OTHER }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;
    use rustix::process::umask;

    #[test]
    fn a_thread_steps_aside_and_comes_back() {
        let policies = std::thread::spawn(|| {
            let own = rustix::thread::gettid();
            set_idle_policy(own, true)?;
            let aside = has_usual_policy();
            // Without the right to lower the nice value, a thread cannot leave `SCHED_IDLE`.
            io::Result::Ok((aside, set_idle_policy(own, false).is_err() || has_usual_policy()))
        });
        assert_eq!(policies.join().unwrap().unwrap(), (false, true));
    }

    #[test]
    fn the_first_policy_is_not_the_usual_one() {
        let usual = std::thread::spawn(|| set_fifo_policy().map(|()| has_usual_policy()));
        match usual.join().unwrap() {
            Ok(usual) => assert!(!usual),
            Err(error) => thruway_testing::skipped(error),
        }
    }

    #[test]
    fn a_umask_of_its_own_does_not_reach_other_threads() {
        let before = umask(Mode::from_raw_mode(0o22));
        umask(before);
        let unshared = std::thread::spawn(|| {
            unshare_umask()?;
            umask(Mode::from_raw_mode(0o777));
            io::Result::Ok(())
        });
        unshared.join().unwrap().unwrap();
        assert_eq!(umask(before), before);
    }
}
