//! The standby's duty: when it stands in at the engine for a leader that is in the application.
//!
//! The standby is on duty while no Ruby thread is at the engine: the leader is in a long call of the application, or
//! waits for the interpreter lock. The leader summons the standby before a call that may be long, and dismisses it
//! before it waits for events itself. While calls are short the standby dozes: now and then it looks whether one call
//! lasts. Without calls it sleeps.
//!
//! ```text
//!            call of the application            same call lasts, or `Summon`
//!  Asleep ───────────────────────────▶ Dozing ──────────────────────────────▶ On
//!     ▲                                │    ▲                                 │
//!     └───── no call for a while ──────┘    └──────────── `Dismiss` ──────────┘
//! ```

use std::time::Duration;

use crate::sync::{AtomicU8, Ordering};

/// The time between two looks of a dozing standby. A call that lasts from one to the next is long.
const DOZE: Duration = Duration::from_millis(5);

/// Looks at a leader that is in no call before the standby sleeps.
const DOZES_BEFORE_SLEEP: u32 = 4;

/// The doorbell of the standby. It is sticky: a ring that nobody waits for ends the next wait.
pub trait Bell {
    /// Ends the standby's wait, now or as soon as it begins.
    fn ring(&self);

    /// Waits until the bell rings, or for `timeout`. Clears the rings so far if it rang.
    fn wait(&self, timeout: Option<Duration>);

    /// Clears the rings so far.
    fn silence(&self);
}

/// The states of the standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DutyState {
    /// It sleeps until the leader calls the application.
    Asleep,
    /// It looks now and then whether one call lasts.
    Dozing,
    /// It stands in at the engine.
    On,
    /// The server is gone.
    Ended,
}

/// Events that change the standby's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DutyEvent {
    /// Somebody wants it at the engine.
    Summon,
    /// A Ruby thread is back at the engine, and relieves the standby.
    Dismiss,
    /// The leader calls the application.
    Call,
    /// A dozing standby has seen the same call twice.
    CallLasts,
    /// A dozing standby has seen no call for a while.
    Quiet,
    /// The server ends.
    End,
}

impl DutyState {
    const ALL: [Self; 4] = [Self::Asleep, Self::Dozing, Self::On, Self::Ended];

    /// The state after `event`; none if the event changes nothing.
    pub(crate) fn after(self, event: DutyEvent) -> Option<Self> {
        use DutyEvent::{Call, CallLasts, Dismiss, End, Quiet, Summon};
        use DutyState::{Asleep, Dozing, Ended, On};
        match (self, event) {
            (Asleep | Dozing, Summon) | (Dozing, CallLasts) => Some(On),
            (On, Dismiss) | (Asleep, Call) => Some(Dozing),
            (Dozing, Quiet) => Some(Asleep),
            (Asleep | Dozing | On, End) => Some(Ended),
            _ => None,
        }
    }

    fn from_number(number: u8) -> Self {
        Self::ALL[usize::from(number)]
    }
}

impl DutyEvent {
    /// Whether the standby has to be woken to see the change. It makes its own changes itself.
    fn rings(self) -> bool {
        !matches!(self, Self::CallLasts | Self::Quiet)
    }
}

/// The standby's state, as every thread sees it, and its bell.
#[derive(Debug)]
pub(crate) struct Duty<B> {
    state: AtomicU8,
    bell: B,
}

impl<B: Bell> Duty<B> {
    pub(crate) fn new(bell: B) -> Self {
        Self { state: AtomicU8::new(DutyState::Asleep as u8), bell }
    }

    /// Applies an event, and wakes the standby if it has to know.
    pub(crate) fn apply(&self, event: DutyEvent) {
        // Most events change nothing: a load is cheaper than a read-modify-write.
        if self.state().after(event).is_none() {
            return;
        }
        let change = |number| DutyState::from_number(number).after(event).map(|state| state as u8);
        let is_changed =
            self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_ok();
        if is_changed && event.rings() {
            self.bell.ring();
        }
    }

    /// Makes the standby look at the engine at once, whatever it does.
    pub(crate) fn nudge(&self) {
        if self.is_on() { self.bell.ring() } else { self.apply(DutyEvent::Summon) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.state() == DutyState::On
    }

    pub(crate) fn bell(&self) -> &B {
        &self.bell
    }

    /// The wait of a standby that is off duty: until it is on duty (true) or at the end (false). `calls` counts the
    /// leader's calls of the application, and is odd during one.
    pub(crate) fn wait(&self, calls: impl Fn() -> u64) -> bool {
        let mut quiet = 0;
        loop {
            let before = calls();
            match self.state() {
                DutyState::Ended => return false,
                DutyState::On => return true,
                DutyState::Asleep => self.bell.wait(None),
                DutyState::Dozing => self.bell.wait(Some(DOZE)),
            }
            let is_same = calls() == before;
            let is_calling = !before.is_multiple_of(2);
            quiet = if is_same && !is_calling { quiet + 1 } else { 0 };
            if is_same && is_calling {
                self.apply(DutyEvent::CallLasts);
            } else if quiet == DOZES_BEFORE_SLEEP {
                quiet = 0;
                self.fall_asleep(before, &calls);
            }
        }
    }

    /// Falls asleep unless the leader calls the application meanwhile. The leader counts a call first and looks at the
    /// state then, and the standby does the reverse, so one of the two sees the other.
    fn fall_asleep(&self, before: u64, calls: impl Fn() -> u64) {
        self.apply(DutyEvent::Quiet);
        if calls() != before {
            self.apply(DutyEvent::Call);
        }
    }

    fn state(&self) -> DutyState {
        DutyState::from_number(self.state.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_standby_stays_ended() {
        use DutyEvent::{Call, CallLasts, Dismiss, End, Quiet, Summon};
        for event in [Summon, Dismiss, Call, CallLasts, Quiet, End] {
            assert_eq!(DutyState::Ended.after(event), None);
        }
    }

    #[test]
    fn a_standby_on_duty_is_moved_by_its_dismissal_and_the_end_alone() {
        use DutyEvent::{Call, CallLasts, Dismiss, End, Quiet, Summon};
        for event in [Summon, Call, CallLasts, Quiet] {
            assert_eq!(DutyState::On.after(event), None, "{event:?}");
        }
        assert_eq!(DutyState::On.after(Dismiss), Some(DutyState::Dozing));
        assert_eq!(DutyState::On.after(End), Some(DutyState::Ended));
    }
}
