//! What belongs to one thread alone.

use std::io;

use rustix::thread::Pid;

/// Gives the calling thread a umask and a current folder of its own; the process's other threads
/// keep theirs.
///
/// # Errors
/// Whatever `unshare` reports.
pub fn unshare_umask() -> io::Result<()> {
    // SAFETY: only the current folder, the root and the umask are unshared; no descriptor is.
    Ok(unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }?)
}

/// Gives a thread of this process the policy `SCHED_IDLE`, with which it steps aside for every other
/// thread on its processor, or the usual one.
///
/// # Errors
/// Whatever `sched_setscheduler` reports: the way back takes the right to lower the nice value.
pub fn set_idle_policy(thread: Pid, is_idle: bool) -> io::Result<()> {
    let policy = if is_idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters outlive the call, which keeps nothing of them.
    match unsafe { libc::sched_setscheduler(thread.as_raw_pid(), policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling thread the lowest priority of `SCHED_FIFO`: woken on its processor, it runs before the program
/// there goes on.
///
/// # Errors
/// It needs `CAP_SYS_NICE`, and a cgroup that may have such threads.
pub fn set_fifo_policy() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters outlive the call, which keeps nothing of them.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the calling thread has the usual policy, `SCHED_OTHER`.
#[must_use]
pub fn has_usual_policy() -> bool {
    // SAFETY: nothing is passed but a number.
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
            // Where the nice value may not be lowered there is no way back.
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
