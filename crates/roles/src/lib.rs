//! The roles of a server's threads, as a state machine without Ruby.
//!
//! A worker has Ruby threads, of which one leads and the others follow, and one thread that Ruby does not know, the
//! standby. Leading, following, standing in, and calling one another are one protocol. All of its states and
//! transitions are here. Its user supplies the interpreter lock, the engine and the clock.
//!
//! Reading order:
//!
//! 1. `leadership`: who leads. It is used with the interpreter lock held.
//! 2. `shared`: what is seen and changed without that lock, and in which order. `roster`: the threads that follow, and
//!    how many there may be. `load`: how many compute and how many wait.
//! 3. `duty` and `lookout`: when the standby stands in, and what it looks out for.
//! 4. `waits`, `fibers`: the requests of one thread that wait in fibers.
//! 5. `model` (tests): all of it under a scheduler that explores interleavings.
#![forbid(unsafe_code)]

mod duty;
mod fibers;
mod leadership;
mod load;
mod lookout;
#[cfg(test)]
mod model;
mod roster;
mod shared;
mod sync;
mod waits;

pub use duty::Bell;
pub use fibers::{FiberTable, ReadyTask, TaskId};
pub use leadership::{Decision, Leadership, LookAtLeader, Role, ThreadNumber};
pub use load::{Activity, Load, LoadObserver, UNSURE};
pub use lookout::Lookout;
pub use roster::{FollowerBell, Limits, WaitOutcome};
pub use shared::{AtomicFlag, SharedRoles};
pub use waits::{AwaitedEvent, DeadlineId, Wake};
