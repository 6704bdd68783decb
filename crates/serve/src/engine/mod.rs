//! The engine: the connections of one thread, driven by its owner.
//!
//! Reading order:
//!
//! 1. This file: events come in, and connections get their turns. `attention` does the same without a handler.
//! 2. `acceptor`: connections begin.
//! 3. `migration`: connections and requests move between this engine's worker and its siblings.
//! 4. `shutdown`: service ends. [`inheritance`]: the next program takes over the connections.
//! 5. `server` drives engines in threads. `stats` and [`tls`] serve an engine's owner.

pub(crate) mod acceptor;
pub(crate) mod attention;
pub mod inheritance;
pub(crate) mod migration;
pub(crate) mod server;
pub(crate) mod shutdown;
pub(crate) mod stats;
pub mod tls;

use crate::engine::acceptor::Acceptor;
use crate::engine::migration::Migration;
use crate::entry::ticket::Ticket;
use crate::entry::{Entry, State};
use crate::events::clock::monotonic_us;
use crate::events::poller::{Bell, Event, Events, Poller, Waiter, Waker};
use crate::events::slab::EntryId;
use crate::events::token::Token;
use crate::exchange::cached::departure;
use crate::exchange::closing;
use crate::exchange::handler::Handler;
use crate::exchange::handshake;
use crate::exchange::http2::{input, output};
use crate::exchange::reading::RequestReader;
use crate::exchange::response::ResponseWriter;
use crate::exchange::upgraded;
use crate::exchange::upgraded::socket_writer::SocketWriter;
use crate::listen::listener::Listener;
use crate::metrics::WorkerMetrics;
use crate::settings::Settings;
use crate::store::Store;
use crate::store::cache::ResponseCache;
use crate::store::service_state::{ServiceState, ShutdownMode};
use crate::store::tls_listeners::TlsListeners;
use crate::workers::{
    Siblings, WorkerHandle, new_cache, new_client_turns, new_faulty_peers, new_metrics,
    new_ticket_keys,
};
use crate::{Address, Error};

/// The number of short turns between two polls.
const TURNS_PER_POLL: u32 = 32;

/// The time after which the next poll is due, whatever the number of turns.
const POLL_INTERVAL_US: u64 = 500;

/// Serves connections, a turn at a time.
///
/// A turn is one request, or one quantum of a body. The owner calls [`poll`](Self::poll) to receive events, and then
/// [`turn`](Self::turn) until no work is left.
#[derive(Debug)]
pub struct Engine {
    pub(crate) store: Store,
    /// The engine's part in a group of workers.
    pub(crate) migration: Option<Migration>,
    /// Whether another thread has ended the wait.
    pub(crate) is_woken: bool,
    pub(crate) acceptor: Acceptor,
    reader: RequestReader,
    handle: EngineHandle,
    polls: Polls,
}

/// The parts of an engine that other threads use without a lock.
#[derive(Debug, Clone)]
pub struct EngineHandle {
    /// Waits in place of the engine. The events are passed to [`Engine::take`].
    pub waiter: Waiter,
    /// Ends a wait.
    pub waker: Waker,
    /// Calls the standby.
    pub bell: Bell,
    /// The request counters, if requests are counted.
    pub metrics: Option<WorkerMetrics>,
}

/// The time of the engine's last poll, and the turns since then.
#[derive(Debug, Default)]
struct Polls {
    polled_us: u64,
    turns: u32,
    /// The connection that had the last turn.
    last: Option<EntryId>,
    /// Whether the same connection also had the turn before.
    repeats: bool,
    /// The time at which the current wait began.
    wait_began_us: Option<u64>,
}

impl Polls {
    /// Records a connection's turn.
    fn note_turn(&mut self, connection: EntryId) {
        self.turns += 1;
        self.repeats = self.last.replace(connection) == Some(connection);
    }
}

