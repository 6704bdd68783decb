//! What can be done for an engine's connections while no thread can call the handler.
//!
//! A thread that stands in takes in what has come, ends what has taken too long, reads bodies, writes what waits, and
//! gives requests to other workers. Requests that are whole wait for a thread with a handler.

use std::time::Duration;

use thruway_http1::Request;

use crate::connection::Connection;
use crate::connections::monotonic_us;
use crate::engine::Engine;
use crate::exchange::{Exchange, Handler};
use crate::poller::Events;
use crate::queue::policy::MOVE_AFTER_US;
use crate::workers::WorkerHandle;

/// Turns without a handler between two looks at what has happened.
const TURNS_MAX: usize = 32;

/// Between two looks whether a sibling can take what waits here: its state changes without an event.
const LOOK_US: u64 = 1_000;

/// What is left to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// Requests that wait for a thread with a handler.
    pub waiting: usize,
    /// Another thread was to be woken: its wait has missed that, if it waits.
    pub is_woken: bool,
    /// How long the engine may be left alone, if nothing happens (none: for ever).
    pub rest: Option<Duration>,
}

/// The handler of a thread that stands in.
struct Absent;

impl Handler for Absent {
    fn handle(&mut self, _request: &Request<'_>, _exchange: &mut Exchange<'_>) {}

    fn is_present(&self) -> bool {
        false
    }
}

impl Engine {
    /// Takes in what a wait has brought, and does what needs no handler.
    pub fn attend(&mut self, events: &mut Events) -> Attention {
        self.take(events);
        let mut is_busy = false;
        for _ in 0..TURNS_MAX {
            is_busy = self.turn_without_handler();
            if !is_busy {
                break;
            }
        }
        self.publish();
        Attention {
            waiting: self.connections.queue.len(),
            is_woken: self.is_woken,
            rest: if is_busy { Some(Duration::ZERO) } else { self.rest() },
        }
    }

    /// Serves a connection that needs no handler for its turn; false if there is none.
    fn turn_without_handler(&mut self) -> bool {
        let connections = &self.connections;
        let found = connections.queue.find_oldest(|slot| {
            let connection = connections.slab.id_at(slot).and_then(|id| connections.slab.get(id));
            connection.is_some_and(|connection| !connection.needs_handler())
        });
        let Some((slot, key_us)) = found else { return false };
        self.connections.queue.remove(slot);
        if let Some(id) = self.connections.begin_turn(slot) {
            self.serve(id, &mut Absent);
            let connection = self.connections.slab.get(id);
            if connection.is_some_and(Connection::needs_handler) {
                // It waits on, in its slot.
                self.connections.queue.enqueue(slot, key_us);
            }
            self.connections.settle(id);
        }
        true
    }

    /// How long nothing is late, here or for what another worker could serve.
    fn rest(&mut self) -> Option<Duration> {
        let quiet = self.next_deadline_ms().map(Duration::from_millis);
        let mut has_taker = || self.worker.as_mut().is_some_and(WorkerHandle::look_for_room);
        let Some((_, ready_us)) = self.connections.oldest().filter(|_| has_taker()) else {
            return quiet;
        };
        let now_us = monotonic_us();
        let due_us = (ready_us + MOVE_AFTER_US).saturating_sub(now_us);
        let look = Duration::from_micros(if due_us > 0 { due_us } else { LOOK_US });
        Some(quiet.map_or(look, |quiet| quiet.min(look)))
    }
}
