//! Requests for the interpreter lock while a thread computes.
//!
//! A thread whose fibers are ready wants the lock sooner than a computing thread gives it up. The thread asks, and a
//! thread of its own, the herald, then triggers a switch again and again until no thread asks any more: several threads
//! may compute, and each passes the lock on to the next one.
//!
//! A computing thread may begin after another one has found that none computes, and take the lock before that one. So
//! both sides change first and look afterwards: one counts itself among those that ask, and looks whether any thread
//! computes; the other one counts as computing, and looks whether any thread asks. Whichever looks last calls the
//! herald. All four steps are `SeqCst`.

use std::time::Duration;

use crate::duty::Bell;
use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// The time until a switch is triggered for the second time, several times that of a switch between threads; it doubles
/// from time to time.
const REPEAT_MIN: Duration = Duration::from_micros(100);

/// The longest time between two triggers. A thread in a long call of a C library does not switch.
const REPEAT_MAX: Duration = Duration::from_millis(5);

/// The threads of one server that ask for the lock, and the call of the herald.
#[derive(Debug)]
pub struct LockRequests<B> {
    asking: AtomicU32,
    is_over: AtomicBool,
    /// The herald's bell.
    bell: B,
}

impl<B: Bell> LockRequests<B> {
    /// Creates the state in which no thread asks.
    pub fn new(bell: B) -> Self {
        Self { asking: AtomicU32::new(0), is_over: AtomicBool::new(false), bell }
    }

    /// The herald's bell.
    pub fn bell(&self) -> &B {
        &self.bell
    }

    /// Counts the calling thread, which is about to take the lock, among those that ask. If another thread computes
    /// afterwards, the calling thread also [calls the herald](Self::call_herald).
    pub fn ask(&self) {
        self.asking.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets the herald trigger switches until no thread asks.
    pub fn call_herald(&self) {
        self.bell.ring();
    }

    /// Called by a thread that has asked and has the lock.
    pub fn withdraw(&self) {
        self.asking.fetch_sub(1, Ordering::SeqCst);
    }

    /// Called by a thread that counts as computing from now on.
    pub fn note_computing(&self) {
        if self.is_asked() {
            self.call_herald();
        }
    }

    /// Ends the herald.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Runs the herald until [`end`](Self::end). `trigger` makes a computing thread let others have the lock, at its
    /// next opportunity.
    pub fn run_herald(&self, trigger: impl Fn()) {
        let mut pause = REPEAT_MIN;
        // Each wait may take the ring of a call and of the end, so both are looked for after each.
        while !self.is_over.load(Ordering::SeqCst) {
            if self.is_asked() {
                trigger();
                self.bell.wait(Some(pause));
                pause = (2 * pause).min(REPEAT_MAX);
            } else {
                pause = REPEAT_MIN;
                self.bell.wait(None);
            }
        }
    }

    fn is_asked(&self) -> bool {
        self.asking.load(Ordering::SeqCst) > 0
    }
}