impl Engine {
    /// Creates an engine for connections from `listeners`, and from the siblings of `worker`.
    ///
    /// # Errors
    /// The system has no descriptors left, or a certificate cannot be used.
    pub fn new(
        settings: Settings,
        listeners: Vec<Listener>,
        worker: Option<WorkerHandle>,
    ) -> Result<Self, Error> {
        let poller = Poller::new()?;
        let waiter = poller.waiter();
        let waker = poller.waker(Token::Waker.to_word())?;
        let bell = Bell::new()?;
        if let Some(worker) = &worker {
            let failed = |errno| Error::system("watch a mailbox", errno);
            poller.add_mailbox(worker.mailbox(), Token::Mailbox.to_word()).map_err(failed)?;
            poller.add_listener(worker.handover(), Token::Handover.to_word()).map_err(failed)?;
        }
        let (client_turns, faulty_peers, ticket_keys) = match &worker {
            Some(worker) => worker.tables(),
            None => (new_client_turns()?, new_faulty_peers()?, new_ticket_keys()?),
        };
        let metrics = match &worker {
            _ if !settings.counts => None,
            Some(worker) => Some(worker.metrics()),
            None => Some(WorkerMetrics::enter(new_metrics(1)?, 0)),
        };
        let tls = TlsListeners::new(&listeners, &ticket_keys, settings.has_http2)?;
        let mut store = Store::new(poller, settings, client_turns, faulty_peers, tls);
        store.metrics.clone_from(&metrics);
        store.cache = cache_of(&store.settings, worker.as_ref())?.map(Box::new);
        store.observed_as = listeners.iter().map(host_of).collect();
        if listeners.iter().any(|listener| listener.site().is_some()) {
            store.sites = listeners.iter().map(|listener| listener.site().cloned()).collect();
        }
        if listeners.iter().any(|listener| listener.hsts_s().is_some()) {
            store.hsts = listeners.iter().map(hsts_of).collect();
        }
        store.siblings = worker.as_ref().map(|worker| Siblings::of(worker.board()));
        let mut engine = Self {
            store,
            migration: worker.map(Migration::new),
            is_woken: false,
            acceptor: Acceptor::new(listeners),
            reader: RequestReader::new(),
            handle: EngineHandle { waiter, waker, bell, metrics },
            polls: Polls::default(),
        };
        engine.acceptor.listen(&engine.store)?;
        Ok(engine)
    }

    /// Receives events. Without work, the call waits for an event or a signal, for at most `timeout_ms` (none: without
    /// a limit).
    pub fn poll(&mut self, events: &mut Events, timeout_ms: Option<u64>) {
        let has_work = self.has_waiting();
        let timeout_ms = if has_work { Some(0) } else { self.begin_wait(timeout_ms) };
        self.handle.waiter.wait(events, timeout_ms);
        self.take(events);
    }

    /// Receives events if a poll is due. The owner calls this method between two turns.
    ///
    /// After short turns, the engine polls once every `TURNS_PER_POLL` turns, so that polls cost little. After a long
    /// turn the engine polls immediately, so that the request that has waited longest is served next. If other
    /// connections are active, the engine also polls after two turns of the same connection, since the others may have
    /// sent requests during the first turn.
    pub fn poll_if_due(&mut self, events: &mut Events) {
        let passes_others = || self.polls.repeats && self.store.activity.count() > 1;
        let is_due = || monotonic_us() >= self.polls.polled_us + POLL_INTERVAL_US;
        if self.polls.turns >= TURNS_PER_POLL || passes_others() || is_due() {
            self.handle.waiter.wait(events, Some(0));
            self.take(events);
        }
    }

    /// Gives the next connection its turn; false if there is no work.
    pub fn turn(&mut self, handler: &mut impl Handler) -> bool {
        departure::wake(&mut self.store);
        while let Some(slot) = self.store.turns.next() {
            let Some((id, whose)) = self.store.begin_turn(slot) else { continue };
            self.polls.note_turn(whose);
            if let Some(migration) = &mut self.migration {
                migration.worker.note_turn();
                migration.publish(&self.store);
            }
            self.serve(id, handler);
            self.store.settle(id);
            return true;
        }
        // The turns may have ended connections, and no later event may report the freed room.
        self.acceptor.listen_again(&self.store);
        false
    }

    /// Whether the owner should call [`turn`](Self::turn) and check the engine's state before another wait.
    pub fn wants_turn(&mut self) -> bool {
        std::mem::take(&mut self.is_woken)
            || self.has_waiting()
            || is_drained(&self.store)
            || self.store.warnings.has_some()
    }

