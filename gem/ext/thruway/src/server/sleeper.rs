//! A thread that sleeps, without the interpreter lock, until what it waits for happens.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;

/// What a thread may wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The leader calls the application.
    Call = 1,
    /// The leader lets go of the lock in the application.
    Suspension = 2,
}

/// Nothing: it is awake.
const AWAKE: u8 = 0;

/// One such thread. Who tells of an event that nobody waits for pays for one look.
#[derive(Default)]
pub(super) struct Sleeper {
    thread: OnceLock<Thread>,
    waits_for: AtomicU8,
}

impl Sleeper {
    /// The calling thread sleeps until it is told of `event`, or interrupted; not at all if it
    /// `has_happened`. It may wake up for nothing.
    pub(super) fn sleep_until(&self, event: Event, has_happened: impl FnOnce() -> bool) {
        self.thread.get_or_init(std::thread::current);
        // Before the look, as those who tell have it the other way round.
        self.waits_for.store(event as u8, Ordering::SeqCst);
        if !has_happened() {
            std::thread::park();
        }
        self.waits_for.store(AWAKE, Ordering::SeqCst);
    }

    /// Tells of an event, after it has been noted where the sleeper looks.
    pub(super) fn tell(&self, event: Event) {
        if self.waits_for.load(Ordering::SeqCst) == event as u8 {
            self.interrupt();
        }
    }

    /// Wakes the sleeper, whatever it waits for.
    pub(super) fn interrupt(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
