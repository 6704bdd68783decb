//! Answers a search's questions, and counts them.

use super::{Bases, Wanted};

/// A file system as a search sees it. What answers from memory is a lister too.
pub trait Lister {
    /// Which of the wanted names `base` holds.
    ///
    /// # Errors
    /// What kept the lister from an answer.
    fn look(&mut self, base: &[u8], wanted: &Wanted) -> Result<Hits, Trouble>;

    /// The first base from `from` on that is worth a look. A lister that knows nothing says `from`.
    fn skip_to(&mut self, _bases: &Bases, from: usize, _wanted: &Wanted) -> usize {
        from
    }

    /// How many questions the file system was asked so far.
    fn lookups(&self) -> u64;

    /// What keeps the file at `path` from starting, as far as its interpreters tell. It is asked of a file that was
    /// found, and is no look-up of the name.
    fn obstacle(&mut self, _path: &[u8]) -> Option<Obstacle> {
        None
    }
}

impl<L: Lister + ?Sized> Lister for Box<L> {
    fn look(&mut self, base: &[u8], wanted: &Wanted) -> Result<Hits, Trouble> {
        (**self).look(base, wanted)
    }

    fn skip_to(&mut self, bases: &Bases, from: usize, wanted: &Wanted) -> usize {
        (**self).skip_to(bases, from, wanted)
    }

    fn lookups(&self) -> u64 {
        (**self).lookups()
    }

    fn obstacle(&mut self, path: &[u8]) -> Option<Obstacle> {
        (**self).obstacle(path)
    }
}

/// Scripts whose interpreter is a script or a program again: Linux follows so many (`exec_binprm` in `fs/exec.c`).
pub const SCRIPTS_MAX: usize = 5;

/// Why a file that was found, and may be run, does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// This interpreter is not there: `execvp` goes on.
    Missing(Vec<u8>),
    /// This interpreter is there and may not be run: it is no file, lacks the right, or its file system is mounted
    /// `noexec`. `execvp` goes on.
    Denied(Vec<u8>),
    /// It is a script whose interpreters are more than [`SCRIPTS_MAX`] scripts: `execvp` gives up.
    Nested,
    /// This interpreter cannot be looked at, with the system's error number: `execvp` gives up.
    Failed(Vec<u8>, i32),
}

impl Obstacle {
    /// Whether `execvp` tries the next candidate.
    #[must_use]
    pub fn is_passed_over(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::Denied(_))
    }
}

/// What keeps a lister from an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// There is no such folder.
    Missing,
    /// The folder may not be read or searched, or what is there may not be run.
    Denied,
    /// Anything else, with the system's error number.
    Failed(i32),
}

/// Places of suffixes that were found, among the wanted ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits(u64);

impl Hits {
    /// Adds the suffix at `place`, which is below 64: there are 63 suffixes at most, and the stem.
    pub fn add(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Takes the first in the order of the rules.
    pub fn pop(&mut self) -> Option<usize> {
        let first = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(first)
    }
}
