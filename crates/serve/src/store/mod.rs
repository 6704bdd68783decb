//! An engine's connections, and what happens to each between its turns.
//!
//! Reading order: this file is the table of entries. `entry_mut` opens, flushes and closes them. `turns` keeps the
//! order in which they are served, `deadlines` the time that each has left. `tls_listeners` holds the certificates of
//! the listeners, `service_state` the state of the service, and `warnings` the text for the log.

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

use crate::entry::activity::Activity;
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

/// Quanta of one body in a turn, while no shorter work waits: a call costs more than its bytes do. A connection that
/// becomes ready meanwhile waits for less than a millisecond.
const BULK_QUANTA: usize = 8;

/// In a longer queue each turn is one quantum: the queue is not searched.
const BULK_QUEUE_MAX: usize = 32;

/// The registry of connections: where each is, when its next turn is, and when its time is over.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) poller: Poller,
    pub(crate) slab: Slab<Entry>,
    pub(crate) turns: Turns,
    pub(crate) deadlines: Deadlines,
    pub(crate) activity: Activity,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    pub(crate) warnings: Warnings,
    /// Peers that have sent what ended a connection.
    pub(crate) faulty_peers: Arc<FaultyPeers>,
    pub(crate) tls: TlsListeners,
    pub(crate) service: ServiceState,
    /// Bytes of responses that wait in memory.
    pub(crate) held_bytes: usize,
    /// Where requests are counted, if they are.
    pub(crate) metrics: Option<WorkerMetrics>,
    /// By listener: the host that it was told to listen as; none of a unix socket.
    pub(crate) observed_as: Vec<Option<String>>,
    /// The cache of responses, if there is one.
    pub(crate) cache: Option<Box<ResponseCache>>,
    /// By listener: the site that belongs to TLS. Empty if there is none.
    pub(crate) sites: Vec<Option<Arc<SecureSite>>>,
    /// By listener: the field for browsers that are to use nothing but TLS. Empty if there is none.
    pub(crate) hsts: Vec<Option<Vec<u8>>>,
    /// The loads of the other workers.
    pub(crate) siblings: Option<Siblings>,
    /// Where short responses are written; empty between two of them.
    pub(crate) scratch: Vec<u8>,
    /// The decompressor of messages, once a compressed message has come.
    pub(crate) deflater: Option<Box<Deflater>>,
    /// Requests so far: the number of the last one.
    requests: u64,
    /// How many entries are streams of others.
    streams: usize,
    /// Connections of HTTP/2 with responses that wait for others.
    pub(crate) corked: Vec<EntryId>,
    /// When the first of them began to wait.
    pub(crate) corked_us: u64,
    /// A response has left other work, or room: the thread that waits is to be woken.
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
            activity: Activity::default(),
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

    /// Reads the certificates anew whose files have changed.
    pub(crate) fn look_at_certificates(&mut self) {
        if let Err(error) = self.tls.look(self.clock.now_ms) {
            self.warn("take over changed certificates", io::Error::other(error));
        }
    }

    /// Notes what cannot be done, for the log; `doing` completes "cannot …".
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

    /// Keeps the memory of a stored response for the next one.
    pub(crate) fn keep_buffer(&mut self, found: StoredResponse) {
        if let Some(cache) = &mut self.cache {
            cache.buffer = found.into_buffer();
        }
    }

    /// Counts what the cache does.
    pub(crate) fn count_cached(&self, counter: Counter) {
        if let Some(cache) = &self.cache {
            cache.store.count(counter);
        }
    }

    /// Open connections; streams are none.
    pub(crate) fn count(&self) -> usize {
        self.slab.len() - self.streams
    }

    /// The connection with that id, if it speaks HTTP/2, and its streams. A stream may outlive its connection: one that
    /// was upgraded stays until its owner has heard of the end.
    pub(crate) fn find_multiplexer(&mut self, id: EntryId) -> Option<&mut Multiplexer> {
        self.slab.get_mut(id)?.multiplexer_mut()
    }

    /// The entry in a slot, which is not empty.
    pub(crate) fn in_slot(&self, slot: u32) -> Option<&Entry> {
        self.slab.id_at(slot).and_then(|id| self.slab.get(id))
    }

    /// Notes an event on a connection, and enqueues it if it has work now. The connection may have been closed since
    /// the kernel reported the event.
    pub(crate) fn note(&mut self, id: EntryId, event: Event) {
        let Some(entry) = self.slab.get_mut(id) else { return };
        entry.is_readable |= event.is_readable;
        entry.is_writable |= event.is_writable;
        entry.is_ended |= event.is_ended;
        if event.is_ended && matches!(entry.state, State::Streaming(_)) {
            self.deadlines.update(id.slot(), entry, self.clock.now_ms);
        }
        if entry.has_work() {
            self.turns.enqueue(id.slot(), entry, self.clock.now_us);
        }
    }

    /// Enqueues a connection that another worker has sent, with the key that it had there.
    pub(crate) fn enqueue_moved(&mut self, id: EntryId) {
        let entry = &mut self.slab[id];
        entry.here_us = self.clock.now_us;
        self.turns.enqueue_moved(id.slot(), entry);
    }

    /// The lowest key in the run queue, and since when its connection has waited here.
    pub(crate) fn oldest(&self) -> Option<(u64, u64)> {
        let (slot, key_us) = self.turns.find_oldest(|_| true)?;
        self.in_slot(slot).map(|entry| (key_us, entry.here_us))
    }

    /// Begins the turn of the entry in `slot`, and says whose it is: a stream's is that of its connection. None if it
    /// has no work any more.
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

    /// The number of a request that begins now.
    fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// How many bytes of a body may leave in this turn: several quanta while all that wait send bodies themselves,
    /// otherwise one.
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

    /// Takes a request out of the queues, also from behind its client's others: it is not served.
    pub(crate) fn take_out(&mut self, slot: u32) {
        self.turns.remove(slot);
        let id = self.slab.occupant(slot);
        let standing = std::mem::replace(&mut self.slab[id].standing, QueuePosition::TakenOut);
        self.leave_client(standing);
    }

    /// A request waits no more. If it was its client's first, the next one of the client takes its place.
    fn leave_client(&mut self, standing: QueuePosition) {
        let QueuePosition::First(client) = standing else { return };
        let clients = &mut self.turns.clients;
        let is_parked = |id| {
            let entry = self.slab.get(id);
            entry.is_some_and(|entry| entry.standing == QueuePosition::Parked(client))
        };
        let Some(next) = clients.leave(client, is_parked) else { return };
        let entry = &mut self.slab[next];
        entry.standing = QueuePosition::First(client);
        entry.key_us = clients.first_key_us(client, entry.ready_us);
        self.turns.requeue(next.slot(), entry.key_us);
    }
}
