//! Starting another program: in a new process, or in this one's place.
//!
//! A new process is made as `posix_spawn` makes one. It shares this one's memory until it runs the
//! program (`CLONE_VM | CLONE_VFORK`), so nothing is copied. What goes wrong in it is simply
//! written down where this process reads it. Unlike `posix_spawn`, it tries one candidate after the
//! other, which is why a search costs one process and not several.
//!
//! Between `clone` and `execve` the new process runs on memory that belongs to this one: no
//! allocation, no lock, no destructor, no panic.

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
pub use request::{Candidates, Failure, Start, Started, Step};
use signals::AllBlocked;
pub use texts::Texts;

impl Start<'_> {
    /// Starts the first candidate that can be started, in a new process.
    ///
    /// The program gets this thread's signal mask, and `SIGPIPE` as a fresh process has it: Rust's
    /// runtime ignores it, and programs do not expect that. Descriptors that are not close-on-exec
    /// are the program's too.
    ///
    /// # Errors
    /// What failed, and for candidates the error of each.
    pub fn spawn(&self, candidates: Candidates<'_, '_>) -> Result<Started, Failure> {
        let mut plan =
            Plan::new(self, candidates).map_err(|error| Failure::Step(Step::Stdio, error))?;
        let blocked = AllBlocked::new();
        plan.mask = Some(blocked.before);
        let made = make_process(&mut plan);
        drop(blocked);
        let (pid, descriptor) = made.map_err(|error| Failure::Step(Step::Process, error))?;
        match plan.failure() {
            None => Ok(Started { pid, descriptor }),
            Some(failure) => {
                reap(pid);
                Err(failure)
            }
        }
    }

    /// Runs the first candidate that can be run in place of this program. It returns only on failure;
    /// the steps before the first candidate are done then.
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

/// Makes the process that runs the plan, on this one's memory, which it has left on return.
fn make_process(plan: &mut Plan<'_, '_, '_>) -> io::Result<(i32, OwnedFd)> {
    let (pid, descriptor) = match clone_for(plan, libc::CLONE_PIDFD) {
        // QEMU before 8 does not know the flag.
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

/// Clones this process for the plan. With `CLONE_PIDFD` among `more`, there is a descriptor.
fn clone_for(plan: &mut Plan<'_, '_, '_>, more: c_int) -> io::Result<(i32, Option<OwnedFd>)> {
    let mut stack = Stack::new();
    let mut descriptor: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | more;
    // SAFETY: the stack, the plan and the descriptor outlive the call. The call ends only when the new process has
    // left this memory, by execve or _exit (CLONE_VFORK).
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
    // SAFETY: clone has made this descriptor, and it has no other owner.
    let descriptor = (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) });
    Ok((pid, descriptor))
}

/// What the new process runs, on its own stack.
extern "C" fn run_in_child(plan: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes its plan, and waits until this process has left its memory.
    let plan = unsafe { &mut *plan.cast::<Plan<'_, '_, '_>>() };
    plan.run();
    // SAFETY: it ends this process only, and runs nothing of this memory on the way out.
    unsafe { libc::_exit(127) }
}

/// Room for the few calls that the new process makes.
struct Stack {
    bytes: Box<[MaybeUninit<u8>]>,
}

impl Stack {
    /// As much as the GNU C library takes for the same purpose, twice over.
    const LENGTH: usize = 64 * 1024;

    fn new() -> Self {
        Self { bytes: Box::new_uninit_slice(Self::LENGTH) }
    }

    /// The end, where a stack begins: aligned to 16 bytes, as every calling convention wants it.
    fn top(&mut self) -> *mut c_void {
        let end = self.bytes.as_mut_ptr_range().end;
        end.map_addr(|address| address & !15).cast()
    }
}

/// Waits for a process that ended without having run its program.
fn reap(pid: i32) {
    // SAFETY: it is this process's child, nothing else knows of it, and no status is wanted.
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

    fn wait(started: &Started) -> i32 {
        let mut status = 0;
        // SAFETY: the process is this test's child.
        let waited = unsafe { libc::waitpid(started.pid, &raw mut status, 0) };
        assert_eq!(waited, started.pid);
        status
    }

    /// What a start is made of.
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
                passed_over: &PASSED_OVER,
            }
        }
    }

    impl Parts {
        fn spawn(&self, start: &Start<'_>) -> Result<Started, Failure> {
            let empty = b"".as_slice();
            let mut parts =
                self.candidates.iter().map(|path| [path.as_bytes(), empty, empty, empty]);
            let longest = self.candidates.iter().map(String::len).max().unwrap_or(0);
            let count = self.candidates.len();
            start.spawn(Candidates { parts: &mut parts, count, longest })
        }
    }

    /// The output and the status of `sh -c script`.
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

    /// The masks of blocked and of ignored signals in a status file of `/proc`.
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
    fn every_candidates_error_is_told() {
        let parts = Parts::new(&["/none/x", "/etc/passwd", "/etc/passwd/x", "/bin/true"], &["x"]);
        match parts.spawn(&parts.start()) {
            Err(Failure::Candidates(errors)) => {
                assert_eq!(errors, [libc::ENOENT, libc::EACCES, libc::ENOTDIR]);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_told_as_such() {
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
        // Another process writes it. A descriptor that this one has open for writing would be in every
        // process that another test starts at that moment. The script would be busy then (ETXTBSY).
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
