//! Several engines on the same listeners: workers, as processes or threads.
//!
//! A connection belongs to one worker. An accepted socket goes to the worker with the least load. A waiting request
//! moves as the policy of the queue decides (see `queue`). Where turns are too short for such moves, workers exchange
//! connections while one worker serves its own faster than another: the scheduler never shares processors out evenly.
//!
//! Reading order:
//!
//! 1. `load_table`: the loads that workers read of each other. `connection_count`: the limit that holds for connections
//!    on their way, too. `board`: the reports of a worker's threads.
//! 2. `balance`: the consequences for new connections and short turns.
//! 3. `mailbox` and `ends`: the move of a connection. `handover`: the move out of a retiring worker.
//! 4. `handle`: one worker's part. `siblings`: the loads of all workers for the page of metrics.
//! 5. `faulty_peers`: clients whose input has ended a connection, known to all workers.

mod balance;
mod board;
mod connection_count;
mod ends;
pub(crate) mod faulty_peers;
mod handle;
mod handover;
mod load_table;
mod mailbox;
mod siblings;
mod untaken;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

pub(crate) use balance::Move;
pub use board::{Board, UNSURE};
use handle::SharedTables;
pub use handle::WorkerHandle;
pub use handover::{Handover, VERSION};
pub(crate) use mailbox::{MESSAGE_BYTES, Message, read_message, write_message};
pub(crate) use siblings::Siblings;

use thruway_tls::{Automatic, TicketKeys};

use crate::Error;
use crate::events::clock::monotonic_us;
use crate::listen::bind::Bind;
use crate::metrics::{MetricsTable, Snapshot};
use crate::queue::client_turns::ClientTurns;
use crate::workers::faulty_peers::FaultyPeers;
use ends::Ends;
use load_table::LoadTable;

/// The memory and the mailboxes that all workers share, created before they fork or start.
#[derive(Debug)]
pub struct WorkerTable {
    table: Arc<LoadTable>,
    ends: Arc<Ends>,
    client_turns: Arc<ClientTurns>,
    faulty_peers: Arc<FaultyPeers>,
    metrics: Arc<MetricsTable>,
    ticket_keys: Arc<TicketKeys>,
    cache: OnceLock<Arc<thruway_cache::Store>>,
    automatic: OnceLock<Automatic>,
}

impl WorkerTable {
    /// Creates a group of `workers` workers.
    ///
    /// # Errors
    /// The system has no memory or no descriptors left.
    pub fn new(workers: usize) -> Result<Self, Error> {
        Self::with(workers, Handover::new()?, None)
    }

    /// Creates a group of workers that continues an older one: with the mailbox through which the older group hands
    /// over its connections, and the file of its session ticket keys.
    ///
    /// # Errors
    /// The system has no memory or no descriptors left.
    pub fn with(
        workers: usize,
        handover: Handover,
        ticket_keys: Option<OwnedFd>,
    ) -> Result<Self, Error> {
        let table = LoadTable::new(workers)
            .map_err(|error| Error::system("make memory that workers share", error))?;
        let mailboxes = (0..workers).map(|_| mailbox::pair()).collect::<Result<_, _>>()?;
        let inherited = ticket_keys.and_then(|file| TicketKeys::from_file(file).ok());
        let ticket_keys = inherited.map_or_else(new_ticket_keys, |keys| Ok(Arc::new(keys)))?;
        let (client_turns, faulty_peers) = (new_client_turns()?, new_faulty_peers()?);
        let ends = Arc::new(Ends { mailboxes, handover });
        let metrics = new_metrics(workers)?;
        let table = Arc::new(table);
        Ok(Self {
            table,
            ends,
            client_turns,
            faulty_peers,
            metrics,
            ticket_keys,
            cache: OnceLock::new(),
            automatic: OnceLock::new(),
        })
    }

    /// Registers the certificates that an ACME agent keeps for a listener, so that the statistics report them. There is
    /// at most one agent.
    pub fn report_certificates_of(&self, bind: &Bind) {
        if let Some(automatic) = bind.tls.as_ref().and_then(|tls| tls.automatic.clone()) {
            self.automatic.get_or_init(|| automatic);
        }
    }

