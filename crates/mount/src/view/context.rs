//! The context of one request.

use thruway_fuse::{Reply, Request};

use super::state::View;
use crate::actor::Actor;
use crate::inodes::InodeId;

/// One request, and all that its operation needs.
pub(super) struct Context<'a> {
    pub(super) view: &'a View,
    /// The credentials of the thread.
    pub(super) actor: &'a mut Actor,
    pub(super) request: &'a Request<'a>,
    pub(super) reply: &'a mut Reply,
}

impl Context<'_> {
    /// The inode of the request: for operations on names, the folder.
    pub(super) fn inode(&self) -> InodeId {
        InodeId(self.request.inode)
    }
}
