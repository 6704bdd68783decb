//! Starts another program, either in a new process or in place of the current process.
//!
//! A new process is created in the manner of `posix_spawn`: it shares the caller's memory until it runs the program
//! (`CLONE_VM | CLONE_VFORK`), so no page is copied, and an error in the child is simply written to memory that the
//! parent reads. Unlike `posix_spawn`, the child tries one candidate after the other, so a search costs a single
//! process.
//!
//! Between `clone` and `execve` the child runs in the parent's memory. Code on that path must not allocate, lock, run
//! destructors or panic.

mod plan;
mod request;
mod signals;
mod texts;

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use plan::{Plan, errno};
pub use request::{Candidates, Failure, Start, StartedProcess, Step};
use signals::BlockedSignals;
pub use texts::Texts;

impl Start<'_> {
    /// Starts the first candidate that can be started, in a new process.
    ///
    /// The program inherits the signal mask of the calling thread and all descriptors that are not close-on-exec.
    /// `SIGPIPE` is reset to its default action: Rust's runtime ignores the signal, and programs do not expect to start
    /// with it ignored.
    ///
    /// # Errors
    /// The step that failed, or the error of each candidate.
    pub fn spawn(&self, candidates: Candidates<'_, '_>) -> Result<StartedProcess, Failure> {
        let mut plan =
            Plan::new(self, candidates).map_err(|error| Failure::Step(Step::Stdio, error))?;
        let blocked = BlockedSignals::new();
        plan.mask = Some(blocked.before);
        let made = make_process(&mut plan);
        drop(blocked);
        let (pid, descriptor) = made.map_err(|error| Failure::Step(Step::Process, error))?;
        match plan.failure() {
            None => Ok(StartedProcess { pid, descriptor }),
            Some(failure) => {
                reap(pid);
                Err(failure)
            }
        }
    }

    /// Replaces the current program with the first candidate that can be run. Returns only on failure; the steps before
    /// the first candidate have taken effect by then.
    #[must_use]
    pub fn replace(&self, candidates: Candidates<'_, '_>) -> Failure {
        match Plan::new(self, candidates) {
            Ok(mut plan) => {
                plan.run();
                plan.failure().unwrap_or(Failure::Candidates(Vec::new()))
            }
            Err(error) => Failure::Step(Step::Stdio, error),
        }
    }
}

/// Creates the process that runs the plan. The process shares this process's memory, and has left it when the function
/// returns.
fn make_process(plan: &mut Plan<'_, '_, '_>) -> io::Result<(i32, OwnedFd)> {
    let (pid, descriptor) = match clone_for(plan, libc::CLONE_PIDFD) {
        // QEMU before version 8 does not know the flag.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => clone_for(plan, 0)?,
        made => made?,
    };
    let opened = match (descriptor, Pid::from_raw(pid)) {
        (Some(descriptor), _) => Ok(descriptor),
        (None, Some(pid)) => pidfd_open(pid, PidfdFlags::empty()),
        (None, None) => Err(Errno::SRCH),
    };
    Ok((pid, opened.inspect_err(|_| reap(pid))?))
}

/// Clones this process to run the plan. The descriptor is `Some` if `extra_flags` contains `CLONE_PIDFD`.
fn clone_for(
    plan: &mut Plan<'_, '_, '_>,
    extra_flags: c_int,
) -> io::Result<(i32, Option<OwnedFd>)> {
    let mut stack = Stack::new();
    let mut descriptor: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | extra_flags;
    // SAFETY: the stack, the plan and the descriptor outlive the call, which returns only after the new process has
    // left this memory by execve or _exit (CLONE_VFORK).
    let pid = unsafe {
        libc::clone(
            run_in_child,
            stack.top(),
            flags,
            ptr::from_mut(plan).cast(),
            &raw mut descriptor,
        )
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `clone` created the descriptor, and nothing else owns it.
    let descriptor = (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) });
    Ok((pid, descriptor))
}

