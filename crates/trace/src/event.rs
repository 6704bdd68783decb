//! Events of a recording: system calls with absolute names, and the starts and ends of threads.

use crate::call::Call;
use crate::stack::Stack;

/// An event of a thread that belongs to the command or its descendants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// The time in nanoseconds since the start of the recording. For a call: when the call began.
    pub at_ns: u64,
    /// The process, by the ID of its first thread.
    pub process: i32,
    /// The ID of the thread.
    pub thread: i32,
    /// The kind of event.
    pub kind: EventKind<'a>,
}

/// The kind of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind<'a> {
    /// A system call ended.
    Syscall(Syscall<'a>),
    /// The thread created a thread or a process.
    Spawn {
        /// The ID of the new thread or process.
        child: i32,
        /// Whether the child is a thread of the same process.
        is_thread: bool,
    },
    /// The thread executed a program with these arguments, as far as they could be read.
    Exec(Vec<&'a [u8]>),
    /// The thread ended.
    Exit,
}

/// A system call that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syscall<'a> {
    /// The call.
    pub call: &'static Call,
    /// The duration, in nanoseconds.
    pub duration_ns: u64,
    /// The result; -4095 to -1 are errors.
    pub result: i64,
    /// The flags; 0 if the call has none.
    pub flags: u32,
    /// The absolute names. Empty if the call has no name, or is about a descriptor.
    pub names: [&'a [u8]; 2],
    /// The stack of the call, if stacks are recorded and the call has a name.
    pub stack: Option<&'a Stack>,
}

impl Syscall<'_> {
    /// Returns the error number, if the call failed.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        let errno = i32::try_from(self.result.checked_neg()?).ok()?;
        (1..4096).contains(&errno).then_some(errno)
    }
}
