//! Several engines on the same listeners: workers, in processes or threads.
//!
//! A connection belongs to one worker, and moves to another one when that makes service more equal. An
//! accepted socket goes to the worker that has least to do; a connection that waits moves to a worker
//! that has nothing to do; and while connections of one worker are served faster than those of another,
//! because processors are never shared out evenly, the two exchange connections, so that each of them has
//! its time with the faster one.
//!
//! Reading order: `table` (what workers know of each other), `balance` (what follows from it, without any
//! input or output), `mailbox` (how a connection moves), `member` (one worker's part in it).

mod balance;
mod board;
mod mailbox;
mod member;
mod table;

use std::sync::Arc;

pub(crate) use balance::Move;
pub use board::{Board, UNSURE};
pub(crate) use mailbox::Letter;
pub use member::Member;

use crate::Error;
use mailbox::{Mailbox, Outlet};
use table::LoadTable;

/// What all workers share. It is made before they are forked, or started.
#[derive(Debug)]
pub struct Fleet {
    table: Arc<LoadTable>,
    mailboxes: Vec<(Mailbox, Outlet)>,
}

impl Fleet {
    /// A fleet of so many workers.
    ///
    /// # Errors
    /// The system has no memory or no descriptors left.
    pub fn new(workers: usize) -> Result<Self, Error> {
        let table = LoadTable::new(workers)
            .map_err(|error| Error::system("make memory that workers share", error))?;
        let mailboxes = (0..workers).map(|_| mailbox::pair()).collect::<Result<_, _>>()?;
        Ok(Self { table: Arc::new(table), mailboxes })
    }

    /// The part of worker `index`; it may be taken again by one that takes the place of a dead worker.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn member(&self, index: usize) -> Result<Member, Error> {
        let failed = |error| Error::system("join the other workers", error);
        let (mailbox, _) = &self.mailboxes[index];
        let mailbox = mailbox.try_clone().map_err(failed)?;
        let outlets = self.mailboxes.iter().map(|(_, outlet)| outlet.try_clone());
        let outlets = outlets.collect::<Result<_, _>>().map_err(failed)?;
        Ok(Member::new(index, Arc::clone(&self.table), mailbox, outlets))
    }

    /// Notes that worker `index` is dead: nothing is sent to it until it is back.
    pub fn bury(&self, index: usize) {
        self.table.row(index).vacate();
    }
}
