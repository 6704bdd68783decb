//! The log of the queries that a boot makes.

use std::collections::{HashMap, HashSet};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::checks::{BootQueries, Check};
use super::observation::{Level, NamesDigest, Observation, State, content_at, look, names};
use crate::one_shot::without_process;

/// A query about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// The type of the file, following links.
    Kind,
    /// The type of the file at the path itself, without following links.
    LinkKind,
    /// Like [`Kind`](Self::Kind), and the permissions.
    Rights,
    /// All fields of `stat`.
    Stat,
    /// All fields of `lstat`.
    LinkStat,
    /// The content of a file.
    Content,
    /// The names in a folder.
    Names,
    /// The path without links, component by component.
    RealPath,
}

/// The log of a boot's queries and their answers.
#[derive(Debug, Default)]
pub struct QueryLog {
    paths: HashMap<Box<[u8]>, Entry>,
    written: HashSet<Box<[u8]>>,
    excluded: Vec<Box<[u8]>>,
}

#[derive(Debug, Default)]
struct Entry {
    link: Option<Observation>,
    target: Option<Observation>,
    names: Option<NamesDigest>,
}

impl QueryLog {
    /// Logs a query that the boot is about to make about an absolute path.
    pub fn note(&mut self, path: &[u8], question: Question, now_ns: i64) {
        if let Some(path) = without_process(path) {
            return self.note(&path, question, now_ns);
        }
        if path.starts_with(b"/proc/self") {
            // `/proc/self` means another process in each child.
            return;
        }
        let question = if is_made_up(path) { Question::Kind } else { question };
        match question {
            Question::Kind => self.see(path, true, Level::Kind, now_ns),
            Question::LinkKind => self.see(path, false, Level::Kind, now_ns),
            Question::Rights => self.see(path, true, Level::Rights, now_ns),
            Question::Content if is_bundler_lock_file(path) => self.see_lock_file(path, now_ns),
            Question::Stat | Question::Content => self.see(path, true, Level::Whole, now_ns),
            Question::LinkStat => self.see(path, false, Level::Whole, now_ns),
            Question::Names => self.list(path, now_ns),
            Question::RealPath => self.see_components(path, now_ns),
        }
    }

    /// Excludes a path that the boot itself writes from the comparison.
    pub fn note_written(&mut self, path: &[u8]) {
        self.written.insert(without_process(path).unwrap_or_else(|| path.to_vec()).into());
    }

    /// Excludes a path, and all paths below it, from the comparison.
    pub fn exclude(&mut self, path: &[u8]) {
        self.excluded.push(path.strip_suffix(b"/").unwrap_or(path).into());
    }

