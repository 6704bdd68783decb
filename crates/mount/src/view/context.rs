//! The context of a request.

use thruway_fuse::{Reply, Request};

use super::state::View;
use crate::actor::Actor;
use crate::inodes::InodeId;

/// A request, and the state that its operation needs.
pub(super) struct Context<'a> {
    pub(super) view: &'a View,
    /// The credentials of the thread.
    pub(super) actor: &'a mut Actor,
    pub(super) request: &'a Request<'a>,
    pub(super) reply: &'a mut Reply,
}

impl Context<'_> {
    /// Returns the inode of the request. For operations on names, it is the folder.
    pub(super) fn inode(&self) -> InodeId {
        InodeId(self.request.inode)
    }
}
