//! A folder for look-ups: one of a source, or merged of several.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::branches::Merged;
use crate::inodes::InodeId;

/// A folder for look-ups.
pub(super) struct Folder {
    pub(super) id: InodeId,
    /// Changes in it are reported.
    pub(super) is_watched: bool,
    pub(super) parts: Parts,
}

pub(super) enum Parts {
    One(BranchDir),
    Merged(Arc<Merged>),
}

/// A folder of one source.
#[derive(Debug, Clone)]
pub(super) struct BranchDir {
    pub(super) branch: u16,
    pub(super) fd: Arc<OwnedFd>,
}

impl Folder {
    /// The merged folder, if it has several parts.
    pub(super) fn merged(&self) -> Option<&Arc<Merged>> {
        match &self.parts {
            Parts::Merged(merged) if merged.is_merged() => Some(merged),
            _ => None,
        }
    }
}
