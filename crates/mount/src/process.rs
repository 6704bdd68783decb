//! The processes of a mount.
//!
//! The [`launcher`] starts the [`supervisor`], which mounts and starts the [`worker`] again when it dies. They tell each
//! other what [`ipc`] lists, over a [`channel`] that passes descriptors on.

mod channel;
mod daemon;
mod ipc;
mod launcher;
mod spawn;
mod supervisor;
mod worker;

pub(crate) use channel::Channel;
pub(crate) use daemon::Daemon;
pub(crate) use ipc::Report;
pub use launcher::{run_inner, start};
pub use spawn::INNER_VERB;
