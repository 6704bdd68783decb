//! The duty of the standby thread, which stands in at the engine for a leader in the application.
//!
//! The standby is on duty while no Ruby thread is at the engine: the leader is in a long call of the application, or
//! waits for the interpreter lock. The leader summons the standby before a call that may be long, and dismisses the
//! standby before it waits for events itself. During short calls the standby dozes, and checks now and then whether one
//! call lasts. Without calls it sleeps.
//!
//! ```text
//!            call of the application            same call lasts, or `Summon`
//!  Asleep ───────────────────────────▶ Dozing ──────────────────────────────▶ On
//!     ▲                                │    ▲                                 │
//!     └───── no call for a while ──────┘    └──────────── `Dismiss` ──────────┘
//! ```

use std::time::Duration;

use crate::sync::{AtomicU8, Ordering};

/// The time between two looks of a dozing standby. A call that lasts from one look to the next is long.
const DOZE: Duration = Duration::from_millis(5);

/// The looks without a call after which a dozing standby falls asleep.
const DOZES_BEFORE_SLEEP: u32 = 4;

/// The doorbell of the standby. Rings are sticky: a ring during no wait ends the next wait.
pub trait Bell {
    /// Ends the standby's wait, now or as soon as it begins.
    fn ring(&self);

    /// Waits until the bell rings, or for `timeout`. A ring also clears all rings so far.
    fn wait(&self, timeout: Option<Duration>);

    /// Clears the rings so far.
    fn silence(&self);
}

/// The states of the standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DutyState {
    /// The standby sleeps until the leader calls the application.
    Asleep,
    /// The standby checks now and then whether one call lasts.
    Dozing,
    /// The standby stands in at the engine.
    On,
    /// The server has ended.
    Ended,
}

/// Events that change the standby's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DutyEvent {
    /// A thread needs the standby at the engine.
    Summon,
    /// A Ruby thread is back at the engine and relieves the standby.
    Dismiss,
    /// The leader calls the application.
    Call,
    /// The dozing standby has seen the same call twice.
    CallLasts,
    /// The dozing standby has seen no call for a while.
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
    /// Whether the standby has to be woken to see the change. The standby makes the other changes itself.
    fn rings(self) -> bool {
        !matches!(self, Self::CallLasts | Self::Quiet)
    }
}

/// The standby's state, visible to every thread, and its bell.
#[derive(Debug)]
pub(crate) struct Duty<B> {
    state: AtomicU8,
    bell: B,
}

impl<B: Bell> Duty<B> {
    pub(crate) fn new(bell: B) -> Self {
        Self { state: AtomicU8::new(DutyState::Asleep as u8), bell }
    }

    /// Applies an event, and wakes the standby if the change concerns it.
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

    /// Makes the standby look at the engine at once, whatever its state.
    pub(crate) fn nudge(&self) {
        if self.is_on() { self.bell.ring() } else { self.apply(DutyEvent::Summon) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.state() == DutyState::On
    }

    pub(crate) fn bell(&self) -> &B {
        &self.bell
    }

    /// Waits off duty; returns true on duty, and false at the end. `calls` returns the number of the leader's calls of
    /// the application, which is odd during a call.
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

    /// Falls asleep, unless the leader has called the application in the meantime. The leader first counts a call and
    /// then reads the state; the standby first changes the state and then reads the count. So one of the two sees the
    /// other.
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
