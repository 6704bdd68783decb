//! What is recorded: system calls with absolute names, and the lives of the threads that make them.

use crate::call::Call;

/// Something that a thread did: of the command, or of anything that the command started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// When it happened, in nanoseconds since the recording began. For a call: when the call began.
    pub at_ns: u64,
    /// The process, by the id of its first thread.
    pub process: i32,
    /// The thread.
    pub thread: i32,
    /// What the thread did.
    pub kind: EventKind<'a>,
}

/// What a thread did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind<'a> {
    /// A system call has ended.
    Syscall(Syscall<'a>),
    /// The thread made a thread or a process.
    Spawn {
        /// Its id.
        child: i32,
        /// Whether it is a thread of the same process.
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
    /// Which call.
    pub call: &'static Call,
    /// How long it took, in nanoseconds.
    pub duration_ns: u64,
    /// Its result; -4095 to -1 are errors.
    pub result: i64,
    /// Its flags, if it has any.
    pub flags: u32,
    /// The names that it asked for, absolute. Empty: there is none, or it asked about a descriptor.
    pub names: [&'a [u8]; 2],
}

impl Syscall<'_> {
    /// The error that it ended with.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        let errno = i32::try_from(self.result.checked_neg()?).ok()?;
        (1..4096).contains(&errno).then_some(errno)
    }
}
