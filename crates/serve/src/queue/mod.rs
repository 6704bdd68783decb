//! One queue over all workers: which request is served next, and where.
//!
//! [`RunQueue`](run_queue::RunQueue) is the order within a worker. [`policy`] decides which worker serves what
//! waits. Both are told the time, and neither does any I/O.

pub(crate) mod client_queue;
pub(crate) mod client_turns;
pub(crate) mod mean_interval;
pub(crate) mod policy;
pub(crate) mod run_queue;
#[cfg(test)]
mod simulation;
pub(crate) mod standing;
