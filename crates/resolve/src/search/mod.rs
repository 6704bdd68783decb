//! The search for a command among its candidates, in the order given by a system's rules.
//!
//! The candidates of a name are each base (an entry of `PATH`) × each suffix. [`Rules`] determine both and
//! their order. A [`Plan`] is the list of candidates, before any query. A [`Search`] sends as few queries as
//! possible to a [`Lister`], and yields existing candidates one at a time, since a start may have to continue
//! with the next one.
//!
//! Reading order: `rules`, `plan`, then this file, `lister`, and the listers: `posix`, [`nt`], `tree`, and
//! `listings` and `watched`, which cache the answers of another one.

mod bases;
#[cfg(target_os = "linux")]
mod inotify;
#[cfg(any(target_os = "linux", windows))]
mod interests;
#[cfg(unix)]
mod interpreter;
mod lister;
mod listings;
#[cfg(target_os = "linux")]
mod mounts;
pub mod nt;
mod plan;
#[cfg(unix)]
mod posix;
mod rules;
#[cfg(target_os = "linux")]
mod tree;
mod watch_index;

pub use bases::Bases;
#[cfg(target_os = "linux")]
pub use inotify::Inotify;
pub use lister::{Hits, Lister, LookupFailure, Obstacle, SCRIPTS_MAX};
pub use listings::{ENTRIES_MAX, FOLDERS_MAX, FolderStamp, Folders, Listings};
pub use nt::Nt;
pub use plan::{Places, Plan, Query};
#[cfg(unix)]
pub use posix::Posix;
pub use rules::{EXEC_PASSED_OVER, PATH_EXT, Rules, SUFFIXES_MAX, suffix_of};
#[cfg(target_os = "linux")]
pub use tree::Tree;
pub use watch_index::{Watch, WatchIndex};

use crate::Error;

/// A candidate that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The path: base, name and suffix.
    pub path: Vec<u8>,
    /// The index of the base in the plan.
    pub base: usize,
    /// The index of the suffix among the wanted ones.
    pub suffix: usize,
}

/// A search in progress. After an error, the search is over.
#[derive(Debug)]
pub struct Search<'a, L> {
    plan: &'a Plan,
    lister: &'a mut L,
    base: usize,
    pending: Hits,
    denied: Vec<Vec<u8>>,
}

impl<'a, L: Lister> Search<'a, L> {
    /// Creates a search. No query is sent before the first candidate is requested.
    pub fn new(plan: &'a Plan, lister: &'a mut L) -> Self {
        Self { plan, lister, base: 0, pending: Hits::default(), denied: Vec::new() }
    }

    /// The candidates that could not be examined or must not be executed, and that the rules skip.
    #[must_use]
    pub fn denied(&self) -> &[Vec<u8>] {
        &self.denied
    }

    /// Returns the reason why a candidate does not start, as far as its interpreters are concerned.
    pub fn obstacle(&mut self, found: &Match) -> Option<Obstacle> {
        self.lister.obstacle(&found.path)
    }

    /// Queries bases until one holds a candidate.
    fn advance(&mut self) -> Result<(), Error> {
        let bases = self.plan.bases();
        while self.pending.is_empty() && self.base < bases.len() {
            let query = self.plan.query();
            self.base = self.lister.skip_to(bases, self.base, query);
            let Some(base) = bases.get(self.base) else { break };
            match self.lister.look(base, query) {
                Ok(hits) => self.pending = hits,
                Err(LookupFailure::Missing) => {}
                Err(LookupFailure::Denied) => self.denied.push(self.plan.path(self.base, 0)),
                Err(LookupFailure::Failed(_)) if self.plan.rules().goes_on_after_failure() => {}
                Err(LookupFailure::Failed(code)) => {
                    let path = self.plan.path(self.base, 0);
                    self.base = bases.len();
                    return Err(Error::code("look at", &path, code));
                }
            }
            if self.pending.is_empty() {
                self.base += 1;
            }
        }
        Ok(())
    }
}

impl<L: Lister> Iterator for Search<'_, L> {
    type Item = Result<Match, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.advance() {
            return Some(Err(error));
        }
        let suffix = self.pending.pop()?;
        let (base, path) = (self.base, self.plan.path(self.base, suffix));
        if self.pending.is_empty() {
            self.base += 1;
        }
        Some(Ok(Match { path, base, suffix }))
    }
}
