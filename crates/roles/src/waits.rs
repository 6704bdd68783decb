//! The waits of a fiber: the awaited events, and the ends of waits.

/// A deadline that a task has set for a part of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeadlineId(pub u64);

/// The event that a task waits for, besides its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedEvent {
    /// None: the wait lasts until its deadline, or until another fiber or thread wakes the fiber.
    Nothing,
    /// One of the events of a descriptor, in the bits of `poll`.
    Io {
        /// The descriptor.
        descriptor: i32,
        /// The events.
        events: u32,
    },
    /// Another fiber or thread wakes the fiber.
    Unblock,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake<F> {
    /// The descriptor has these events.
    Io(u32),
    /// The wait's deadline has passed.
    Expired,
    /// Another fiber or thread has woken the fiber, or the fiber had nothing to wait for.
    Unblocked,
    /// A deadline of the task has passed, which interrupts the wait.
    Deadline(DeadlineId),
    /// The exception is to be raised in the fiber.
    Error(F),
}
