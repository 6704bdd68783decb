//! The standby's look-out for a leader that blocks, or computes for long, while requests wait.
//!
//! The look-out decides from the shared counts and the time alone, and calls a successor where one is wanted.

use std::time::Duration;

use crate::duty::Bell;
use crate::load::LoadObserver;
use crate::shared::SharedRoles;

/// The time between two looks at a running leader while requests wait. Ruby releases the lock for each `stat` and each
/// line of a log: reporting each release would cost more.
const WATCH: Duration = Duration::from_millis(1);

/// The time from the first look at a leader to the second, if Ruby does not report waits.
const LOOK: Duration = Duration::from_millis(1);

/// The longest time between two looks at a leader that computes in one call; the time doubles from look to look. A wait
/// of the leader is noticed at most this late.
const LOOK_MAX: Duration = Duration::from_millis(8);

/// The standby's memory of the leader from look to look.
#[derive(Debug, Default)]
pub struct Lookout {
    /// The call in which the leader was last seen.
    call: u64,
    /// When the leader was first seen in that call, in microseconds.
    since_us: Option<u64>,
    /// The call during which the standby last checked whether the leader's thread sleeps, if Ruby does not report
    /// waits.
    looked_at: u64,
    /// The time until the next look at the leader's thread.
    pause: Duration,
}

impl Lookout {
    /// Calls a successor if one is wanted and the leader is blocked or has computed for long. Returns the time until
    /// the next look. `sleeps` returns whether a thread, by its number in the system, sleeps. `now_us` is a monotonic
    /// clock.
    pub fn look<B: Bell, O: LoadObserver>(
        &mut self,
        shared: &SharedRoles<B, O>,
        now_us: impl Fn() -> u64,
        sleeps: impl FnOnce(u32) -> bool,
    ) -> Option<Duration> {
        let lead_limit = shared.lead_limit();
        let left = lead_limit.saturating_sub(self.note_call(shared.calls(), now_us()));
        let is_wanted = shared.wants_successor();
        if is_wanted && left.is_zero() {
            shared.note_long_call(self.call);
            shared.call_successor();
        }
        let look = self.look_for_block(shared, is_wanted, now_us, sleeps);
        let look_at_long = is_wanted.then_some(if left.is_zero() { lead_limit } else { left });
        [look, look_at_long].into_iter().flatten().min()
    }

    fn look_for_block<B: Bell, O: LoadObserver>(
        &mut self,
        shared: &SharedRoles<B, O>,
        is_wanted: bool,
        now_us: impl Fn() -> u64,
        sleeps: impl FnOnce(u32) -> bool,
    ) -> Option<Duration> {
        if !shared.load.is_reported() {
            // Without a successor to call, the check still tells other workers whether this worker computes: they may
            // hand a request over to it.
            let looks = is_wanted || shared.load.is_unsure() && shared.has_followers();
            return (looks && self.look_at_thread(shared, sleeps)).then_some(self.pause);
        }
        if !is_wanted {
            return None;
        }
        shared.set_watched(true);
        let Some(suspended_us) = shared.suspended_for_us(now_us) else { return Some(WATCH) };
        let left_us = shared.patience_us().saturating_sub(suspended_us);
        if left_us > 0 {
            return Some(Duration::from_micros(left_us));
        }
        shared.call_successor();
        Some(WATCH)
    }

    /// Checks whether the leader's thread sleeps; returns whether another look is needed.
    fn look_at_thread<B: Bell, O: LoadObserver>(
        &mut self,
        shared: &SharedRoles<B, O>,
        sleeps: impl FnOnce(u32) -> bool,
    ) -> bool {
        let call = shared.calls();
        let is_known = std::mem::replace(&mut self.looked_at, call) == call;
        let is_blocked = is_known && sleeps(shared.leader_thread());
        if is_blocked {
            shared.load.note_blocked();
        }
        if is_blocked && shared.wants_successor() {
            shared.call_successor();
        }
        let pause = self.pause;
        self.pause = if is_known { (2 * pause).min(LOOK_MAX) } else { LOOK };
        !is_known || shared.wants_successor()
    }

    /// Records the leader's current call; returns the time since the call was first seen.
    fn note_call(&mut self, call: u64, now_us: u64) -> Duration {
        if std::mem::replace(&mut self.call, call) != call {
            self.since_us = None;
        }
        let since_us = *self.since_us.get_or_insert(now_us);
        Duration::from_micros(now_us.saturating_sub(since_us))
    }
}
