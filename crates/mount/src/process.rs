//! The processes of a mount.
//!
//! The [`launcher`] starts the [`supervisor`]. That mounts, and starts the [`worker`] again when it dies. They send
//! each other the messages of [`ipc`], over a [`channel`] that also passes descriptors.

mod channel;
mod daemon;
mod ipc;
mod launcher;
mod spawn;
mod supervisor;
mod worker;

pub(crate) use channel::Channel;
pub(crate) use daemon::Daemon;
pub(crate) use ipc::Event;
pub use launcher::{run_inner, start};
pub use spawn::INNER_VERB;
