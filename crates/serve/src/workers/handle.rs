//! One worker's part in a group of workers.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::io::Errno;
use thruway_tls::TicketKeys;

use super::balance::{self, Move, PERIOD_MS};
use super::board::{Board, UNSURE};
use super::ends::Ends;
use super::handover::Handover;
use super::load_table::{Load, LoadRow, LoadTable};
use super::mailbox::Mailbox;
use crate::entry::Entry;
use crate::events::clock::monotonic_us;
use crate::metrics::{MetricsTable, WorkerMetrics};
use crate::queue::client_turns::ClientTurns;
use crate::queue::policy::{self, WorkerView};
use crate::workers::faulty_peers::FaultyPeers;

/// The memory of a rate: after this time, older values count a third.
const RATE_MEMORY_MS: u64 = 160;

/// The divisor of a worker's limit on connections: moves may exceed the limit by the quotient.
const EXTRA_PARTS: usize = 8;

/// A worker's part in a group.
#[derive(Debug)]
pub struct WorkerHandle {
    index: usize,
    table: Arc<LoadTable>,
    client_turns: Arc<ClientTurns>,
    faulty_peers: Arc<FaultyPeers>,
    metrics: Arc<MetricsTable>,
    ticket_keys: Arc<TicketKeys>,
    ends: Arc<Ends>,
    cache: Option<Arc<thruway_cache::Store>>,
    service: Service,
    /// The buffer for all loads.
    loads: Vec<Load>,
    /// The buffer for all views.
    views: Vec<WorkerView>,
}

/// The tables that all workers share.
pub(super) struct SharedTables {
    pub(super) table: Arc<LoadTable>,
    pub(super) client_turns: Arc<ClientTurns>,
    pub(super) faulty_peers: Arc<FaultyPeers>,
    pub(super) metrics: Arc<MetricsTable>,
    pub(super) ticket_keys: Arc<TicketKeys>,
    pub(super) ends: Arc<Ends>,
    pub(super) cache: Option<Arc<thruway_cache::Store>>,
}

/// The recent service of the worker.
#[derive(Debug, Default)]
struct Service {
    /// Turns since the last decision.
    turns: u64,
    /// Microseconds without work since the last decision.
    idle_us: u64,
    decided_ms: u64,
    turns_per_second: f64,
    idle_permille: f64,
}

impl WorkerHandle {
    pub(super) fn new(index: usize, shared: SharedTables) -> Self {
        let SharedTables { table, client_turns, faulty_peers, metrics, ticket_keys, ends, cache } =
            shared;
        table.row(index).enter();
        let service = Service { idle_permille: 1000.0, ..Service::default() };
        Self {
            index,
            table,
            client_turns,
            faulty_peers,
            metrics,
            ticket_keys,
            ends,
            cache,
            service,
            loads: Vec::new(),
            views: Vec::new(),
        }
    }

    /// The tables of clients' turns and of faulty peers, and the keys of session tickets.
    pub(crate) fn tables(&self) -> (Arc<ClientTurns>, Arc<FaultyPeers>, Arc<TicketKeys>) {
        let (turns, faulty_peers) =
            (Arc::clone(&self.client_turns), Arc::clone(&self.faulty_peers));
        (turns, faulty_peers, Arc::clone(&self.ticket_keys))
    }

    /// The number of the worker.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The group's response cache.
    pub(crate) fn cache(&self) -> Option<Arc<thruway_cache::Store>> {
        self.cache.clone()
    }

    /// The counters of the worker's requests.
    pub(crate) fn metrics(&self) -> WorkerMetrics {
        WorkerMetrics::enter(Arc::clone(&self.metrics), self.index)
    }

