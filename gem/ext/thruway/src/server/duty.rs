//! When the standby stands in at the engine.
//!
//! It is on duty while no Ruby thread is at the engine. The leader is in a long call of the application then, or waits
//! for the interpreter lock. The leader calls it before a call that may be long, and dismisses it before it waits for
//! events itself. While calls are short the standby dozes: it looks now and then whether one lasts.
//! While there are none it sleeps.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use thruway_serve::{Bell, Events, Waiter};

/// The standby sleeps until the leader calls the application.
const ASLEEP: u8 = 0;
/// It looks whether a call lasts.
const DOZING: u8 = 1;
/// It stands in.
const ON: u8 = 2;
/// The server is gone.
const ENDED: u8 = 3;

/// Between two looks of a dozing standby: a call that lasts through one is long.
const DOZE: Duration = Duration::from_millis(5);

/// Looks at a leader that is in no call before the standby sleeps.
const DOZES_BEFORE_SLEEP: u32 = 4;

/// Whether the standby stands in, and how it is called.
pub(super) struct Duty {
    state: AtomicU8,
    bell: Bell,
}

impl Duty {
    pub(super) fn new(bell: Bell) -> Self {
        Self { state: AtomicU8::new(ASLEEP), bell }
    }

    /// Makes the standby stand in.
    pub(super) fn call(&self) {
        if !self.is_on() && self.change(|state| (state < ON).then_some(ON)) {
            self.bell.ring();
        }
    }

    /// A thread is at the engine again.
    pub(super) fn dismiss(&self) {
        if self.is_on() && self.change(|state| (state == ON).then_some(DOZING)) {
            self.bell.ring();
        }
    }

    /// The leader calls the application. It has counted the call before, because a standby that falls asleep looks at
    /// the count last.
    pub(super) fn note_call(&self) {
        if self.state() == ASLEEP && self.change(|state| (state == ASLEEP).then_some(DOZING)) {
            self.bell.ring();
        }
    }

    /// Makes the standby look at once.
    pub(super) fn nudge(&self) {
        if self.is_on() { self.bell.ring() } else { self.call() }
    }

    pub(super) fn end(&self) {
        self.state.store(ENDED, Ordering::SeqCst);
        self.bell.ring();
    }

    pub(super) fn is_on(&self) -> bool {
        self.state() == ON
    }

    /// The standby's wait until it is called; false at the end. `calls` counts the leader's calls of the
    /// application; it is odd while one lasts.
    pub(super) fn wait(&self, calls: impl Fn() -> u64) -> bool {
        let mut quiet = 0;
        loop {
            let before = calls();
            match self.state() {
                ENDED => return false,
                ON => return true,
                ASLEEP => self.bell.wait(None),
                _ => self.bell.wait(Some(DOZE)),
            }
            let lasts = calls() == before;
            quiet = if lasts && before.is_multiple_of(2) { quiet + 1 } else { 0 };
            if lasts && !before.is_multiple_of(2) {
                self.change(|state| (state == DOZING).then_some(ON));
            } else if quiet == DOZES_BEFORE_SLEEP {
                quiet = 0;
                self.change(|state| (state == DOZING).then_some(ASLEEP));
                if calls() != before {
                    self.change(|state| (state == ASLEEP).then_some(DOZING));
                }
            }
        }
    }

    /// The standby's wait while it stands in: for events, `timeout` at most, and until it is called again.
    pub(super) fn wait_beside(
        &self,
        waiter: &Waiter,
        events: &mut Events,
        timeout: Option<Duration>,
    ) {
        waiter.wait_with(&self.bell, events, timeout);
    }

    /// The standby begins a look: that covers all calls so far.
    pub(super) fn note_look(&self) {
        self.bell.silence();
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::SeqCst)
    }

    fn change(&self, to: impl FnMut(u8) -> Option<u8>) -> bool {
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, to).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc::channel;
    use thruway_serve::{Engine, Settings};

    /// A standby that tells when it stands in and when no more, and its leader's calls.
    fn standby() -> (Arc<Duty>, Arc<AtomicU64>, std::sync::mpsc::Receiver<bool>) {
        let engine = Engine::new(Settings::default(), Vec::new(), None).unwrap();
        let (duty, calls) =
            (Arc::new(Duty::new(engine.handle().bell)), Arc::new(AtomicU64::new(0)));
        let (tells, hears) = channel();
        let (its_duty, its_calls) = (Arc::clone(&duty), Arc::clone(&calls));
        std::thread::spawn(move || {
            while its_duty.wait(|| its_calls.load(Ordering::SeqCst)) {
                tells.send(true).unwrap();
                while its_duty.is_on() {
                    std::thread::yield_now();
                }
                tells.send(false).unwrap();
            }
        });
        (duty, calls, hears)
    }

    const DEADLINE: Duration = Duration::from_secs(20);

    #[test]
    fn it_is_on_duty_from_a_call_to_its_dismissal() {
        let (duty, _, hears) = standby();
        for _ in 0..100 {
            duty.call();
            assert_eq!(hears.recv_timeout(DEADLINE), Ok(true));
            duty.dismiss();
            assert_eq!(hears.recv_timeout(DEADLINE), Ok(false));
        }
        duty.end();
        assert!(hears.recv_timeout(DEADLINE).is_err(), "it ends");
    }

    #[test]
    fn it_sees_by_itself_that_a_call_lasts() {
        let (duty, calls, hears) = standby();
        for _ in 0..3 {
            calls.fetch_add(1, Ordering::SeqCst);
            duty.note_call();
            assert_eq!(hears.recv_timeout(DEADLINE), Ok(true));
            calls.fetch_add(1, Ordering::SeqCst);
            duty.dismiss();
            assert_eq!(hears.recv_timeout(DEADLINE), Ok(false));
            // Long enough to fall asleep.
            std::thread::sleep(6 * DOZE);
        }
        duty.end();
    }
}
