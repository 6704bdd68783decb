//! What is recorded: calls with absolute names, and the lives of the threads that make them.

use crate::call::Call;

/// Something that the command, or something that it started, did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// When it happened or, for a call, began: in nanoseconds since the recording did.
    pub at_ns: u64,
    /// The process, by the id of its first thread.
    pub process: i32,
    /// The thread.
    pub thread: i32,
    /// What it did.
    pub deed: Deed<'a>,
}

/// What a thread did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed<'a> {
    /// It made a system call, which has ended.
    Called(Called<'a>),
    /// It made a thread or a process.
    Made {
        /// Its id.
        child: i32,
        /// Whether it is a thread of the same process.
        is_thread: bool,
    },
    /// It became a program with these arguments, as far as they could be read.
    Became(Vec<&'a [u8]>),
    /// It ended.
    Ended,
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called<'a> {
    /// Which call.
    pub call: &'static Call,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// Its result; -4095 to -1 are errors.
    pub result: i64,
    /// Its flags, if it has any.
    pub flags: u32,
    /// The names that it asked for, absolute. Empty: there is none, or it asked about a descriptor.
    pub names: [&'a [u8]; 2],
}

impl Called<'_> {
    /// The error that it ended with.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        let errno = i32::try_from(self.result.checked_neg()?).ok()?;
        (1..4096).contains(&errno).then_some(errno)
    }
}
