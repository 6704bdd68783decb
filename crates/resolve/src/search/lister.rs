//! The interface through which a search queries a file system.

use super::{Bases, Query};

/// A file system as seen by a search, which may also be an index in memory.
pub trait Lister {
    /// Returns which of the wanted names `base` holds.
    ///
    /// # Errors
    /// The reason why there is no answer.
    fn look(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure>;

    /// Returns the index of the first base from `from` on that may hold a wanted name. Without any knowledge,
    /// returns `from`.
    fn skip_to(&mut self, _bases: &Bases, from: usize, _query: &Query) -> usize {
        from
    }

    /// The number of file system queries so far.
    fn lookups(&self) -> u64;

    /// Returns the reason why the file at `path` does not start, as far as its interpreters are concerned.
    /// Meant for a file that was found; does not count as a look-up.
    fn obstacle(&mut self, _path: &[u8]) -> Option<Obstacle> {
        None
    }
}

impl<L: Lister + ?Sized> Lister for Box<L> {
    fn look(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        (**self).look(base, query)
    }

    fn skip_to(&mut self, bases: &Bases, from: usize, query: &Query) -> usize {
        (**self).skip_to(bases, from, query)
    }

    fn lookups(&self) -> u64 {
        (**self).lookups()
    }

    fn obstacle(&mut self, path: &[u8]) -> Option<Obstacle> {
        (**self).obstacle(path)
    }
}

/// The most scripts that may be interpreters of each other in Linux (`exec_binprm` in `fs/exec.c`).
pub const SCRIPTS_MAX: usize = 5;

/// The reason why an executable file does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// This interpreter does not exist; `execvp` tries the next candidate.
    Missing(Vec<u8>),
    /// This interpreter must not be executed: it is not a regular file, lacks permission, or is mounted
    /// `noexec`. `execvp` tries the next candidate.
    Denied(Vec<u8>),
    /// The chain of interpreters has more than [`SCRIPTS_MAX`] scripts; `execvp` gives up.
    Nested,
    /// This interpreter cannot be examined, with the system's error number; `execvp` gives up.
    Failed(Vec<u8>, i32),
}

impl Obstacle {
    /// Whether `execvp` tries the next candidate.
    #[must_use]
    pub fn is_passed_over(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::Denied(_))
    }
}

/// The reason why a lister has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupFailure {
    /// The folder does not exist.
    Missing,
    /// The folder must not be read or searched, or the file must not be executed.
    Denied,
    /// Any other reason, with the system's error number.
    Failed(i32),
}

/// The indexes of suffixes that were found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits(u64);

impl Hits {
    /// Adds the suffix at `place`, which must be less than 64: there are at most 63 suffixes and the bare
    /// stem.
    pub fn add(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    /// Whether no suffix was found.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Removes and returns the first suffix in the order of the rules.
    pub fn pop(&mut self) -> Option<usize> {
        let first = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(first)
    }
}
