//! The request to start a program, and its outcome.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::texts::Texts;

/// A program's arguments, environment and surroundings.
#[derive(Debug)]
pub struct Start<'a> {
    /// `argv`, including the program's own name as the first element.
    pub arguments: &'a Texts,
    /// Entries of the form `NAME=value`.
    pub environment: &'a Texts,
    /// The program's current folder, or `None` for the folder of this process.
    pub folder: Option<&'a CStr>,
    /// The program's descriptors 0, 1 and 2; `None` keeps the descriptor of this process.
    pub stdio: [Option<BorrowedFd<'a>>; 3],
    /// The process group to join; 0 creates a group with the new process's number.
    pub group: Option<i32>,
    /// Error numbers after which the next candidate is tried. Any other error ends the search.
    pub skippable_errors: &'a [i32],
}

/// Paths of programs, in the order in which they are tried. Relative paths start at the program's folder.
///
/// Each path is assembled in the new process just before the attempt, because most are never needed.
pub struct Candidates<'a, 'parts> {
    /// The paths, each as four parts to concatenate.
    pub parts: &'a mut dyn Iterator<Item = [&'parts [u8]; 4]>,
    /// The number of paths.
    pub count: usize,
    /// The length of the longest path in bytes.
    pub longest: usize,
}

/// A process that was started and not yet waited for.
#[derive(Debug)]
pub struct StartedProcess {
    /// The process id.
    pub pid: i32,
    /// A `pidfd`, which never refers to another process, even if the process id is reused.
    pub descriptor: OwnedFd,
}

/// The reason why no program was started.
#[derive(Debug)]
pub enum Failure {
    /// A step before the first candidate failed.
    Step(Step, io::Error),
    /// No candidate could be run: the error number of each attempt, in order.
    Candidates(Vec<i32>),
}

/// A step that precedes the first candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Creating the process.
    Process,
    /// Joining the process group.
    Group,
    /// Installing standard input, output or error.
    Stdio,
    /// Entering the folder.
    Folder,
}