    /// Creates the response cache of all workers whose handles are created later. There is at most one cache.
    ///
    /// # Errors
    /// The system has no memory left.
    pub fn make_cache(&self, limits: thruway_cache::Limits) -> Result<(), Error> {
        let cache = new_cache(limits)?;
        self.cache.get_or_init(|| cache);
        Ok(())
    }

    /// Returns the response cache, if there is one.
    #[must_use]
    pub fn cache(&self) -> Option<&thruway_cache::Store> {
        self.cache.get().map(Arc::as_ref)
    }

    /// Creates the handle of worker `index`. A worker that replaces a dead one creates the same handle again.
    #[must_use]
    pub fn handle(&self, index: usize) -> WorkerHandle {
        let shared = SharedTables {
            table: Arc::clone(&self.table),
            client_turns: Arc::clone(&self.client_turns),
            faulty_peers: Arc::clone(&self.faulty_peers),
            metrics: Arc::clone(&self.metrics),
            ticket_keys: Arc::clone(&self.ticket_keys),
            ends: Arc::clone(&self.ends),
            cache: self.cache.get().map(Arc::clone),
        };
        WorkerHandle::new(index, shared)
    }

    /// Returns the mailbox that the next server takes over.
    #[must_use]
    pub fn handover(&self) -> &Handover {
        &self.ends.handover
    }

    /// The file of the session ticket keys, for the next group.
    #[must_use]
    pub fn ticket_keys(&self) -> BorrowedFd<'_> {
        self.ticket_keys.as_fd()
    }

    /// Returns the counters of all workers, as JSON.
    #[must_use]
    pub fn stats(&self) -> String {
        let siblings = Siblings::new(None, Arc::clone(&self.table));
        let mut snapshot = Snapshot::read(&self.metrics, monotonic_us(), |index| {
            siblings.current_load(index).unwrap_or_default()
        });
        snapshot.cache = self.cache().map(thruway_cache::Store::totals);
        snapshot.certificates = self.automatic.get().map(Automatic::reports).unwrap_or_default();
        snapshot.json()
    }

    /// Records that worker `index` is dead: nothing is sent to the worker until it is back.
    pub fn mark_dead(&self, index: usize) {
        self.table.row(index).vacate();
        if let Some(cache) = self.cache() {
            cache.release_worker(index);
        }
        self.sweep();
    }

    /// Whether worker `index` accepts connections.
    #[must_use]
    pub fn accepts(&self, index: usize) -> bool {
        self.table.row(index).load().is_serving
    }

    /// Hands over the connections in the mailboxes of dead workers. A sibling may send another one until a moment after
    /// the death, so the caller repeats the call a little later.
    pub fn sweep(&self) {
        for index in (0..self.table.len()).filter(|index| self.table.row(*index).is_vacant()) {
            self.ends.forward(index, self.table.row(index));
        }
    }
}

/// Creates the metrics table of an engine alone or of a group.
pub(crate) fn new_metrics(workers: usize) -> Result<Arc<MetricsTable>, Error> {
    let table = MetricsTable::new(workers);
    table.map(Arc::new).map_err(|error| Error::system("make memory that workers share", error))
}

/// Creates the session ticket keys of an engine alone or of a group.
pub(crate) fn new_ticket_keys() -> Result<Arc<TicketKeys>, Error> {
    let keys = TicketKeys::new();
    keys.map(Arc::new).map_err(|error| Error::system("make keys that workers share", error))
}

/// Creates the response cache of an engine alone or of a group.
pub(crate) fn new_cache(limits: thruway_cache::Limits) -> Result<Arc<thruway_cache::Store>, Error> {
    let cache = thruway_cache::Store::new(limits);
    cache.map(Arc::new).map_err(|error| Error::system("make memory for the cache", error))
}

/// Creates the table of clients' turns of an engine alone or of a group.
pub(crate) fn new_client_turns() -> Result<Arc<ClientTurns>, Error> {
    let turns = ClientTurns::new();
    turns.map(Arc::new).map_err(|error| Error::system("make memory that workers share", error))
}

/// Creates the table of faulty peers of an engine alone or of a group.
pub(crate) fn new_faulty_peers() -> Result<Arc<FaultyPeers>, Error> {
    let peers = FaultyPeers::new();
    peers.map(Arc::new).map_err(|error| Error::system("make memory that workers share", error))
}
