//! Starting another program: in a new process, or in this one's place.
//!
//! A new process is made as `posix_spawn` makes one: it shares this one's memory until it runs the
//! program (`CLONE_VM | CLONE_VFORK`), so nothing is copied, and what goes wrong in it is simply
//! written down where this process reads it. Unlike `posix_spawn`, it tries one candidate after the
//! other, which is why a search costs one process and not several.
//!
//! Between `clone` and `execve` the new process runs on memory that belongs to this one: no
//! allocation, no lock, no destructor, no panic.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// What is started, and how.
#[derive(Debug)]
pub struct Start<'a> {
    /// `argv`, with the program's own name first.
    pub arguments: &'a Texts,
    /// `NAME=value` each.
    pub environment: &'a Texts,
    /// The current folder of the program; without one it is this process's.
    pub folder: Option<&'a CStr>,
    /// Descriptors 0, 1 and 2 of the program; `None` leaves this process's.
    pub stdio: [Option<BorrowedFd<'a>>; 3],
    /// The process group to join; 0 is a new one, named after the process.
    pub group: Option<i32>,
    /// Error numbers after which the next candidate is tried; any other one is the last.
    pub passed_over: &'a [i32],
}

/// Paths of programs, in the order in which they are tried. Relative ones start at the program's folder.
///
/// They are put together in the new process, one at a time, because most are never needed.
pub struct Candidates<'a, 'parts> {
    /// Each in parts that follow each other.
    pub parts: &'a mut dyn Iterator<Item = [&'parts [u8]; 4]>,
    /// How many there are.
    pub count: usize,
    /// Bytes of the longest.
    pub longest: usize,
}

/// Texts as the kernel takes them, each with a NUL at its end, in one piece of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Texts {
    /// No texts, with room for `texts` of `bytes` in all.
    #[must_use]
    pub fn with_capacity(texts: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), starts: Vec::with_capacity(texts) }
    }

    /// Adds a text that is made of `parts`; `false` if it holds a NUL, and is not added.
    #[must_use]
    pub fn push(&mut self, parts: &[&[u8]]) -> bool {
        if parts.iter().any(|part| part.contains(&0)) {
            return false;
        }
        self.starts.push(self.bytes.len());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.push(0);
        true
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// A pointer to each, and one that is null, as in `argv`. They point into these texts.
    fn pointers(&self) -> Vec<*const c_char> {
        let pointer = |start: &usize| self.bytes[*start..].as_ptr().cast();
        self.starts.iter().map(pointer).chain([ptr::null()]).collect()
    }
}

/// A process that was started and has not been waited for.
#[derive(Debug)]
pub struct Started {
    /// Its number.
    pub pid: i32,
    /// A descriptor of it (`pidfd`), which stays its own even when the number is used again.
    pub descriptor: OwnedFd,
}

/// Why nothing was started.
#[derive(Debug)]
pub enum Failure {
    /// A step before the first candidate.
    Step(Step, io::Error),
    /// Every candidate: the error number of each that was tried, in order.
    Candidates(Vec<i32>),
}

/// What is done before the first candidate is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Making the process.
    Process,
    /// Joining its process group.
    Group,
    /// Taking its standard input, output or error.
    Stdio,
    /// Entering its folder.
    Folder,
}

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
        let mut stack = Stack::new();
        let mut descriptor: c_int = -1;
        let blocked = BlockedSignals::new();
        plan.mask = Some(blocked.before);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: the stack, the plan and the descriptor outlive the call, and the call ends only
        // when the new process has left this memory, by execve or _exit (CLONE_VFORK).
        let pid = unsafe {
            libc::clone(
                run_in_child,
                stack.top(),
                flags,
                (&raw mut plan).cast(),
                &raw mut descriptor,
            )
        };
        let error = io::Error::last_os_error();
        drop(blocked);
        if pid < 0 {
            return Err(Failure::Step(Step::Process, error));
        }
        // SAFETY: clone has made this descriptor, and nobody else has it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
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

