//! Whether the answers to a boot's queries would be the same now.

use std::num::NonZero;

use rustix::fs::FileType;
use thruway_sys::signal::Mask;

use super::observation::{Level, NamesDigest, Observation, State, content_at, look, names};

/// The queries of a boot, with the answers that it received.
#[derive(Debug, Default)]
pub struct BootQueries {
    pub(super) checks: Vec<Check>,
}

/// A query to repeat, with its answer.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) path: Box<[u8]>,
    pub(super) follows: bool,
    pub(super) observation: Observation,
    pub(super) names: Option<NamesDigest>,
}

impl BootQueries {
    /// Returns the number of queries to repeat.
    #[must_use]
    pub fn len(&self) -> usize {
        self.checks.len()
    }

    /// Whether there are no queries to repeat.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.checks.is_empty()
    }

    /// Returns the first path whose answer has changed.
    ///
    /// The queries are divided among up to `THREADS_MAX` threads. All of them have ended when this function
    /// returns, since the caller is about to fork.
    pub fn first_change(&mut self, now_ns: i64) -> Option<&[u8]> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = threads.min(THREADS_MAX).min(self.checks.len() / QUESTIONS_MIN).max(1);
        let length = self.checks.len().div_ceil(threads).max(1);
        // The program's signal handlers must run on the calling thread only, so the helper threads inherit a
        // full mask.
        let before = Mask::full().set();
        let changes: Vec<_> = std::thread::scope(|scope| {
            let mut parts = self.checks.chunks_mut(length);
            let own = parts.next();
            let others: Vec<_> =
                parts.map(|part| scope.spawn(move || first_changed(part, now_ns))).collect();
            let own = own.and_then(|part| first_changed(part, now_ns));
            let others = others.into_iter().map(|other| other.join().unwrap_or(Some(0)));
            std::iter::once(own).chain(others).collect()
        });
        before.set();
        let part = changes.iter().position(Option::is_some)?;
        Some(&self.checks[part * length + changes[part]?].path)
    }
}

/// More threads would contend for the kernel's name cache.
const THREADS_MAX: usize = 4;
/// Fewer queries than this take less time than starting a thread.
const QUESTIONS_MIN: usize = 256;

fn first_changed(checks: &mut [Check], now_ns: i64) -> Option<usize> {
    checks.iter_mut().position(|check| !check.holds(now_ns))
}

impl Check {
    fn holds(&mut self, now_ns: i64) -> bool {
        let now = look(&self.path, self.follows);
        let (then, now) = match (self.observation.answer, now) {
            (Ok(then), Ok(now)) => (then, now),
            (then, now) => return then == now && !self.observation.is_unsettled,
        };
        if self.names.is_some() {
            return self.has_same_names(then, now, now_ns);
        }
        let level = self.observation.level;
        if level == Level::Content {
            return self.has_same_content(then, now, now_ns);
        }
        if self.observation.is_unsettled && level == Level::Whole {
            return false;
        }
        match (level, then.file_type()) {
            (_, FileType::Symlink)
            | (Level::Whole, FileType::RegularFile | FileType::Directory) => then == now,
            (Level::Kind, kind) => kind == now.file_type(),
            _ => then.has_same_rights(&now),
        }
    }

    /// Whether the file still has the same content and access rights; if so, records its new state.
    fn has_same_content(&mut self, then: State, now: State, now_ns: i64) -> bool {
        if then == now && !self.observation.is_unsettled {
            return true;
        }
        let is_same = self.observation.content.is_some()
            && then.has_same_rights(&now)
            && content_at(&self.path, Ok(now)) == self.observation.content;
        if is_same {
            self.observation.answer = Ok(now);
            self.observation.is_unsettled = now.stamp.is_racy(now_ns);
        }
        is_same
    }

    /// Whether the folder still has the same names and access rights; if so, records its new state. A folder whose time
    /// has changed may still have the same names, which is enough unless the boot asked for its whole state.
    fn has_same_names(&mut self, then: State, now: State, now_ns: i64) -> bool {
        if then == now && !self.observation.is_unsettled {
            return true;
        }
        let counts_whole = self.observation.level == Level::Whole;
        if counts_whole && then != now || !then.has_same_rights(&now) {
            return false;
        }
        let has_same = names(&self.path) == self.names;
        if has_same {
            self.observation.answer = Ok(now);
            self.observation.is_unsettled = now.stamp.is_racy(now_ns);
        }
        has_same
    }
}
