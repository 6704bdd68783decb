//! A folder that names are looked up in: one folder of a source, or several merged.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::branches::Merged;
use crate::inodes::InodeId;

/// A folder that names are looked up in.
pub(super) struct Folder {
    pub(super) id: InodeId,
    /// We are told what others change in it.
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
    pub(super) place: Arc<OwnedFd>,
}

impl Folder {
    /// The folder if its names are merged from several sources.
    pub(super) fn merged(&self) -> Option<&Arc<Merged>> {
        match &self.parts {
            Parts::Merged(merged) if merged.is_merged() => Some(merged),
            _ => None,
        }
    }
}

pub(super) fn branch_number(branch: usize) -> u16 {
    // `supervisor` lets in as many sources as there are numbers.
    u16::try_from(branch).unwrap_or(u16::MAX)
}