    fn is_left_out(&self, path: &[u8]) -> bool {
        let is_at = |above: &[u8]| {
            path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.written.contains(path) || self.excluded.iter().any(|excluded| is_at(excluded))
    }

    fn see(&mut self, path: &[u8], follows: bool, level: Level, now_ns: i64) {
        let entry = self.paths.entry(path.into()).or_default();
        let place = if follows { &mut entry.target } else { &mut entry.link };
        if let Some(observation) = place {
            observation.level = observation.level.max(level);
            return;
        }
        let answer = look(path, follows);
        let is_file = |state: &State| state.file_type() == FileType::RegularFile;
        let is_young = |state: &State| is_file(state) && state.stamp.is_racy(now_ns);
        let is_unsettled = answer.as_ref().is_ok_and(is_young);
        *place = Some(Observation { answer, level, is_unsettled, content: None });
    }

    /// Notes the content of a lock file that the boot reads. The digest is kept only if the file still has the noted
    /// stamp, and if that stamp is so old that any later change gives another one.
    fn see_lock_file(&mut self, path: &[u8], now_ns: i64) {
        self.see(path, true, Level::Content, now_ns);
        let Some(observation) = self.paths.get_mut(path).and_then(|entry| entry.target.as_mut())
        else {
            return;
        };
        if observation.content.is_none() && !observation.is_unsettled {
            observation.content = content_at(path, observation.answer);
        }
    }

    fn see_components(&mut self, path: &[u8], now_ns: i64) {
        let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        let ends: Vec<_> = ends.map(|(place, _)| place).chain([path.len()]).collect();
        ends.into_iter().for_each(|end| self.see(&path[..end], false, Level::Kind, now_ns));
    }

    fn list(&mut self, path: &[u8], now_ns: i64) {
        let is_known = self.paths.get(path).is_some_and(|entry| entry.names.is_some());
        if is_known {
            return;
        }
        self.see(path, true, Level::Rights, now_ns);
        let Some(entry) = self.paths.get_mut(path) else { return };
        let before = entry.target.as_mut();
        let Some(names) = names(path) else { return };
        entry.names = Some(names);
        if let Some(observation) = before {
            // The names were read after the stamp.
            observation.is_unsettled |= look(path, true) != observation.answer;
        }
    }

    /// Turns the log into the list of queries to repeat.
    #[must_use]
    pub fn sealed(mut self) -> BootQueries {
        let paths = std::mem::take(&mut self.paths);
        let paths: Vec<_> = paths.into_iter().filter(|(path, _)| !self.is_left_out(path)).collect();
        let names = |(path, entry): &(Box<[u8]>, Entry)| Some((path.clone(), entry.names?));
        let listed: HashMap<Box<[u8]>, NamesDigest> = paths.iter().filter_map(names).collect();
        let mut missing = HashSet::new();
        let mut checks = Vec::new();
        for (path, entry) in paths {
            if entry.is_missing() && !is_link(&path) {
                let first = first_missing(&path);
                // A file that exists by now makes the template stale at once, so the check is kept even if
                // its folder's names are compared.
                let is_there = look(&first, false).is_ok();
                missing.extend((is_there || !is_listed(&listed, &first)).then_some(first));
            } else if !entry.is_implied(&path, &listed) {
                entry.add_checks(path, &mut checks);
            }
        }
        let gone =
            |path| Check { path, follows: false, observation: Observation::MISSING, names: None };
        checks.extend(missing.into_iter().map(gone));
        checks.sort_by(|one, other| one.path.cmp(&other.path));
        BootQueries { checks }
    }
}

/// Whether there is a link. A dangling link answers `ENOENT`, although the link itself exists.
fn is_link(path: &[u8]) -> bool {
    look(path, false).is_ok_and(|state| state.file_type() == FileType::Symlink)
}

/// Returns the first component of a path that does not exist.
fn first_missing(path: &[u8]) -> Box<[u8]> {
    let mut first = path;
    while let Some(above) = parent(first) {
        if !matches!(look(above, false), Err(Errno::NOENT | Errno::NOTDIR)) {
            break;
        }
        first = above;
    }
    first.into()
}

/// Whether the names of the path's folder are compared.
fn is_listed(listed: &HashMap<Box<[u8]>, NamesDigest>, path: &[u8]) -> bool {
    parent(path).is_some_and(|parent| listed.contains_key(parent))
}

fn parent(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    (slash > 0).then(|| &path[..slash])
}

impl Entry {
    /// Whether every query about the path found nothing.
    fn is_missing(&self) -> bool {
        let mut observation = self.link.iter().chain(&self.target);
        self.names.is_none()
            && observation.all(|observation| observation.answer == Err(Errno::NOENT))
            && !self.leads_nowhere()
    }

    /// Whether the path is a dangling link, which must be compared as a link.
    fn leads_nowhere(&self) -> bool {
        self.link.is_some_and(|link| link.answer.is_ok())
    }

    /// Whether the digest of the parent folder's names covers this entry, because only its type was queried.
    fn is_implied(&self, path: &[u8], listed: &HashMap<Box<[u8]>, NamesDigest>) -> bool {
        let names = parent(path).and_then(|parent| listed.get(parent));
        let (false, Ok(now)) = (self.names.is_some(), look(path, false)) else { return false };
        let mut observation = self.link.iter().chain(&self.target);
        let kind = now.file_type();
        let is_kind = |observation: &Observation| {
            let has_same = observation.answer.is_ok_and(|state| state.file_type() == kind);
            observation.level == Level::Kind && has_same
        };
        names.is_some_and(|names| names.has_kinds)
            && kind != FileType::Symlink
            && observation.all(is_kind)
    }

    fn add_checks(self, path: Box<[u8]>, checks: &mut Vec<Check>) {
        let (mut link, mut target) = (self.link, self.target);
        if let (Some(one), Some(other)) = (&mut link, &mut target)
            && !one.is_link()
        {
            // The path is not a link, so `lstat` and `stat` agree and one check is enough.
            one.level = one.level.max(other.level);
            one.is_unsettled |= other.is_unsettled || one.answer != other.answer;
            one.content = other.content.filter(|_| one.answer == other.answer);
            target = None;
        }
        let check = |observation: Observation, follows, names| Check {
            path: path.clone(),
            follows,
            observation,
            names,
        };
        let names_of_link = if target.is_none() { self.names } else { None };
        checks.extend(link.map(|observation| check(observation, false, names_of_link)));
        checks.extend(target.map(|observation| check(observation, true, self.names)));
    }
}

/// Whether the kernel generates the files below a path, so that their stamps carry no information.
fn is_made_up(path: &[u8]) -> bool {
    [&b"/proc/"[..], b"/sys/", b"/dev/fd/"].iter().any(|start| path.starts_with(start))
}

/// Whether the file is a lock file of Bundler (`Gemfile.lock`). Since version 4, `bundler/setup` sets the time of a
/// lock file that lacks checksums, so the content decides whether such a file has changed.
fn is_bundler_lock_file(path: &[u8]) -> bool {
    path.ends_with(b".lock") || path.ends_with(b"/gems.locked")
}
