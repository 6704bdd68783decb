//! Processes: fork, replace, wait, and the end that a child came to.

use std::ffi::CString;
use std::io;
use std::os::raw::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::outcome::check;

/// What became of a child or a tracee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It ended by itself, with this status.
    Exited(u8),
    /// A signal ended it.
    Killed(i32),
    /// It stopped at this signal; `event` is one of [`crate::ptrace::event`] or 0.
    Stopped {
        /// The signal's number; bit 7 is set at the stop of a system call.
        signal: i32,
        /// Why a tracee stopped, where the signal does not say it all.
        event: i32,
    },
    /// It runs again after a stop.
    Continued,
}

/// Which processes and which changes [`wait`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Any child or tracee, until there is news.
    Any,
    /// News of one child, stops and continuations included, or nothing at once.
    News(i32),
}

/// Starts a copy of this process that runs `child` and ends with its answer as the exit status.
///
/// The copy holds only the thread that called. A lock that another thread holds stays locked in it,
/// so call this before the first thread is started. A panic in `child` ends it with status 70.
///
/// # Errors
/// `EAGAIN` or `ENOMEM`: the system has no room for another process.
pub fn fork(child: impl FnOnce() -> u8) -> io::Result<i32> {
    // SAFETY: the copy runs `child` alone and leaves by `_exit`; nothing of the caller runs twice.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = catch_unwind(AssertUnwindSafe(child)).unwrap_or(70);
            exit_now(status)
        }
        process => Ok(process),
    }
}

/// Ends this process without running what is registered for its end, which the parent will run.
fn exit_now(status: u8) -> ! {
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Becomes `program`. Returns only if that failed, with the reason.
#[must_use]
pub fn execute(program: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: three pointers to NUL-terminated strings and NULL-terminated lists, all alive here.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// The next change of a child or a tracee, with its id. `None`: nothing new ([`Wait::News`]), or
/// nothing is left to wait for.
///
/// # Errors
/// Whatever `waitpid` reports beyond `ECHILD`; an interruption is waited out.
pub fn wait(process: Wait) -> io::Result<Option<(i32, Change)>> {
    let (process, flags) = match process {
        Wait::Any => (-1, libc::__WALL),
        Wait::News(process) => (process, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED),
    };
    loop {
        let mut status = 0;
        // SAFETY: `status` is writable for the time of the call.
        match unsafe { libc::waitpid(process, &raw mut status, flags) } {
            0 => return Ok(None),
            -1 => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EINTR) => {}
                error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
                error => return Err(error),
            },
            process => return Ok(Some((process, Change::of(status)))),
        }
    }
}

impl Change {
    fn of(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            // The kernel keeps eight bits.
            Self::Exited(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
        } else if libc::WIFSIGNALED(status) {
            Self::Killed(libc::WTERMSIG(status))
        } else if libc::WIFCONTINUED(status) {
            Self::Continued
        } else {
            Self::Stopped { signal: libc::WSTOPSIG(status), event: status >> 16 }
        }
    }
}

/// The class and the priority of this process's input and output (`ioprio_get(2)`); -1 where there is none.
#[cfg(target_os = "linux")]
#[must_use]
pub fn io_priority() -> i64 {
    // The number then is a process's, and 0 is the caller.
    const OF_PROCESS: libc::c_int = 1;
    // SAFETY: it takes two numbers, and changes nothing.
    unsafe { libc::syscall(libc::SYS_ioprio_get, OF_PROCESS, 0) }
}

/// Sends a signal to a process.
///
/// # Errors
/// `ESRCH`: it is gone; `EPERM`: it belongs to another user.
pub fn send_signal(process: i32, signal: i32) -> io::Result<()> {
    // SAFETY: `kill` has no preconditions.
    check(unsafe { libc::kill(process, signal) })
}

/// The id of this process's parent.
#[must_use]
pub fn parent() -> i32 {
    // SAFETY: `getppid` has no preconditions and cannot fail.
    unsafe { libc::getppid() }
}

/// Lets `tracer` attach to this process where the system lets only ancestors do so (Yama). The
/// answer does not matter: a system without Yama has no such rule.
pub fn permit_tracer(tracer: i32) {
    // SAFETY: this option takes a process id and changes nothing but this process's own rule.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, i64::from(tracer), 0, 0, 0) };
}

/// Whether this process is killed as soon as its parent has ended.
pub fn die_with_parent(does: bool) {
    let signal = if does { libc::SIGKILL } else { 0 };
    // SAFETY: this option takes a signal and changes nothing but what this process receives.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, i64::from(signal), 0, 0, 0) };
}

/// Takes back that writing to a closed pipe is no signal: Rust's start decides so, and programs that
/// are started inherit it.
pub fn restore_broken_pipe() {
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// The name that tools show for this process, cut to 15 bytes.
pub fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the kernel reads a NUL-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Stops this process until it gets `SIGCONT`.
pub fn stop_here() {
    // SAFETY: `raise` has no preconditions, and this signal runs no code.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Ends this process as `signal` would, without a core file. If the signal does not end it, it
/// exits with the status that a shell shows for the signal.
pub fn die_of(signal: i32) -> ! {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is read during the call only.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    crate::signal::Mask::empty().set();
    // SAFETY: `raise` has no preconditions.
    unsafe { libc::raise(signal) };
    exit_now(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

/// The soft limit of a process's address space in bytes, if there is one.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn address_space_limit(process: i32) -> io::Result<Option<u64>> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: nothing is set (NULL), and `limit` is writable for the time of the call.
    check(unsafe { libc::prlimit64(process, libc::RLIMIT_AS, ptr::null(), &raw mut limit) })?;
    Ok((limit.rlim_cur != libc::RLIM64_INFINITY).then_some(limit.rlim_cur))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(child: impl FnOnce() -> u8) -> Change {
        let process = fork(child).unwrap();
        loop {
            if let Some((_, change)) = wait(Wait::News(process)).unwrap() {
                return change;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_child_ends_with_its_own_status() {
        assert_eq!(end_of(|| 7), Change::Exited(7));
    }

    #[test]
    fn a_signal_that_ends_a_child_is_named() {
        assert_eq!(end_of(|| die_of(libc::SIGTERM)), Change::Killed(libc::SIGTERM));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let missing = CString::new("/nowhere/at all").unwrap();
        assert_eq!(execute(&missing, &[], &[]).raw_os_error(), Some(libc::ENOENT));
    }
}