    /// Whether connections wait for a turn.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.store.turns.is_empty()
    }

    /// Returns the key of the next turn: the time since which its connection has waited, less the connection's credit.
    #[must_use]
    pub fn next_key_us(&self) -> Option<u64> {
        self.store.turns.lowest_key_us()
    }

    /// Returns the parts of the engine that other threads use.
    #[must_use]
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Prepares a wait. Returns the maximum duration of the wait, at most `timeout_ms`, before work would be late.
    #[must_use]
    pub fn begin_wait(&mut self, timeout_ms: Option<u64>) -> Option<u64> {
        output::send_corked(&mut self.store);
        departure::wake(&mut self.store);
        if self.has_waiting() {
            return Some(0);
        }
        let now_us = monotonic_us();
        self.polls.wait_began_us = Some(now_us);
        let look_ms = self.migration.as_mut().and_then(|migration| {
            self.store.clock.now_us = now_us;
            migration.publish(&self.store);
            migration.begin_wait(&self.store)
        });
        let migration = self.migration.as_mut();
        let full_ms = shutdown::hand_over_ms(&mut self.store, migration, &mut self.is_woken);
        let other_ms = departure::look_ms(&self.store);
        [timeout_ms, look_ms, full_ms, other_ms, self.next_deadline_ms()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the number of milliseconds until the next deadline; none without deadlines.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let now_ms = self.store.clock.now_ms;
        let expiry = self.store.deadlines.next_expiry_ms(now_ms);
        [expiry, self.acceptor.wait_ms(now_ms)].into_iter().flatten().min()
    }

    /// Processes the events of a wait.
    pub fn take(&mut self, events: &mut Events) {
        closing::tick(&mut self.store);
        output::send_corked_if_due(&mut self.store);
        self.end_wait();
        for event in events.drain() {
            self.take_event(event);
        }
        if let Some(migration) = &mut self.migration {
            migration.share(&mut self.store);
        }
        match self.store.service {
            ServiceState::Draining => closing::close_idle(&mut self.store),
            ServiceState::HandingOver => {
                let migration = self.migration.as_mut();
                shutdown::hand_over_ms(&mut self.store, migration, &mut self.is_woken);
            }
            ServiceState::Serving | ServiceState::Announced | ServiceState::Suspended => {}
        }
        self.acceptor.begin_due(&mut self.store, self.migration.as_mut());
        self.acceptor.listen_again(&self.store);
    }

    /// Returns the writer of the response to the request that `ticket` names.
    pub fn response(&mut self, ticket: Ticket) -> ResponseWriter<'_> {
        ResponseWriter::new(&mut self.store, ticket)
    }

    /// Returns the writer to the upgraded connection that `ticket` names.
    pub fn socket(&mut self, ticket: Ticket) -> SocketWriter<'_> {
        SocketWriter::new(&mut self.store, ticket)
    }

    /// Ends connections whose deadlines have expired. A thread that waits for a client calls this method, since there
    /// may be no other thread that calls [`poll`](Self::poll).
    pub fn tick(&mut self) {
        closing::tick(&mut self.store);
    }

    /// Returns a warning for the log, if there is one; there may be several. The same warning is repeated after ten
    /// seconds at the earliest.
    pub fn warning(&mut self) -> Option<Error> {
        self.store.warnings.take()
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.store.count()
    }

    /// Ends the service in the given way. Another mode may follow: a drain after an announcement, or an abort after a
    /// drain.
    pub fn shut_down(&mut self, shutdown: ShutdownMode) {
        output::send_corked(&mut self.store);
        let (store, acceptor) = (&mut self.store, &mut self.acceptor);
        let migration = self.migration.as_mut();
        match shutdown {
            ShutdownMode::Announce if store.service == ServiceState::Serving => {
                store.service = ServiceState::Announced;
            }
            ShutdownMode::Announce => {}
            ShutdownMode::HandOver => shutdown::hand_over(store, acceptor, migration),
            ShutdownMode::Drain { closes_for_all } => {
                shutdown::drain(store, acceptor, migration, closes_for_all);
            }
            ShutdownMode::Abort => closing::give_up(store, &mut self.reader.inbox),
        }
    }

    /// Whether no work is left after the end of the service.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let slab = &self.store.slab;
        let is_resting = |id| slab.get(id).is_none_or(Entry::awaits_request);
        slab.len() == 0
            || self.store.service == ServiceState::Suspended && slab.ids().all(is_resting)
    }

    /// Asks for a request that waits in another worker and should be served before the next request here. If the method
    /// returns true, the caller waits while [`awaits_offer`](Self::awaits_offer) is true, but only briefly.
    pub fn ask_for_older(&mut self) -> bool {
        let store = &mut self.store;
        let asks = self.migration.as_mut().is_some_and(|migration| migration.ask_for_older(store));
        if asks {
            output::send_corked(store);
        }
        asks
    }

    /// Whether a sibling's answer, or a request on its way to this worker, is still awaited.
    #[must_use]
    pub fn awaits_offer(&self) -> bool {
        self.migration.as_ref().is_some_and(Migration::awaits_offer)
    }

    /// Records the duration of the wait that has just ended. The caller has just read the clock.
    fn end_wait(&mut self) {
        let now_us = self.store.clock.now_us;
        let polls = &mut self.polls;
        let idle_us = polls.wait_began_us.take().map_or(0, |began| now_us.saturating_sub(began));
        (polls.turns, polls.polled_us) = (0, now_us);
        if let Some(migration) = &mut self.migration {
            migration.worker.note_idle(idle_us);
        }
    }

    fn take_event(&mut self, event: Event) {
        match Token::from_word(event.word) {
            Token::Waker => {
                self.handle.waker.clear();
                self.is_woken = true;
            }
            Token::Mailbox => {
                if let Some(migration) = &mut self.migration {
                    migration.take_messages(&mut self.store);
                }
            }
            Token::Handover => {
                if let Some(migration) = &mut self.migration {
                    migration.take_over(&mut self.store);
                }
            }
            Token::Listener(index) => {
                self.acceptor.accept(index, &mut self.store, self.migration.as_mut());
            }
            Token::Connection(id) => self.store.note(id, event),
        }
    }

    /// Performs a connection's turn.
    pub(crate) fn serve(&mut self, id: EntryId, handler: &mut impl Handler) {
        let entry = self.store.at(id);
        // Multiplexed and upgraded connections also read while output waits for the client.
        let reads_too = matches!(entry.state, State::Multiplexing(_) | State::Upgraded(_));
        if entry.output.is_some() && !reads_too {
            entry.flush();
            return;
        }
        let inbox = &mut self.reader.inbox;
        match entry.state {
            State::Handshaking => handshake::go_on(entry, inbox),
            State::Waiting => self.reader.read_head(entry, handler),
            State::Receiving(_) => self.reader.read_body(entry, handler),
            State::Lingering { .. } => {
                closing::drain_input(entry, inbox);
            }
            State::Multiplexing(_) => input::go_on(entry, inbox),
            State::Upgraded(_) => upgraded::turn(entry, inbox, handler),
            State::AwaitingOther(_) | State::Handling | State::Streaming(_) | State::Responding => {
            }
        }
    }
}

