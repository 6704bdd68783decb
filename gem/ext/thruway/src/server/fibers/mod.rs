//! Requests that run in fibers, and wait without a thread.
//!
//! Reading order:
//!
//! 1. `scheduler`: the `Fiber::Scheduler` of one thread. The scheduler connects the table of `thruway_roles` with
//!    Ruby's fibers and with the descriptors of `waiter`.
//! 2. `hooks`: the methods that Ruby calls when a fiber would block.
//! 3. `transfers`: the hooks that read and write.
//! 4. `pool`: the fibers of one thread, and the requests for these fibers to run.

mod hooks;
pub(super) mod pool;
pub(super) mod scheduler;
mod transfers;
pub(super) mod waiter;

pub(super) use hooks::define;
