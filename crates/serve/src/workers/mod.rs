//! Several engines on the same listeners: workers, in processes or threads.
//!
//! A connection belongs to one worker. An accepted socket goes to the worker that has least to do. A request that waits
//! moves as the policy of the queue decides (see `queue`). Where turns are too short for that, workers exchange
//! connections while one serves its own faster than another: the scheduler never shares processors out evenly.
//!
//! Reading order: `load_table` (what workers know of each other), `board` (what a worker's threads tell). `balance`
//! (what follows for new connections and short turns), `mailbox` (how a connection moves), `handle` (one worker's
//! part).

mod balance;
mod board;
mod handle;
mod load_table;
mod mailbox;
mod siblings;

use std::sync::Arc;

pub(crate) use balance::Move;
pub use board::{Board, UNSURE};
use handle::Shared;
pub use handle::WorkerHandle;
pub(crate) use mailbox::Message;
pub(crate) use siblings::Siblings;

use thruway_tls::TicketKeys;

use crate::Error;
use crate::clock::monotonic_us;
use crate::metrics::{MetricsTable, Snapshot};
use crate::queue::client_turns::ClientTurns;
use load_table::LoadTable;
use mailbox::{Mailbox, MailboxSender};

/// What all workers share. It is made before they are forked, or started.
#[derive(Debug)]
pub struct WorkerGroup {
    table: Arc<LoadTable>,
    mailboxes: Vec<(Mailbox, MailboxSender)>,
    client_turns: Arc<ClientTurns>,
    metrics: Arc<MetricsTable>,
    ticket_keys: Arc<TicketKeys>,
}

impl WorkerGroup {
    /// A group of so many workers.
    ///
    /// # Errors
    /// The system has no memory or no descriptors left.
    pub fn new(workers: usize) -> Result<Self, Error> {
        let table = LoadTable::new(workers)
            .map_err(|error| Error::system("make memory that workers share", error))?;
        let mailboxes = (0..workers).map(|_| mailbox::pair()).collect::<Result<_, _>>()?;
        let (client_turns, ticket_keys) = (new_client_turns()?, new_ticket_keys()?);
        let metrics = new_metrics(workers)?;
        Ok(Self { table: Arc::new(table), mailboxes, client_turns, metrics, ticket_keys })
    }

    /// The part of worker `index`. A worker that replaces a dead one takes it again.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn handle(&self, index: usize) -> Result<WorkerHandle, Error> {
        let failed = |error| Error::system("join the other workers", error);
        let (mailbox, _) = &self.mailboxes[index];
        let mailbox = mailbox.try_clone().map_err(failed)?;
        let senders = self.mailboxes.iter().map(|(_, sender)| sender.try_clone());
        let senders = senders.collect::<Result<_, _>>().map_err(failed)?;
        let shared = Shared {
            table: Arc::clone(&self.table),
            client_turns: Arc::clone(&self.client_turns),
            metrics: Arc::clone(&self.metrics),
            ticket_keys: Arc::clone(&self.ticket_keys),
        };
        Ok(WorkerHandle::new(index, shared, mailbox, senders))
    }

    /// What all workers have counted, as JSON.
    #[must_use]
    pub fn stats(&self) -> String {
        let siblings = Siblings::new(None, Arc::clone(&self.table));
        Snapshot::read(&self.metrics, monotonic_us(), |index| {
            siblings.present(index).unwrap_or_default()
        })
        .json()
    }

    /// Notes that worker `index` is dead: nothing is sent to it until it is back.
    pub fn mark_dead(&self, index: usize) {
        self.table.row(index).vacate();
    }
}

/// A table of what workers count, for an engine alone or for a group.
pub(crate) fn new_metrics(workers: usize) -> Result<Arc<MetricsTable>, Error> {
    let table = MetricsTable::new(workers);
    table.map(Arc::new).map_err(|error| Error::system("make memory that workers share", error))
}

/// The keys of session tickets, for an engine alone or for a group.
pub(crate) fn new_ticket_keys() -> Result<Arc<TicketKeys>, Error> {
    let keys = TicketKeys::new();
    keys.map(Arc::new).map_err(|error| Error::system("make keys that workers share", error))
}

/// A table of clients' turns, for an engine alone or for a group.
pub(crate) fn new_client_turns() -> Result<Arc<ClientTurns>, Error> {
    let turns = ClientTurns::new();
    turns.map(Arc::new).map_err(|error| Error::system("make memory that workers share", error))
}