/// The entry point of the new process, which runs on its own stack.
extern "C" fn run_in_child(plan: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes its plan, and waits until this process has left the shared memory.
    let plan = unsafe { &mut *plan.cast::<Plan<'_, '_, '_>>() };
    plan.run();
    // SAFETY: `_exit` ends this process only, and runs no code of the shared memory.
    unsafe { libc::_exit(127) }
}

/// The stack of the new process, large enough for the few calls that it makes.
struct Stack {
    bytes: Box<[MaybeUninit<u8>]>,
}

impl Stack {
    /// Twice the size that the GNU C library uses for the same purpose.
    const LENGTH: usize = 64 * 1024;

    fn new() -> Self {
        Self { bytes: Box::new_uninit_slice(Self::LENGTH) }
    }

    /// Returns the end of the memory, since stacks grow downwards, aligned to 16 bytes as every calling convention
    /// requires.
    fn top(&mut self) -> *mut c_void {
        let end = self.bytes.as_mut_ptr_range().end;
        end.map_addr(|address| address & !15).cast()
    }
}

/// Reaps a process that ended without running its program.
fn reap(pid: i32) {
    // SAFETY: the process is a child that no other code knows of, and a null pointer discards the status.
    while unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } < 0 && errno() == libc::EINTR {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ffi::CString;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;

    const PASSED_OVER: [i32; 2] = [libc::ENOENT, libc::EACCES];

    fn strings(texts: &[&str]) -> Texts {
        let mut strings = Texts::default();
        texts.iter().for_each(|text| assert!(strings.push(&[text.as_bytes()])));
        strings
    }

    fn wait(started: &StartedProcess) -> i32 {
        let mut status = 0;
        // SAFETY: the process is this test's child.
        let waited = unsafe { libc::waitpid(started.pid, &raw mut status, 0) };
        assert_eq!(waited, started.pid);
        status
    }

    /// The parts of a start.
    struct Parts {
        candidates: Vec<String>,
        arguments: Texts,
        environment: Texts,
    }

    impl Parts {
        fn new(candidates: &[&str], arguments: &[&str]) -> Self {
            let environment = strings(&["A=1", "PATH=/usr/bin:/bin"]);
            let candidates = candidates.iter().map(|path| (*path).to_owned()).collect();
            Self { candidates, arguments: strings(arguments), environment }
        }

        fn start(&self) -> Start<'_> {
            Start {
                arguments: &self.arguments,
                environment: &self.environment,
                folder: None,
                stdio: [None; 3],
                group: None,
                skippable_errors: &PASSED_OVER,
            }
        }
    }

    impl Parts {
        fn spawn(&self, start: &Start<'_>) -> Result<StartedProcess, Failure> {
            let empty = b"".as_slice();
            let mut parts =
                self.candidates.iter().map(|path| [path.as_bytes(), empty, empty, empty]);
            let longest = self.candidates.iter().map(String::len).max().unwrap_or(0);
            let count = self.candidates.len();
            start.spawn(Candidates { parts: &mut parts, count, longest })
        }
    }

    /// Returns the output and the status of `sh -c script`.
    fn run(script: &str, folder: Option<&CStr>, group: Option<i32>) -> (String, i32) {
        let parts = Parts::new(&["/none/sh", "/bin/sh"], &["sh", "-c", script]);
        let (mut reader, writer) = io::pipe().unwrap();
        let stdio = [None, Some(writer.as_fd()), None];
        let started = parts.spawn(&Start { stdio, folder, group, ..parts.start() }).unwrap();
        drop(writer);
        let mut output = String::new();
        reader.read_to_string(&mut output).unwrap();
        (output, wait(&started))
    }

    #[test]
    fn the_first_candidate_that_starts_is_started() {
        let (output, status) = run("echo $0 $A; exit 3", None, None);
        assert_eq!((output.as_str(), status), ("sh 1\n", 3 << 8));
    }

    #[test]
    fn the_program_gets_its_folder_and_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        let script = "pwd; read -r _ _ _ _ group _ < /proc/$$/stat; test $group = $$ && echo own";
        let (output, _) = run(script, Some(&path), Some(0));
        assert_eq!(output, format!("{}\nown\n", folder.path().display()));
    }

    /// Returns the masks of blocked and of ignored signals from a status file in `/proc`.
    fn signals(status: &str) -> [u64; 2] {
        ["SigBlk:", "SigIgn:"].map(|field| {
            let mask = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap()
        })
    }

    #[test]
    fn signals_are_as_a_fresh_program_expects_them() {
        let script = "while read -r line; do echo \"$line\"; done < /proc/$$/status";
        let (status, _) = run(script, None, None);
        let [blocked, ignored] =
            signals(&std::fs::read_to_string("/proc/thread-self/status").unwrap());
        let pipe = 1 << (libc::SIGPIPE - 1);
        assert!(ignored & pipe != 0, "Rust's runtime ignores it");
        assert_eq!(signals(&status), [blocked, ignored & !pipe]);
    }

    #[test]
    fn every_candidates_error_is_reported() {
        let parts = Parts::new(&["/none/x", "/etc/passwd", "/etc/passwd/x", "/bin/true"], &["x"]);
        match parts.spawn(&parts.start()) {
            Err(Failure::Candidates(errors)) => {
                assert_eq!(errors, [libc::ENOENT, libc::EACCES, libc::ENOTDIR]);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_missing_folder_is_reported_as_the_folder() {
        let parts = Parts::new(&["/bin/true"], &["true"]);
        match parts.spawn(&Start { folder: Some(c"/none"), ..parts.start() }) {
            Err(Failure::Step(Step::Folder, error)) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_script_without_an_interpreter_is_run_by_sh() {
        // A separate process writes the script. If this process had it open for writing, every process that another
        // test starts at the same moment would inherit the descriptor, and the script would be busy (ETXTBSY).
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let path = script.display();
        run(&format!("echo 'exit $1' > {path}; chmod 755 {path}"), None, None);
        let parts = Parts::new(&[script.to_str().unwrap()], &["script", "7"]);
        assert_eq!(wait(&parts.spawn(&parts.start()).unwrap()), 7 << 8);
    }

    #[test]
    fn many_threads_start_programs_at_once() {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for round in 0..20 {
                        let (output, status) = run(&format!("echo {thread} {round}"), None, None);
                        assert_eq!((output, status), (format!("{thread} {round}\n"), 0));
                    }
                });
            }
        });
    }
}