/// Everything that the new process needs, as it needs it: pointers, and room for what goes wrong.
struct Plan<'a, 'c, 'parts> {
    candidates: Candidates<'c, 'parts>,
    /// Room for the candidate that is tried.
    path: Vec<u8>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// `/bin/sh`, the candidate, and the arguments: for a script that names no interpreter.
    script: Vec<*const c_char>,
    folder: *const c_char,
    stdio: [c_int; 3],
    group: Option<c_int>,
    passed_over: &'a [c_int],
    mask: Option<libc::sigset_t>,
    /// With room for all candidates.
    errors: Vec<c_int>,
    failed_step: Option<(Step, c_int)>,
    /// Copies of descriptors that would be overwritten before they are used.
    _copies: Vec<OwnedFd>,
}

impl<'a, 'c, 'parts> Plan<'a, 'c, 'parts> {
    fn new(start: &Start<'a>, candidates: Candidates<'c, 'parts>) -> io::Result<Self> {
        let arguments = start.arguments.pointers();
        let mut script = vec![c"/bin/sh".as_ptr(), ptr::null()];
        script.extend(arguments.iter().skip(1));
        let mut copies = Vec::new();
        let mut stdio = [-1; 3];
        for (number, given) in stdio.iter_mut().zip(start.stdio) {
            *number = given.map_or(Ok(-1), |given| above_stdio(given, &mut copies))?;
        }
        Ok(Self {
            path: Vec::with_capacity(candidates.longest + 1),
            errors: Vec::with_capacity(candidates.count),
            candidates,
            script,
            arguments,
            environment: start.environment.pointers(),
            folder: start.folder.map_or(ptr::null(), CStr::as_ptr),
            stdio,
            group: start.group,
            passed_over: start.passed_over,
            mask: None,
            failed_step: None,
            _copies: copies,
        })
    }

    /// All steps, then the candidates. Returns only on failure. Runs in the new process.
    fn run(&mut self) {
        if let Err(failed) = self.prepare() {
            self.failed_step = Some(failed);
            return;
        }
        while let Some(parts) = self.candidates.parts.next() {
            self.path.clear();
            parts.iter().for_each(|part| self.path.extend_from_slice(part));
            let error = if self.path.contains(&0) { libc::EINVAL } else { self.execute() };
            self.errors.push(error);
            if !self.passed_over.contains(&error) {
                return;
            }
        }
    }

    fn prepare(&self) -> Result<(), (Step, c_int)> {
        if let Some(group) = self.group {
            // SAFETY: plain numbers.
            check(Step::Group, unsafe { libc::setpgid(0, group) })?;
        }
        for (target, source) in (0..).zip(self.stdio).filter(|(_, source)| *source >= 0) {
            // SAFETY: plain numbers; the source is open, and is none of 0, 1 and 2.
            check(Step::Stdio, unsafe { libc::dup2(source, target) })?;
        }
        if !self.folder.is_null() {
            // SAFETY: the folder's name ends in NUL and outlives the plan.
            check(Step::Folder, unsafe { libc::chdir(self.folder) })?;
        }
        self.restore_signals();
        Ok(())
    }

    /// Handlers go before the mask is opened: one of them, run here, would see this process's memory.
    fn restore_signals(&self) {
        if let Some(mask) = &self.mask {
            (1..=64).filter(|signal| has_handler(*signal)).for_each(set_default);
            set_default(libc::SIGPIPE);
            set_mask(mask);
        } else {
            set_default(libc::SIGPIPE);
        }
    }

    fn execute(&mut self) -> c_int {
        self.path.push(0);
        let program = self.path.as_ptr().cast();
        let error = execve(program, &self.arguments, &self.environment);
        if error != libc::ENOEXEC {
            return error;
        }
        self.script[1] = program;
        execve(self.script[0], &self.script, &self.environment)
    }

