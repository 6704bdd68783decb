//! Processes: forking, replacing, waiting, signalling and ending them.

use std::ffi::CString;
use std::io;
use std::os::raw::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::outcome::check;

/// A change of a child or a tracee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The process exited with this status.
    Exited(u8),
    /// A signal killed the process.
    Killed(i32),
    /// The process stopped at a signal.
    Stopped {
        /// The number of the signal; bit 7 is set when a tracee stops at a system call.
        signal: i32,
        /// The reason for a tracee's stop: a constant of [`crate::ptrace::event`], or 0.
        event: i32,
    },
    /// The process continued after a stop.
    Continued,
}

/// The processes and changes that [`wait`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Blocks until a child or tracee changes.
    Any,
    /// Returns a pending change of this child, including stops and continuations, without blocking.
    News(i32),
}

/// Forks this process. The copy runs `child` and exits with the status that `child` returns.
///
/// The copy has only the calling thread, and a lock that another thread holds stays locked there, so call this function
/// before the process starts threads. If `child` panics, the copy exits with status 70.
///
/// # Errors
/// `EAGAIN` or `ENOMEM`: the system has no room for another process.
pub fn fork(child: impl FnOnce() -> u8) -> io::Result<i32> {
    // SAFETY: the copy runs only `child` and leaves by `_exit`, so no code of the caller runs twice.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = catch_unwind(AssertUnwindSafe(child)).unwrap_or(70);
            exit_now(status)
        }
        process => Ok(process),
    }
}

/// Exits without running the functions registered with `atexit`, which belong to the parent.
fn exit_now(status: u8) -> ! {
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Replaces this process with `program`. Returns the reason if that fails.
#[must_use]
pub fn execute(program: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: the pointers refer to NUL-terminated strings and NULL-terminated lists that outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Returns the next change of a child or a tracee, with the process id. Returns `None` if no change is pending
/// ([`Wait::News`]) or no process is left to wait for.
///
/// # Errors
/// Any error of `waitpid` except `ECHILD`. An interrupted wait is repeated.
pub fn wait(process: Wait) -> io::Result<Option<(i32, Change)>> {
    let (process, flags) = match process {
        Wait::Any => (-1, libc::__WALL),
        Wait::News(process) => (process, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED),
    };
    loop {
        let mut status = 0;
        // SAFETY: `status` is writable for the duration of the call.
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

/// Returns the class and the level of this process's I/O priority (`ioprio_get(2)`), or -1 if the call fails.
#[cfg(target_os = "linux")]
#[must_use]
pub fn io_priority() -> i64 {
    // Selects a single process, of which 0 is the caller.
    const OF_PROCESS: libc::c_int = 1;
    // SAFETY: the call takes two numbers, and changes nothing.
    unsafe { libc::syscall(libc::SYS_ioprio_get, OF_PROCESS, 0) }
}

/// Sends a signal to a process.
///
/// # Errors
/// `ESRCH`: the process is gone; `EPERM`: the process belongs to another user.
pub fn send_signal(process: i32, signal: i32) -> io::Result<()> {
    // SAFETY: `kill` has no preconditions.
    check(unsafe { libc::kill(process, signal) })
}

/// Returns the id of the parent process.
#[must_use]
pub fn parent() -> i32 {
    // SAFETY: `getppid` has no preconditions and cannot fail.
    unsafe { libc::getppid() }
}

/// Lets `tracer` attach to this process on systems where only ancestors may do so (Yama). Errors are ignored: a system
/// without Yama needs no permission.
pub fn permit_tracer(tracer: i32) {
    // SAFETY: the option takes a process id and changes only this process's rule.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, i64::from(tracer), 0, 0, 0) };
}

/// Sets whether the kernel kills this process as soon as its parent has ended.
pub fn die_with_parent(enabled: bool) {
    let signal = if enabled { libc::SIGKILL } else { 0 };
    // SAFETY: the option takes a signal and changes only the signals that this process receives.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, i64::from(signal), 0, 0, 0) };
}

/// Resets `SIGPIPE` to its default action. Rust's runtime ignores the signal, and programs that are started would
/// inherit that.
pub fn restore_broken_pipe() {
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Sets the name that tools show for this process, cut to 15 bytes.
pub fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the kernel reads a NUL-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Stops this process until it receives `SIGCONT`.
pub fn stop_here() {
    // SAFETY: `raise` has no preconditions, and this signal runs no code.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Ends this process by `signal`, without a core file. If the signal does not end the process, exits with the status
/// that a shell reports for that signal (128 + `signal`).
pub fn die_of(signal: i32) -> ! {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel reads the limit during the call only.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    crate::signal::Mask::empty().set();
    // SAFETY: `raise` has no preconditions.
    unsafe { libc::raise(signal) };
    exit_now(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

/// Returns the soft limit of a process's address space in bytes, or `None` if there is no limit.
///
/// # Errors
/// `ESRCH`: the process is gone.
pub fn address_space_limit(process: i32) -> io::Result<Option<u64>> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: NULL sets no limit, and `limit` is writable for the duration of the call.
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