    /// The mailbox for messages of siblings.
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.ends.mailboxes[self.index].0
    }

    /// The mailbox through which retiring workers hand over connections, including those of this worker.
    pub(crate) fn handover(&self) -> &Handover {
        &self.ends.handover
    }

    /// Sends a new connection to the worker with the least load; returns the connection if that is this worker.
    pub(crate) fn place(
        &mut self,
        connection: Entry,
        connections_max: usize,
        now_us: u64,
    ) -> Option<Entry> {
        self.table.read_loads(&mut self.loads, now_us);
        let target = balance::placement(&self.loads, self.index, connections_max as u64);
        if target == self.index || self.send(&connection, false, target, connections_max).is_err() {
            self.row().connections().keep();
            return Some(connection);
        }
        None
    }

    /// The number of connections that are open in this worker or on their way.
    pub(crate) fn connections(&self) -> usize {
        usize::try_from(self.row().load().connections).unwrap_or(usize::MAX)
    }

    /// Counts a turn of a connection.
    pub(crate) fn note_turn(&mut self) {
        self.service.turns += 1;
    }

    /// Returns the board on which this worker's threads report to its siblings.
    #[must_use]
    pub fn board(&self) -> Board {
        Board { table: Arc::clone(&self.table), index: self.index }
    }

    /// Reports the number of waiting requests, with the key of the next one and the time at which it was ready.
    pub(crate) fn note_waiting(&self, requests: usize, oldest: Option<(u64, u64)>) {
        let (oldest_us, ready_us) = oldest.unwrap_or((u64::MAX, u64::MAX));
        self.row().set_waiting(requests, oldest_us, ready_us);
    }

    /// Takes the sibling that has asked for the oldest request. The sibling waits for a message in any case: the
    /// request, or a refusal.
    pub(crate) fn take_asker(&self) -> Option<usize> {
        let asker = self.row().asker()?;
        if asker < self.table.len() {
            self.table.row(asker).untaken().expect(monotonic_us());
        }
        self.row().forget_asker();
        Some(asker)
    }

    /// The sibling that gets the oldest request: the `asker`, or an idle worker.
    pub(crate) fn give_to(
        &mut self,
        asker: Option<usize>,
        now_us: u64,
        round_us: u64,
    ) -> Option<usize> {
        self.table.read_views(&mut self.views, now_us);
        let asker = asker.filter(|asker| {
            *asker < self.views.len()
                && policy::grants(&self.views, self.index, *asker, now_us, round_us)
        });
        asker.or_else(|| policy::give_to(&self.views, self.index, now_us, round_us))
    }

    /// Tells a sibling that no request will follow.
    pub(crate) fn refuse(&self, asker: usize) {
        if asker < self.ends.mailboxes.len() {
            self.ring(asker);
        }
    }

    /// Whether sibling `giver` has yet to grant or refuse the request.
    pub(crate) fn is_asking(&self, giver: usize) -> bool {
        self.table.row(giver).asker() == Some(self.index)
    }

    /// Asks a sibling for its oldest request, if that should be served before `next_us`, the key of the next request in
    /// this worker. Returns the sibling.
    pub(crate) fn ask(
        &mut self,
        now_us: u64,
        next_us: Option<u64>,
        round_us: u64,
    ) -> Option<usize> {
        self.table.read_views(&mut self.views, now_us);
        let giver = policy::ask_from(&self.views, self.index, now_us, next_us, round_us)?;
        if !self.table.row(giver).ask(self.index) {
            return None;
        }
        self.ring(giver);
        Some(giver)
    }

    /// Whether the worker is idle while a sibling has waiting requests, and should thus look again soon.
    pub(crate) fn looks_again(&self) -> bool {
        policy::looks_again(&self.views, self.index)
    }

    /// Whether a sibling has a free thread and no waiting request. A sibling that does not know whether its threads
    /// compute is asked to find out.
    pub(crate) fn look_for_room(&mut self, now_us: u64) -> bool {
        self.table.read_views(&mut self.views, now_us);
        let mut has_some = false;
        for (index, view) in self.views.iter().enumerate() {
            if index != self.index && view.is_serving && view.free_threads > 0 && view.waiting == 0
            {
                has_some = true;
                if view.computing == UNSURE {
                    self.ring(index);
                }
            }
        }
        has_some
    }

    /// Adds time without work.
    pub(crate) fn note_idle(&mut self, idle_us: u64) {
        self.service.idle_us += idle_us;
    }

    /// Reports the number of open connections, and of active ones among them.
    pub(crate) fn note_connections(&self, connections: usize, active: u64) {
        self.row().set_connections(connections as u64, active);
    }

    pub(crate) fn drain(&self) {
        self.row().drain();
        fence(Ordering::SeqCst);
    }

    /// Decides about the load, once in each period.
    pub(crate) fn decide(&mut self, now_ms: u64) -> Move {
        if now_ms < self.service.decided_ms + PERIOD_MS {
            return Move::Stay;
        }
        self.service.sum_up(now_ms);
        let service = &self.service;
        let (rate, idle) = (service.turns_per_second as u64, service.idle_permille as u64);
        self.row().set_service(rate, idle);
        if busy_us_per_turn(rate, idle) >= policy::MOVE_AFTER_US {
            // Giving and asking even out turns of this length.
            return Move::Stay;
        }
        self.table.read_loads(&mut self.loads, now_ms * 1000);
        balance::decide(&self.loads, self.index)
    }

    /// Whether another worker has room for a connection that is already open. The limit is somewhat higher than for new
    /// connections, so that work is shared even if all workers are full.
    pub(crate) fn has_room(&self, target: usize, connections_max: usize) -> bool {
        self.table.row(target).load().connections < most_after_moves(connections_max) as u64
    }

    /// Sends a connection that is already open away, if the other worker [has room](Self::has_room). The caller then
    /// drops its socket.
    ///
    /// # Errors
    /// The other worker or its mailbox is full.
    pub(crate) fn send_open(
        &self,
        connection: &Entry,
        is_active: bool,
        target: usize,
        connections_max: usize,
    ) -> Result<(), Errno> {
        self.send(connection, is_active, target, most_after_moves(connections_max))
    }

    /// Sends a connection away, if the other worker has fewer than `most`.
    fn send(
        &self,
        connection: &Entry,
        is_active: bool,
        target: usize,
        most: usize,
    ) -> Result<(), Errno> {
        let row = self.table.row(target);
        if !row.connections().reserve(most as u64) {
            return Err(Errno::AGAIN);
        }
        row.untaken().expect(monotonic_us());
        if let Err(errno) = self.ends.mailboxes[target].1.send(connection) {
            row.connections().release();
            // No connection comes: the bell makes the sibling look and clear the expectation.
            self.ends.mailboxes[target].1.ring();
            return Err(errno);
        }
        if is_active {
            row.add_active();
        }
        // A retiring worker announces that first, and then looks into its mailbox once more.
        fence(Ordering::SeqCst);
        if !row.load().is_serving {
            self.ends.forward(target, row);
        }
        Ok(())
    }

    /// Wakes a sibling.
    fn ring(&self, sibling: usize) {
        self.table.row(sibling).untaken().expect(monotonic_us());
        self.ends.mailboxes[sibling].1.ring();
    }

    /// The row in which the worker reports to its siblings, and in which they ask.
    pub(crate) fn row(&self) -> LoadRow<'_> {
        self.table.row(self.index)
    }
}