    /// What was written down; nothing, if the program runs.
    fn failure(&self) -> Option<Failure> {
        if let Some((step, errno)) = self.failed_step {
            return Some(Failure::Step(step, io::Error::from_raw_os_error(errno)));
        }
        let all = self.errors.len() == self.candidates.count;
        let ended = self.errors.last().is_some_and(|errno| !self.passed_over.contains(errno));
        (all || ended).then(|| Failure::Candidates(self.errors.clone()))
    }
}

/// What the new process runs, on its own stack.
extern "C" fn run_in_child(plan: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes its plan, and waits until this process has left its memory.
    let plan = unsafe { &mut *plan.cast::<Plan<'_, '_, '_>>() };
    plan.run();
    // SAFETY: it ends this process only, and runs nothing of this memory on the way out.
    unsafe { libc::_exit(127) }
}

/// The number of `given`, or of a copy of it that lies above the three that are about to be replaced.
fn above_stdio(given: BorrowedFd<'_>, copies: &mut Vec<OwnedFd>) -> io::Result<c_int> {
    if given.as_raw_fd() > libc::STDERR_FILENO {
        return Ok(given.as_raw_fd());
    }
    let copy = rustix::io::fcntl_dupfd_cloexec(given, libc::STDERR_FILENO + 1)?;
    let number = copy.as_raw_fd();
    copies.push(copy);
    Ok(number)
}

/// Runs a program in place of this one; the error number if that fails.
fn execve(
    program: *const c_char,
    arguments: &[*const c_char],
    environment: &[*const c_char],
) -> c_int {
    // SAFETY: all strings end in NUL, both arrays in null, and all outlive the plan.
    unsafe { libc::execve(program, arguments.as_ptr(), environment.as_ptr()) };
    errno()
}

fn check(step: Step, result: c_int) -> Result<(), (Step, c_int)> {
    if result < 0 { Err((step, errno())) } else { Ok(()) }
}

/// The error number of the last call. It takes no lock and allocates nothing.
fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Whether this process would run a function of its own on `signal`.
fn has_handler(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only reads the action, into room for one.
    let result = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroes are a valid action (the default), and sigaction writes whole ones.
    let handler = unsafe { action.assume_init() }.sa_sigaction;
    result == 0 && handler != libc::SIG_DFL && handler != libc::SIG_IGN
}

fn set_default(signal: c_int) {
    // SAFETY: the default action runs nothing of this program.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: the mask was read by the same function.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// All signals wait until this is dropped.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        // SAFETY: it fills the whole set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::zeroed();
        // SAFETY: `all` is filled, and there is room for the mask that was set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: it has written the mask; zeroes, the empty mask, would be valid too.
        Self { before: unsafe { before.assume_init() } }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        set_mask(&self.before);
    }
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
    // SAFETY: it is this process's child, nobody else knows of it, and no status is wanted.
    while unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } < 0 && errno() == libc::EINTR {}
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_text_is_made_of_parts_and_holds_no_nul() {
        let mut texts = Texts::default();
        assert!(texts.push(&[b"a", b"=", b"b"]) && texts.push(&[b""]));
        assert!(!texts.push(&[b"a\0b"]));
        assert_eq!((texts.bytes.as_slice(), texts.len()), (b"a=b\0\0".as_slice(), 2));
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
        // Another process writes it: a descriptor that this one has open for writing would be in every
        // process that another test starts at that moment, and the script would be busy (ETXTBSY).
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let path = script.display();
        run(&format!("echo 'exit $1' > {path}; chmod 755 {path}"), None, None);
        let parts = Parts::new(&[script.to_str().unwrap()], &["script", "7"]);
        assert_eq!(wait(&parts.spawn(&parts.start()).unwrap()), 7 << 8);
    }

    #[test]
    fn a_descriptor_that_is_about_to_be_replaced_is_copied() {
        let mut copies = Vec::new();
        let copy = above_stdio(io::stderr().as_fd(), &mut copies).unwrap();
        assert!(copy > 2 && copies[0].as_raw_fd() == copy);
        let (reader, _) = io::pipe().unwrap();
        let same = above_stdio(reader.as_fd(), &mut copies).unwrap();
        assert_eq!((same, copies.len()), (reader.as_raw_fd(), 1));
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
