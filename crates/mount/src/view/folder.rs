//! A folder for lookups, either of a single source or merged from several.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::branches::MergedFolder;
use crate::inodes::InodeId;

/// A folder for lookups.
pub(super) struct Folder {
    pub(super) id: InodeId,
    /// Whether changes in the folder are reported.
    pub(super) is_watched: bool,
    pub(super) parts: Parts,
}

pub(super) enum Parts {
    One(BranchDir),
    Merged(Arc<MergedFolder>),
}

/// A folder of a single source.
#[derive(Debug, Clone)]
pub(super) struct BranchDir {
    pub(super) branch: u16,
    pub(super) fd: Arc<OwnedFd>,
}

impl Folder {
    /// Returns the merged folder, if the folder has several parts.
    pub(super) fn merged(&self) -> Option<&Arc<MergedFolder>> {
        match &self.parts {
            Parts::Merged(merged) if merged.is_merged() => Some(merged),
            _ => None,
        }
    }
}
