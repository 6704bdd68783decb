//! The processes of a mount.
//!
//! The [`launcher`] starts the [`supervisor`], which mounts the view and starts the [`worker`], again if the worker
//! dies. The processes exchange the messages of [`ipc`] over a [`channel`] that also passes descriptors. [`daemon`]
//! finds the processes of an existing mount.

mod channel;
mod daemon;
mod ipc;
mod launcher;
mod live_sources;
mod spawn;
mod supervisor;
mod worker;

pub(crate) use channel::Channel;
pub(crate) use daemon::Daemon;
pub(crate) use ipc::Event;
pub use launcher::{run_inner, start};
pub use live_sources::SourceChange;
pub use spawn::INNER_VERB;
