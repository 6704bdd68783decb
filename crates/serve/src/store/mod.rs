//! An engine's connections, and the work on each between its turns.
//!
//! Reading order: this file is the table of entries. `entry_mut` opens, flushes and closes them. `turns` keeps the
//! order in which connections are served, and `deadlines` the time that each has left. `tls_listeners` holds the
//! certificates of the listeners, `service_state` the state of the service, `cache` the engine's part of the response
//! cache, and `warnings` the messages for the log.

pub(crate) mod cache;
pub(crate) mod deadlines;
pub(crate) mod entry_mut;
pub(crate) mod service_state;
pub(crate) mod tls_listeners;
pub(crate) mod turns;
pub(crate) mod warnings;

use std::io;
use std::sync::Arc;

use thruway_cache::{Counter, Key, StoredResponse};
use thruway_http1::Request;
use thruway_websocket::Deflater;

use crate::entry::activity::ActiveConnections;
use crate::entry::multiplexer::Multiplexer;
use crate::entry::{Entry, State};
use crate::events::clock::Clock;
use crate::events::poller::{Event, Poller};
use crate::events::slab::{EntryId, Slab};
use crate::listen::secure_site::SecureSite;
use crate::metrics::WorkerMetrics;
use crate::output::QUANTUM_BYTES;
use crate::queue::client_queue::ClientQueues;
use crate::queue::client_turns::ClientTurns;
use crate::queue::queue_position::QueuePosition;
use crate::queue::waits::Waits;
use crate::settings::Settings;
use crate::settings::fair_by::FairBy;
use crate::store::cache::ResponseCache;
use crate::store::deadlines::Deadlines;
use crate::store::service_state::ServiceState;
use crate::store::tls_listeners::TlsListeners;
use crate::store::turns::Turns;
use crate::store::warnings::Warnings;
use crate::workers::Siblings;
use crate::workers::faulty_peers::FaultyPeers;

/// The number of quanta of one body in a turn while no shorter work waits, since a call costs more than its bytes do. A
/// connection that becomes ready meanwhile waits for less than a millisecond.
const BULK_QUANTA: usize = 8;

/// The length of the run queue beyond which each turn is one quantum, without a search of the queue for shorter work.
const BULK_QUEUE_MAX: usize = 32;

/// The registry of connections, with the time of each connection's next turn and its deadline.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) poller: Poller,
    pub(crate) slab: Slab<Entry>,
    pub(crate) turns: Turns,
    pub(crate) deadlines: Deadlines,
    pub(crate) activity: ActiveConnections,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    pub(crate) warnings: Warnings,
    /// Peers whose faults have ended connections.
    pub(crate) faulty_peers: Arc<FaultyPeers>,
    pub(crate) tls: TlsListeners,
    pub(crate) service: ServiceState,
    /// The bytes of responses that wait in memory.
    pub(crate) held_bytes: usize,
    /// The request counters, if requests are counted.
    pub(crate) metrics: Option<WorkerMetrics>,
    /// The configured host of each listener; none for a unix socket.
    pub(crate) observed_as: Vec<Option<String>>,
    /// The response cache, if the server has one.
    pub(crate) cache: Option<Box<ResponseCache>>,
    /// The ACME site of each plain HTTP listener. Empty if no listener has a site.
    pub(crate) sites: Vec<Option<Arc<SecureSite>>>,
    /// The `Strict-Transport-Security` field of each listener. Empty if no listener has the field.
    pub(crate) hsts: Vec<Option<Vec<u8>>>,
    /// The loads of the other workers.
    pub(crate) siblings: Option<Siblings>,
    /// A buffer for short responses, empty between two uses.
    pub(crate) scratch: Vec<u8>,
    /// The decompressor of messages, present after the first compressed message.
    pub(crate) deflater: Option<Box<Deflater>>,
    /// The number of requests so far, which is also the number of the last request.
    requests: u64,
    /// The number of entries that are HTTP/2 streams.
    streams: usize,
    /// HTTP/2 connections with corked responses, which wait for other responses.
    pub(crate) corked: Vec<EntryId>,
    /// The time at which the first corked response began to wait.
    pub(crate) corked_us: u64,
    /// Whether a response has left other work or freed room, so the waiting thread must be woken.
    pub(crate) has_news: bool,
}

impl Store {
    pub(crate) fn new(
        poller: Poller,
        settings: Settings,
        client_turns: Arc<ClientTurns>,
        faulty_peers: Arc<FaultyPeers>,
        tls: TlsListeners,
    ) -> Self {
        let clock = Clock::new();
        let by_client = settings.fair_by != FairBy::Connection;
        let clients = ClientQueues::new(client_turns);
        let waits = settings.queue_ms.map(|_| Waits::default());
        Self {
            poller,
            slab: Slab::new(),
            turns: Turns::new(clients, by_client, waits),
            deadlines: Deadlines::new(&settings, clock.now_ms),
            activity: ActiveConnections::default(),
            clock,
            settings,
            warnings: Warnings::default(),
            faulty_peers,
            tls,
            service: ServiceState::Serving,
            held_bytes: 0,
            metrics: None,
            observed_as: Vec::new(),
            cache: None,
            sites: Vec::new(),
            hsts: Vec::new(),
            siblings: None,
            scratch: Vec::new(),
            deflater: None,
            requests: 0,
            streams: 0,
            corked: Vec::new(),
            corked_us: 0,
            has_news: false,
        }
    }

    /// Reads the certificates whose files have changed.
    pub(crate) fn look_at_certificates(&mut self) {
        if let Err(error) = self.tls.look(self.clock.now_ms) {
            self.warn("use changed certificates", io::Error::other(error));
        }
    }

