//! One worker's part in a fleet.

use std::sync::Arc;

use rustix::io::Errno;

use super::balance::{self, Move, PERIOD_MS};
use super::mailbox::{Mailbox, Outlet};
use super::table::{Load, LoadTable, Row};
use crate::connection::Connection;

/// Memory of a rate: after so long, what was before counts a third.
const RATE_MEMORY_MS: u64 = 160;

/// A connection that waits is sent to a worker without work only if it would wait so long here.
const WAIT_US_MIN: u64 = 250;

/// A worker's part in a fleet.
#[derive(Debug)]
pub struct Member {
    index: usize,
    table: Arc<LoadTable>,
    mailbox: Mailbox,
    outlets: Vec<Outlet>,
    service: Service,
    /// Room for all loads.
    loads: Vec<Load>,
}

/// What this worker has done lately.
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

impl Member {
    pub(super) fn new(
        index: usize,
        table: Arc<LoadTable>,
        mailbox: Mailbox,
        outlets: Vec<Outlet>,
    ) -> Self {
        table.row(index).enter();
        let service = Service { idle_permille: 1000.0, ..Service::default() };
        Self { index, table, mailbox, outlets, service, loads: Vec::new() }
    }

    pub(crate) fn mailbox(&self) -> &impl std::os::fd::AsFd {
        &self.mailbox
    }

    /// The next connection that another worker has sent.
    ///
    /// # Errors
    /// `EMFILE` if there was one, and no descriptor is left for it.
    pub(crate) fn receive(&self, now_ms: u64) -> Result<Option<Connection>, Errno> {
        self.mailbox.receive(now_ms)
    }

    /// Sends a new connection to the worker with the least to do; it comes back if that is this one.
    pub(crate) fn place(
        &mut self,
        connection: Connection,
        connections_max: usize,
    ) -> Option<Connection> {
        self.look();
        let target = balance::placement(&self.loads, self.index, connections_max as u64);
        if target == self.index || self.send(&connection, false, target).is_err() {
            self.row().expect_connection(false);
            return Some(connection);
        }
        None
    }

    /// Connections that are here, or on their way.
    pub(crate) fn connections(&self) -> usize {
        usize::try_from(self.row().load().connections).unwrap_or(usize::MAX)
    }

    /// Notes a turn of a connection.
    pub(crate) fn note_turn(&mut self) {
        self.service.turns += 1;
        self.row().set_absent(false);
    }

    /// Notes that nobody serves here for now: the others send nothing until the next turn.
    pub(crate) fn note_absence(&self) {
        self.row().set_absent(true);
    }

    /// Another worker that would serve a connection which waits here, if there is one.
    pub(crate) fn refuge(&mut self, connections_max: usize) -> Option<usize> {
        self.look();
        let target = balance::placement(&self.loads, self.index, connections_max as u64);
        (target != self.index).then_some(target)
    }

    /// Notes that there is nothing to do, or that there is again.
    pub(crate) fn note_waiting(&self, is_waiting: bool) {
        self.row().set_waiting(is_waiting);
    }

    /// Notes how long there was nothing to do.
    pub(crate) fn note_idle(&mut self, idle_us: u64) {
        self.service.idle_us += idle_us;
    }

    /// Tells the others how many connections are open here, and how many of them are active.
    pub(crate) fn note_connections(&self, connections: usize, active: u64) {
        self.row().set_connections(connections as u64, active);
    }

    pub(crate) fn drain(&self) {
        self.row().drain();
    }

    /// What to do about the load, once every period.
    pub(crate) fn decide(&mut self, now_ms: u64) -> Move {
        if now_ms < self.service.decided_ms + PERIOD_MS {
            return Move::Stay;
        }
        self.service.sum_up(now_ms);
        let service = &self.service;
        let (rate, idle) = (service.turns_per_second as u64, service.idle_permille as u64);
        self.row().set_service(rate, idle);
        self.look();
        balance::decide(&self.loads, self.index)
    }

    /// Whether another worker says that it has nothing to do.
    pub(crate) fn sees_idle_worker(&self) -> bool {
        self.others().any(|row| row.is_waiting())
    }

    /// A worker without work that a connection may be sent to, if it would wait long enough here:
    /// `waiting` connections wait, and the last turns took `turn_us` each.
    pub(crate) fn idle_worker(&self, waiting: usize, turn_us: u64) -> Option<usize> {
        if waiting < 2 || waiting as u64 * turn_us < WAIT_US_MIN {
            return None;
        }
        let others = (0..self.table.len()).filter(|index| *index != self.index);
        others.into_iter().find(|index| {
            let row = self.table.row(*index);
            row.load().is_serving && row.claim_waiting()
        })
    }

    fn others(&self) -> impl Iterator<Item = Row<'_>> {
        let others = (0..self.table.len()).filter(|index| *index != self.index);
        others.map(|index| self.table.row(index))
    }

    /// Sends a connection away. The socket here is to be dropped after that.
    ///
    /// # Errors
    /// The other worker's mailbox is full.
    pub(crate) fn send(
        &self,
        connection: &Connection,
        is_active: bool,
        target: usize,
    ) -> Result<(), Errno> {
        self.outlets[target].send(connection)?;
        self.table.row(target).expect_connection(is_active);
        Ok(())
    }

    fn row(&self) -> Row<'_> {
        self.table.row(self.index)
    }

    fn look(&mut self) {
        let rows = (0..self.table.len()).map(|index| self.table.row(index).load());
        self.loads.clear();
        self.loads.extend(rows);
    }
}

impl Service {
    /// Brings the rates up to now.
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
