//! The roots of the sources, which appear and disappear as file systems are mounted and unmounted.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::io::Errno;

use crate::sources::{Absence, Place};

/// The root of a source that is present.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) fd: Arc<OwnedFd>,
    /// The folder's place; `None` for a source that stays as it was when the mount was made.
    pub(crate) place: Option<Place>,
    /// Whether the source is a whole file system, at its mount point.
    pub(crate) is_whole: bool,
}

/// The roots of all sources, by branch.
#[derive(Debug)]
pub(crate) struct Roots {
    all: RwLock<Vec<Result<Root, Absence>>>,
}

impl Roots {
    pub(crate) fn new(all: Vec<Result<Root, Absence>>) -> Self {
        Self { all: RwLock::new(all) }
    }

    /// Returns a copy of all roots.
    pub(crate) fn all(&self) -> Vec<Result<Root, Absence>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn replace(&self, all: Vec<Result<Root, Absence>>) {
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// Returns the root of this branch.
    pub(crate) fn get(&self, branch: u16) -> Result<Arc<OwnedFd>, Errno> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        match all.get(usize::from(branch)).ok_or(Errno::STALE)? {
            Ok(root) => Ok(Arc::clone(&root.fd)),
            Err(_) => Err(Errno::NODEV),
        }
    }

    /// Returns the first root that is present, which is the root of the mount.
    pub(crate) fn first(&self) -> Result<Arc<OwnedFd>, Errno> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().flatten().next().map(|root| Arc::clone(&root.fd)).ok_or(Errno::NODEV)
    }

    /// Returns the roots that are present, with their branches.
    pub(crate) fn present(&self) -> Vec<(u16, Arc<OwnedFd>)> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let with_branch = |(branch, root): (usize, &Result<Root, Absence>)| {
            let fd = Arc::clone(&root.as_ref().ok()?.fd);
            Some((u16::try_from(branch).ok()?, fd))
        };
        all.iter().enumerate().filter_map(with_branch).collect()
    }

    /// Returns the branches that are absent, and why.
    pub(crate) fn absent(&self) -> Vec<(usize, Absence)> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .enumerate()
            .filter_map(|(at, root)| Some((at, root.as_ref().err().copied()?)))
            .collect()
    }
}
