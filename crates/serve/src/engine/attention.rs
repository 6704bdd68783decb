//! The work on an engine's connections while no thread can call the handler.
//!
//! The standby processes events, ends connections whose deadlines have expired, reads bodies, writes responses, and
//! gives requests to other workers. Complete requests wait for a thread with a handler.

use std::time::Duration;

use thruway_http1::Request;

use crate::engine::{Engine, is_drained};
use crate::entry::Entry;
use crate::events::poller::Events;
use crate::exchange::admission::{self, LATE};
use crate::exchange::cached::departure;
use crate::exchange::handler::{Absent, Exchange, Handler};
use crate::exchange::http2::output;

/// The number of turns without a handler between two polls.
const TURNS_MAX: usize = 32;

/// The time between two checks whether a sibling can take a waiting request: the sibling's state changes without an
/// event.
const LOOK_US: u64 = 1_000;

/// The work that is left after [`Engine::attend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// The number of requests that wait for a thread with a handler.
    pub waiting: usize,
    /// Whether another thread must be woken: the standby has received a wakeup that the other thread's wait has missed,
    /// or a draining server has lost its last connection.
    pub is_woken: bool,
    /// The time for which the engine may be left alone if no event occurs; none for an unlimited time.
    pub rest: Option<Duration>,
}

/// The handler of requests that have waited too long.
struct Late;

impl Handler for Late {
    fn handle(&mut self, _request: &Request<'_>, exchange: &mut Exchange<'_>) {
        exchange.respond_text(503, LATE);
    }
}

impl Engine {
    /// Processes the events of a wait, and does the work that needs no handler.
    pub fn attend(&mut self, events: &mut Events) -> Attention {
        self.take(events);
        departure::wake(&mut self.store);
        let mut is_busy = false;
        for _ in 0..TURNS_MAX {
            is_busy = self.turn_without_handler();
            if !is_busy {
                break;
            }
        }
        self.refuse_late();
        output::send_corked(&mut self.store);
        // The next wait may not check for room, so listening resumes here if the turns have made room for waiting
        // connections.
        self.acceptor.listen_again(&self.store);
        admission::warn_of_a_long_queue(&mut self.store);
        if let Some(migration) = &self.migration {
            migration.publish(&self.store);
        }
        Attention {
            waiting: self.store.turns.len(),
            is_woken: self.is_woken || is_drained(&self.store),
            rest: if is_busy { Some(Duration::ZERO) } else { self.rest() },
        }
    }

    /// Gives a turn to a connection that needs no handler for its turn; false if there is none.
    fn turn_without_handler(&mut self) -> bool {
        let store = &self.store;
        let found = store.turns.find_oldest(|slot| {
            store.in_slot(slot).is_some_and(|connection| !connection.needs_handler())
        });
        let Some((slot, key_us)) = found else { return false };
        self.store.turns.remove(slot);
        if let Some((id, _)) = self.store.begin_turn(slot) {
            self.serve(id, &mut Absent);
            let connection = self.store.slab.get(id);
            if connection.is_some_and(Entry::needs_handler) {
                // The request keeps its key while it waits for the handler.
                self.store.turns.requeue(slot, key_us);
            }
            self.store.settle(id);
        }
        true
    }

    /// Responds with 503 to requests that have waited too long.
    fn refuse_late(&mut self) {
        for _ in 0..TURNS_MAX {
            let Some(slot) = admission::find_late(&mut self.store) else { return };
            self.store.withdraw(slot);
            if let Some((id, _)) = self.store.begin_turn(slot) {
                self.serve(id, &mut Late);
                self.store.settle(id);
            }
        }
    }

    /// Returns the time until the next deadline, or until a waiting request is late or can move to another worker.
    fn rest(&mut self) -> Option<Duration> {
        let look_ms = departure::look_ms(&self.store);
        let deadline = [self.next_deadline_ms(), look_ms].into_iter().flatten().min();
        let deadline = deadline.map(Duration::from_millis);
        if !self.has_waiting() {
            return deadline;
        }
        let late = admission::late_in_us(&mut self.store).map(Duration::from_micros);
        let deadline = [deadline, late].into_iter().flatten().min();
        let store = &self.store;
        let due_us = self.migration.as_mut().and_then(|migration| migration.due_in_us(store));
        let Some(due_us) = due_us else { return deadline };
        let look = Duration::from_micros(if due_us > 0 { due_us } else { LOOK_US });
        Some(deadline.map_or(look, |deadline| deadline.min(look)))
    }
}