    /// Records a failure for the log; `doing` completes "cannot …".
    pub(crate) fn warn(&mut self, doing: &'static str, source: impl Into<io::Error>) {
        self.warnings.note(self.clock.now_ms, doing, source);
    }

    /// Finds the stored response for a request.
    pub(crate) fn find_stored(
        &mut self,
        key: &Key,
        request: &Request<'_>,
    ) -> Option<StoredResponse> {
        let cache = self.cache.as_mut()?;
        cache.store.find(key, request.fields(), &mut cache.buffer)
    }

    /// Keeps the buffer of a stored response for the next lookup.
    pub(crate) fn keep_buffer(&mut self, found: StoredResponse) {
        if let Some(cache) = &mut self.cache {
            cache.buffer = found.into_buffer();
        }
    }

    /// Increments a counter of the cache.
    pub(crate) fn count_cached(&self, counter: Counter) {
        if let Some(cache) = &self.cache {
            cache.store.count(counter);
        }
    }

    /// Returns the number of open connections, without streams.
    pub(crate) fn count(&self) -> usize {
        self.slab.len() - self.streams
    }

    /// Returns the HTTP/2 side of a connection, unless the connection is closed or speaks another protocol. A stream
    /// can outlive its connection: an upgraded stream stays until its owner has been notified of the end.
    pub(crate) fn find_multiplexer(&mut self, id: EntryId) -> Option<&mut Multiplexer> {
        self.slab.get_mut(id)?.multiplexer_mut()
    }

    /// Returns the entry in an occupied slot.
    pub(crate) fn in_slot(&self, slot: u32) -> Option<&Entry> {
        self.slab.id_at(slot).and_then(|id| self.slab.get(id))
    }

    /// Records an event on a connection, and enqueues the connection if it has work now. The connection may have been
    /// closed since the kernel reported the event.
    pub(crate) fn note(&mut self, id: EntryId, event: Event) {
        let Some(entry) = self.slab.get_mut(id) else { return };
        entry.readiness.is_readable |= event.is_readable;
        entry.readiness.is_writable |= event.is_writable;
        entry.readiness.is_ended |= event.is_ended;
        if event.is_ended && matches!(entry.state, State::Streaming(_)) {
            self.deadlines.update(id.slot(), entry, self.clock.now_ms);
        }
        if entry.has_work() {
            self.turns.enqueue(id.slot(), entry, self.clock.now_us);
        }
    }

    /// Enqueues a connection from another worker, with the key that the connection had there.
    pub(crate) fn enqueue_moved(&mut self, id: EntryId) {
        let entry = &mut self.slab[id];
        entry.turn.here_us = self.clock.now_us;
        self.turns.enqueue_moved(id.slot(), entry);
    }

    /// Returns the lowest key in the run queue, and the time since which its connection has waited in this worker.
    pub(crate) fn oldest(&self) -> Option<(u64, u64)> {
        let (slot, key_us) = self.turns.find_oldest(|_| true)?;
        self.in_slot(slot).map(|entry| (key_us, entry.turn.here_us))
    }

    /// Begins the turn of the entry in `slot`. Returns the entry and the connection that the turn counts for; for a
    /// stream, its parent connection. Returns none if the entry has no work any more, or if a suspended engine may not
    /// begin its request.
    pub(crate) fn begin_turn(&mut self, slot: u32) -> Option<(EntryId, EntryId)> {
        let id = self.slab.occupant(slot);
        let keeps_back = self.service == ServiceState::Suspended;
        let entry = &mut self.slab[id];
        if !entry.has_work() || keeps_back && entry.awaits_request() {
            return None;
        }
        if let Some(link) = entry.carrier.stream() {
            return Some((id, link.parent));
        }
        self.activity.note_turn(&mut entry.share);
        Some((id, id))
    }

    /// Returns the number of a request that begins now.
    fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Returns the number of body bytes that may be sent in this turn: several quanta while every waiting entry sends a
    /// body itself, otherwise one quantum.
    pub(crate) fn turn_bytes(&self) -> usize {
        let wants_little = |slot| {
            let entry = self.in_slot(slot);
            entry.is_some_and(|entry| entry.output.is_none() && entry.has_work())
        };
        let is_long = self.turns.len() > BULK_QUEUE_MAX;
        if is_long || self.turns.slots().any(wants_little) {
            QUANTUM_BYTES
        } else {
            QUANTUM_BYTES * BULK_QUANTA
        }
    }

    /// Removes a request from the queues, even from behind its client's other requests. No handler serves the request.
    pub(crate) fn withdraw(&mut self, slot: u32) {
        self.turns.remove(slot);
        let id = self.slab.occupant(slot);
        let standing =
            std::mem::replace(&mut self.slab[id].turn.position, QueuePosition::Withdrawn);
        self.leave_client(standing);
    }

    /// Ends the wait of a request. If the request was its client's first, the client's next request takes its place.
    fn leave_client(&mut self, standing: QueuePosition) {
        let QueuePosition::First(client) = standing else { return };
        let clients = &mut self.turns.clients;
        let is_parked = |id| {
            let entry = self.slab.get(id);
            entry.is_some_and(|entry| entry.turn.position == QueuePosition::Parked(client))
        };
        let Some(next) = clients.leave(client, is_parked) else { return };
        let entry = &mut self.slab[next];
        entry.turn.position = QueuePosition::First(client);
        entry.turn.key_us = clients.first_key_us(client, entry.turn.ready_us);
        self.turns.requeue(next.slot(), entry.turn.key_us);
    }
}
