//! The roots of the sources, which appear and disappear as file systems are mounted and unmounted, and as sources are
//! added and removed.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rustix::io::Errno;

use crate::source_spec::{SourceAccess, SourceSpec};
use crate::source_table::SourceTable;
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
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    roots: Vec<Result<Root, Absence>>,
    table: SourceTable,
}

impl Roots {
    pub(crate) fn new(roots: Vec<Result<Root, Absence>>, table: SourceTable) -> Self {
        Self { state: RwLock::new(State { roots, table }) }
    }

    /// Returns a copy of all roots.
    pub(crate) fn all(&self) -> Vec<Result<Root, Absence>> {
        self.read().roots.clone()
    }

    /// Returns a copy of the table of sources.
    pub(crate) fn table(&self) -> SourceTable {
        self.read().table.clone()
    }

    /// Replaces the roots along with the table that they belong to.
    pub(crate) fn replace_all(&self, roots: Vec<Result<Root, Absence>>, table: SourceTable) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State { roots, table };
    }

    /// Returns the root of this branch.
    pub(crate) fn get(&self, branch: u16) -> Result<Arc<OwnedFd>, Errno> {
        match self.read().roots.get(usize::from(branch)).ok_or(Errno::STALE)? {
            Ok(root) => Ok(Arc::clone(&root.fd)),
            Err(_) => Err(Errno::NODEV),
        }
    }

    /// Returns the first root that is present, which is the root of the mount.
    pub(crate) fn first(&self) -> Result<Arc<OwnedFd>, Errno> {
        let state = self.read();
        state.present().next().map(|(_, root)| Arc::clone(&root.fd)).ok_or(Errno::NODEV)
    }

    /// Returns the roots that are present, in the order of precedence, with their branches.
    pub(crate) fn present(&self) -> Vec<(u16, Arc<OwnedFd>)> {
        self.read().present().map(|(branch, root)| (branch, Arc::clone(&root.fd))).collect()
    }

    /// Returns the sources that are absent, and why. Removed ones are not among them.
    pub(crate) fn absent(&self) -> Vec<(SourceSpec, Absence)> {
        let state = self.read();
        let absent = state.table.order.iter().filter_map(|&branch| {
            let absence = state.roots.get(usize::from(branch))?.as_ref().err().copied()?;
            Some((state.table.entries.get(usize::from(branch))?.spec.clone(), absence))
        });
        absent.collect()
    }

    /// Returns the source with this number, unless it was removed.
    pub(crate) fn spec(&self, branch: u16) -> Option<SourceSpec> {
        let state = self.read();
        let entry = state.table.entries.get(usize::from(branch))?;
        (!entry.is_removed).then(|| entry.spec.clone())
    }

    /// Returns what the mount may do in this source.
    pub(crate) fn access(&self, branch: u16) -> SourceAccess {
        let state = self.read();
        state
            .table
            .entries
            .get(usize::from(branch))
            .map(|entry| entry.spec.access)
            .unwrap_or_default()
    }

    /// Fails if files of this source must not be changed.
    pub(crate) fn check_writable(&self, branch: u16) -> Result<(), Errno> {
        match self.access(branch) {
            SourceAccess::ReadOnly => Err(Errno::ROFS),
            SourceAccess::ReadWrite | SourceAccess::NoCreate => Ok(()),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn present(&self) -> impl Iterator<Item = (u16, &Root)> {
        self.table.order.iter().filter_map(|&branch| {
            Some((branch, self.roots.get(usize::from(branch))?.as_ref().ok()?))
        })
    }
}
