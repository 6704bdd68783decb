//! One queue over all workers: which request is served next, and by which worker.
//!
//! [`RunQueue`](run_queue::RunQueue) is the order within a worker. [`policy`] decides which worker serves a waiting
//! request. If clients take turns instead of connections, [`client_queue`] keeps one request of each client in the run
//! queue, and [`client_turns`] tells the workers of each other's turns. All take the time as an argument, and none does
//! any I/O.
//!
//! Reading order: `run_queue`, `mean_interval`, `policy`, then `client_turns`, `client_queue`, `queue_position`, and
//! `waits` for limits on the time that a request may wait. `simulation` tests them all.

pub(crate) mod client_queue;
pub(crate) mod client_turns;
pub(crate) mod mean_interval;
pub(crate) mod policy;
pub(crate) mod queue_position;
pub(crate) mod run_queue;
#[cfg(test)]
mod simulation;
pub(crate) mod waits;
