//! Prepares all steps of a start before the new process exists, since that process may neither allocate nor lock.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use super::request::{Candidates, Failure, Start, Step};
use super::signals::{has_handler, set_default};
use crate::signal::Mask;

/// Everything that the new process needs, in the form in which the calls take it: pointers, and preallocated room for
/// the errors.
pub(super) struct Plan<'a, 'c, 'parts> {
    candidates: Candidates<'c, 'parts>,
    /// The buffer for the path of the current candidate.
    path: Vec<u8>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// `/bin/sh`, the candidate, and the arguments, for a script that names no interpreter.
    script: Vec<*const c_char>,
    folder: *const c_char,
    stdio: [c_int; 3],
    group: Option<c_int>,
    skippable_errors: &'a [c_int],
    /// The signal mask to restore; `None` if the program replaces this process.
    pub(super) mask: Option<Mask>,
    /// Preallocated for all candidates.
    errors: Vec<c_int>,
    failed_step: Option<(Step, c_int)>,
    /// Keeps copies of descriptors that would be overwritten before their use.
    _copies: Vec<OwnedFd>,
}

impl<'a, 'c, 'parts> Plan<'a, 'c, 'parts> {
    pub(super) fn new(start: &Start<'a>, candidates: Candidates<'c, 'parts>) -> io::Result<Self> {
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
            skippable_errors: start.skippable_errors,
            mask: None,
            failed_step: None,
            _copies: copies,
        })
    }

    /// Runs all steps, then tries the candidates. Runs in the new process, and returns only on failure.
    pub(super) fn run(&mut self) {
        if let Err(failed) = self.prepare() {
            self.failed_step = Some(failed);
            return;
        }
        while let Some(parts) = self.candidates.parts.next() {
            self.path.clear();
            parts.iter().for_each(|part| self.path.extend_from_slice(part));
            let error = if self.path.contains(&0) { libc::EINVAL } else { self.execute() };
            self.errors.push(error);
            if !self.skippable_errors.contains(&error) {
                return;
            }
        }
    }

    fn prepare(&self) -> Result<(), (Step, c_int)> {
        if let Some(group) = self.group {
            // SAFETY: the call takes plain numbers.
            check(Step::Group, unsafe { libc::setpgid(0, group) })?;
        }
        for (target, source) in (0..).zip(self.stdio).filter(|(_, source)| *source >= 0) {
            // SAFETY: the call takes plain numbers; the source is open, and is none of 0, 1 and 2.
            check(Step::Stdio, unsafe { libc::dup2(source, target) })?;
        }
        if !self.folder.is_null() {
            // SAFETY: the name ends in NUL and outlives the plan.
            check(Step::Folder, unsafe { libc::chdir(self.folder) })?;
        }
        self.restore_signals();
        Ok(())
    }

    /// Resets handlers before the mask is opened: a handler that ran here would see the parent's memory.
    fn restore_signals(&self) {
        if let Some(mask) = &self.mask {
            (1..=64).filter(|signal| has_handler(*signal)).for_each(set_default);
            set_default(libc::SIGPIPE);
            mask.set();
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

    /// Returns the recorded failure, or `None` if the program runs.
    pub(super) fn failure(&self) -> Option<Failure> {
        if let Some((step, errno)) = self.failed_step {
            return Some(Failure::Step(step, io::Error::from_raw_os_error(errno)));
        }
        let all = self.errors.len() == self.candidates.count;
        let ended = self.errors.last().is_some_and(|errno| !self.skippable_errors.contains(errno));
        (all || ended).then(|| Failure::Candidates(self.errors.clone()))
    }
}

/// Returns the number of `given`, or of a copy of `given` above the three descriptors that are about to be replaced.
fn above_stdio(given: BorrowedFd<'_>, copies: &mut Vec<OwnedFd>) -> io::Result<c_int> {
    if given.as_raw_fd() > libc::STDERR_FILENO {
        return Ok(given.as_raw_fd());
    }
    let copy = rustix::io::fcntl_dupfd_cloexec(given, libc::STDERR_FILENO + 1)?;
    let number = copy.as_raw_fd();
    copies.push(copy);
    Ok(number)
}

/// Replaces this process with a program. Returns the error number on failure.
fn execve(
    program: *const c_char,
    arguments: &[*const c_char],
    environment: &[*const c_char],
) -> c_int {
    // SAFETY: all strings end in NUL, both arrays end in a null pointer, and all of them outlive the plan.
    unsafe { libc::execve(program, arguments.as_ptr(), environment.as_ptr()) };
    errno()
}

fn check(step: Step, result: c_int) -> Result<(), (Step, c_int)> {
    if result < 0 { Err((step, errno())) } else { Ok(()) }
}

/// Returns the error number of the last call. Takes no lock and allocates nothing.
pub(super) fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_that_is_about_to_be_replaced_is_copied() {
        let mut copies = Vec::new();
        let copy = above_stdio(io::stderr().as_fd(), &mut copies).unwrap();
        assert!(copy > 2 && copies[0].as_raw_fd() == copy);
        let (reader, _) = io::pipe().unwrap();
        let same = above_stdio(reader.as_fd(), &mut copies).unwrap();
        assert_eq!((same, copies.len()), (reader.as_raw_fd(), 1));
    }
}
