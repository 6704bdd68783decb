//! The roles of a server's threads, as a state machine without Ruby.
//!
//! A worker has Ruby threads, one of which leads while the others follow, and one thread unknown to Ruby, the standby.
//! Leading, following, standing in and calling one another are one protocol, and this crate has all of its states and
//! transitions. Its user supplies the interpreter lock, the engine and the clock.
//!
//! Reading order:
//!
//! 1. `leadership`: the leading thread, for use with the interpreter lock held.
//! 2. `shared`: the state that threads read and change without the lock, and the memory ordering of these accesses.
//!    `roster`: the threads that follow, and their permitted number. `load`: the numbers of computing and of waiting
//!    threads.
//! 3. `duty` and `lookout`: when the standby drives the engine, and how it notices a leader that blocks.
//! 4. `waits`, `fibers`: the requests of one thread that wait in fibers.
//! 5. `routes` and `lane`: the requests that compute for long, and the threads that run them. `lock_requests`: how the
//!    other threads get the interpreter lock meanwhile.
//! 6. `model` (tests): the whole protocol under a scheduler that explores interleavings.
#![forbid(unsafe_code)]

mod duty;
mod fibers;
mod lane;
mod leadership;
mod load;
mod lock_requests;
mod lookout;
#[cfg(test)]
mod model;
mod roster;
mod routes;
mod shared;
mod sync;
mod waits;

pub use duty::Bell;
pub use fibers::{FiberTable, ReadyTask, TaskId};
pub use lane::ComputeLane;
pub use leadership::{Decision, Leadership, LookAtLeader, Role, ThreadNumber};
pub use load::{Activity, Load, LoadObserver, UNSURE};
pub use lock_requests::LockRequests;
pub use lookout::Lookout;
pub use roster::{FollowerBell, Limits, WaitOutcome};
pub use routes::{LONG_SLICE_US, Route, Routes};
pub use shared::{AtomicFlag, SharedRoles};
pub use waits::{AwaitedEvent, DeadlineId, Wake};
