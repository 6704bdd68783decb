//! What is to be started, and what became of it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::texts::Texts;

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