/// Returns the cache of the worker group, or a new cache for a single engine.
fn cache_of(
    settings: &Settings,
    worker: Option<&WorkerHandle>,
) -> Result<Option<ResponseCache>, Error> {
    if let Some(worker) = worker {
        let shared = worker.cache();
        return Ok(shared.map(|store| ResponseCache::new(store, worker.index())));
    }
    let store = settings.cache.map(new_cache).transpose()?;
    Ok(store.map(|store| ResponseCache::new(store, 0)))
}

/// Returns the host that a listener was configured with; none for a unix socket.
fn host_of(listener: &Listener) -> Option<String> {
    match listener.address() {
        Address::Tcp { host, .. } => Some(host.clone()),
        Address::Unix { .. } => None,
    }
}

/// Returns the `Strict-Transport-Security` field that a listener adds to its responses (RFC 6797).
fn hsts_of(listener: &Listener) -> Option<Vec<u8>> {
    let seconds = listener.hsts_s()?;
    Some(format!("Strict-Transport-Security: max-age={seconds}\r\n").into_bytes())
}

/// Whether the server is draining and has no connection left.
pub(crate) fn is_drained(store: &Store) -> bool {
    store.service == ServiceState::Draining && store.slab.len() == 0
}

#[cfg(test)]
mod tests;