/// Returns how many connections a worker may have after a move.
fn most_after_moves(connections_max: usize) -> usize {
    connections_max + connections_max / EXTRA_PARTS
}

fn busy_us_per_turn(turns_per_second: u64, idle_permille: u64) -> u64 {
    (1000 - idle_permille.min(1000)) * 1000 / turns_per_second.max(1)
}

impl Service {
    /// Updates the rates to `now_ms`.
    fn sum_up(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.decided_ms).max(1);
        self.decided_ms = now_ms;
        let weight = (passed_ms as f64 / RATE_MEMORY_MS as f64).min(1.0);
        let rate = self.turns as f64 * 1000.0 / passed_ms as f64;
        let idle = (self.idle_us as f64 / passed_ms as f64).min(1000.0);
        self.turns_per_second += (rate - self.turns_per_second) * weight;
        self.idle_permille += (idle - self.idle_permille) * weight;
        (self.turns, self.idle_us) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::mailbox::Message;
    use crate::Peer;
    use crate::entry::Entry;
    use crate::workers::{WorkerHandle, WorkerTable};

    fn connection() -> Entry {
        Entry::new(UnixStream::pair().unwrap().0.into(), Peer::Unix, 0, 0)
    }

    /// Sends connections to the other worker while it has room; returns their number.
    fn fill(me: &WorkerHandle, sibling: &WorkerHandle) -> usize {
        let sends = || {
            // The sibling runs, but does not come to its mailbox.
            sibling.note_connections(0, 0);
            me.has_room(1, 16) && me.send_open(&connection(), false, 1, 16).is_ok()
        };
        (0..40).take_while(|_| sends()).count()
    }

    #[test]
    fn connections_in_the_mailbox_count_whatever_the_worker_reports() {
        let group = WorkerTable::new(2).unwrap();
        let (me, sibling) = (group.handle(0), group.handle(1));
        assert_eq!(fill(&me, &sibling), 18);
        assert_eq!(sibling.connections(), 18, "the worker itself accepts no more");
        assert!(
            me.send_open(&connection(), false, 1, 16).is_err(),
            "without a look at the room, too"
        );
    }

    #[test]
    fn connections_that_leave_the_mailbox_of_a_dead_worker_count_no_longer() {
        let group = WorkerTable::new(2).unwrap();
        let (me, sibling) = (group.handle(0), group.handle(1));
        assert_eq!(fill(&me, &sibling), 18);
        drop(sibling);
        group.mark_dead(1);
        let sibling = group.handle(1);
        assert_eq!(sibling.connections(), 0);
        let arrived = std::iter::from_fn(|| group.handover().receive(&mut [0; 64], 0).unwrap());
        assert_eq!(arrived.count(), 18);
        assert_eq!(fill(&me, &sibling), 18);
        // The next worker finds what was sent after the last sweep.
        let next = group.handle(1);
        assert_eq!(next.connections(), 18);
        let receive = || next.mailbox().receive(&mut [0; 64], 0).unwrap();
        assert!(matches!(receive(), Some(Message::Connection(_))));
    }

    #[test]
    fn a_worker_that_is_full_takes_a_few_more_and_then_none() {
        let group = WorkerTable::new(2).unwrap();
        let (me, sibling) = (group.handle(0), group.handle(1));
        for (open, has_room) in [(0, true), (16, true), (17, true), (18, false), (99, false)] {
            sibling.note_connections(open, 0);
            assert_eq!(me.has_room(1, 16), has_room, "{open} are open");
        }
    }
}
