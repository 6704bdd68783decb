//! The engine as it is shared by Ruby's threads and the standby.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thruway_serve::{Attention, Direction, Engine, EngineHandle, Events, Ticket, Waiter};

use super::fibers::waiter::{FiberWaiter, ReadyDescriptors};
use super::roles::Roles;

/// The time for which a sibling's offer is awaited. A sibling that can give a request needs a tenth of that.
const OFFER_MS: u64 = 1;
const OFFER_MAX: Duration = Duration::from_millis(OFFER_MS);

/// The time between two looks at the engine while fibers run and no request can begin.
pub(super) const ATTEND_INTERVAL_US: u64 = 500;

/// The time between two looks at jobs that the leader has left in the lane while another thread computes. If that
/// thread has waited from one look to the next, another one takes a job.
const LANE_LOOK: Duration = Duration::from_millis(1);

/// The time after which the leader looks whether a thread computes in one job for too long.
const LANE_LOOK_MAX: Duration = Duration::from_millis(100);

/// An engine behind its mutex, and the operations that need no lock.
pub(super) struct SharedEngine {
    /// The mutex is locked for moments only, and never while Ruby code may run.
    engine: Mutex<Engine>,
    handle: EngineHandle,
}

/// The event buffer of one thread.
pub(super) struct EventBuffer(Events);

// SAFETY: the kernel reports tokens, which are numbers; the pointers of its structure are not used.
unsafe impl Send for EventBuffer {}

impl EventBuffer {
    pub(super) fn new() -> Self {
        Self(Events::new())
    }
}

impl SharedEngine {
    pub(super) fn new(engine: Engine) -> Self {
        Self { handle: engine.handle(), engine: Mutex::new(engine) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn waiter(&self) -> &Waiter {
        &self.handle.waiter
    }

    /// Ends the wait of the thread that waits for events.
    pub(super) fn wake(&self) {
        self.handle.waker.wake();
    }

    /// Waits until there is work.
    pub(super) fn wait_for_turn(&self, events: &mut EventBuffer, roles: &Roles) {
        while !self.lock().wants_turn() {
            let timeout_ms = self.lock().begin_wait(None);
            self.handle.waiter.wait(&mut events.0, timeout_ms);
            self.lock().take(&mut events.0);
        }
        if roles.load.computing() > 0 {
            // This thread is going to wait for the interpreter lock.
            roles.summon_standby();
        }
    }

    /// As [`wait_for_turn`](Self::wait_for_turn), but the wait also ends with an event of the caller's fibers, or after
    /// `limit`. If the server `is_full`, so that no request can begin, the caller does what needs no application.
    pub(super) fn wait_with_fibers(
        &self,
        events: &mut EventBuffer,
        fibers: &FiberWaiter,
        ready: &mut ReadyDescriptors,
        limit: Option<Duration>,
        is_full: bool,
        roles: &Roles,
    ) {
        let begun = Instant::now();
        let mut lane_idle_since = None;
        while is_full || !self.lock().wants_turn() {
            let engine_limit = if is_full {
                let attention = self.attend(events);
                if attention.is_woken && self.lock().wants_turn() {
                    return;
                }
                attention.rest
            } else {
                self.lock().begin_wait(None).map(Duration::from_millis)
            };
            let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
            let look = roles.has_left().then_some(LANE_LOOK);
            let timeout = [engine_limit, left, look].into_iter().flatten().min();
            let end = fibers.wait(Some(self.handle.waiter.as_fd()), ready, timeout);
            if end.engine {
                self.handle.waiter.wait(&mut events.0, Some(0));
            }
            if !is_full {
                self.lock().take(&mut events.0);
            }
            if end.own || limit.is_some_and(|limit| begun.elapsed() >= limit) {
                return;
            }
            if !roles.has_left() {
                continue;
            }
            lane_idle_since = lane_idle_since.filter(|_| roles.is_lane_idle());
            let is_idle = roles.is_lane_idle();
            let since = is_idle.then(|| *lane_idle_since.get_or_insert_with(Instant::now));
            let is_due = since.is_some_and(|since: Instant| since.elapsed() >= LANE_LOOK);
            if is_due || begun.elapsed() >= LANE_LOOK_MAX {
                return;
            }
        }
    }

    /// Takes in events, and does what needs no application.
    pub(super) fn attend(&self, events: &mut EventBuffer) -> Attention {
        self.lock().attend(&mut events.0)
    }

    /// Takes in an offer of a sibling that has already arrived. Returns true if no offer is awaited any more.
    pub(super) fn take_offer(&self, events: &mut EventBuffer) -> bool {
        self.handle.waiter.wait(&mut events.0, Some(0));
        let mut engine = self.lock();
        engine.take(&mut events.0);
        !engine.awaits_offer()
    }

    /// Waits until a sibling has passed the requested request, or has refused.
    pub(super) fn wait_for_offer(&self, events: &mut EventBuffer, is_interrupted: &AtomicBool) {
        let begun = Instant::now();
        while self.lock().awaits_offer()
            && begun.elapsed() < OFFER_MAX
            && !is_interrupted.load(Ordering::Relaxed)
        {
            self.handle.waiter.wait(&mut events.0, Some(OFFER_MS));
            self.lock().take(&mut events.0);
        }
    }

    /// Takes in events, if it is time to poll.
    pub(super) fn poll_if_due(&self, events: &mut EventBuffer) {
        self.lock().poll_if_due(&mut events.0);
    }

    /// The descriptor of a request's connection, and the direction to wait for.
    pub(super) fn socket(&self, ticket: Ticket) -> Option<(RawFd, Direction)> {
        let mut engine = self.lock();
        let (socket, direction) = engine.response(ticket).socket()?;
        Some((socket.as_raw_fd(), direction))
    }
}
