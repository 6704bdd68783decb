//! The file system queries of a boot, and whether the answers would be the same now.
//!
//! A query is logged before the boot makes it, so the logged state is never newer than the answer that the
//! boot received. Queries for existence compare type and permissions, queries for times, sizes or content
//! compare the whole stamp, and queries for a folder's entries compare the names. A lock file of Bundler whose
//! stamp differs still has the same content where the digests are equal.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use thruway_pack::Stamp;
use thruway_sys::signal::Mask;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

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

/// The size above which a lock file is compared by its stamp alone: reading it at each command would take too long.
const LOCK_FILE_BYTES_MAX: u64 = 1 << 20;

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

/// The state found at a path.
#[derive(Debug, Clone, Copy)]
struct Observation {
    answer: Answer,
    level: Level,
    /// Whether the file changed so recently that another change could leave the same stamp.
    is_unsettled: bool,
    /// The digest of the content at that state, for a lock file of which only the content counts.
    content: Option<u128>,
}

/// How much of a state has to stay the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Kind,
    Rights,
    Content,
    Whole,
}

/// A digest of the names in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NamesDigest {
    digest: u128,
    /// Whether the digest includes the type of each entry.
    has_kinds: bool,
}

type Answer = Result<State, Errno>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    stamp: Stamp,
    device: u64,
    mode: u32,
    owner: (u32, u32),
}

impl State {
    fn of(stat: &Stat) -> Self {
        Self {
            stamp: Stamp::of(stat),
            device: stat.st_dev,
            mode: stat.st_mode,
            owner: (stat.st_uid, stat.st_gid),
        }
    }

    fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    fn has_same_rights(&self, other: &Self) -> bool {
        (self.mode, self.owner) == (other.mode, other.owner)
    }
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
            Question::Content if is_lock_file(path) => self.see_lock_file(path, now_ns),
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

    /// Notes a lock file that is read. The digest counts only if it is of the noted state, which no change in the
    /// same tick of the clock could resemble.
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

impl Observation {
    /// The state of a path without a file.
    const MISSING: Self =
        Self { answer: Err(Errno::NOENT), level: Level::Kind, is_unsettled: false, content: None };

    fn is_link(&self) -> bool {
        self.answer.is_ok_and(|state| state.file_type() == FileType::Symlink)
    }
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

fn look(path: &[u8], follows: bool) -> Answer {
    let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    fs::statat(CWD, path, flags).map(|stat| State::of(&stat))
}

/// Whether Bundler itself touches the file at each `bundler/setup`, as it does since version 4 with a file that lacks
/// checksums.
fn is_lock_file(path: &[u8]) -> bool {
    path.ends_with(b".lock") || path.ends_with(b"/gems.locked")
}

/// Returns a digest of a file's content; `None` if the path's state is not `answer` before and after the file is
/// read, or if the file is too large or not a regular one.
fn content_at(path: &[u8], answer: Answer) -> Option<u128> {
    let is_small = |state: State| {
        state.file_type() == FileType::RegularFile && state.stamp.size <= LOCK_FILE_BYTES_MAX
    };
    let is_same = || look(path, true) == answer;
    if !answer.is_ok_and(is_small) || !is_same() {
        return None;
    }
    let content = std::fs::read(OsStr::from_bytes(path)).ok()?;
    is_same().then(|| xxh3_128(&content))
}

/// Returns a digest of the names in a folder and of their types, independent of their order; `None` if the
/// folder cannot be read.
fn names(path: &[u8]) -> Option<NamesDigest> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let folder = fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    let mut names = Vec::new();
    for entry in Dir::new(folder).ok()? {
        let entry = entry.ok()?;
        names.push((entry.file_name().to_bytes().to_vec(), kind(entry.file_type())));
    }
    names.sort_unstable();
    let mut digest = Xxh3::new();
    for (name, kind) in &names {
        digest.update(name);
        digest.update(&[0, *kind]);
    }
    let has_kinds = names.iter().all(|(_, kind)| *kind != UNKNOWN);
    Some(NamesDigest { digest: digest.digest128(), has_kinds })
}

/// The type that some file systems report for every entry (`DT_UNKNOWN`).
const UNKNOWN: u8 = 0;

fn kind(file_type: FileType) -> u8 {
    match file_type {
        FileType::RegularFile => 1,
        FileType::Directory => 2,
        FileType::Symlink => 3,
        FileType::Unknown => UNKNOWN,
        _ => 4,
    }
}

/// The queries of a boot, with the answers that it received.
#[derive(Debug, Default)]
pub struct BootQueries {
    checks: Vec<Check>,
}

#[derive(Debug)]
struct Check {
    path: Box<[u8]>,
    follows: bool,
    observation: Observation,
    names: Option<NamesDigest>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn now() -> i64 {
        i64::MAX
    }

    fn noted(path: &Path, question: Question) -> BootQueries {
        let mut notes = QueryLog::default();
        notes.note(path.as_os_str().as_bytes(), question, now());
        notes.sealed()
    }

    fn changes(observed: &mut BootQueries) -> bool {
        observed.first_change(now()).is_some()
    }

    /// Waits until the file system's clock gives a new stamp.
    fn tick() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }

    #[test]
    fn what_only_asked_whether_a_file_is_there_does_not_mind_an_edit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rb");
        std::fs::write(&path, "1").unwrap();
        let [mut presence, mut content] =
            [Question::Kind, Question::Content].map(|question| noted(&path, question));
        tick();
        std::fs::write(&path, "2").unwrap();
        assert!(!changes(&mut presence) && changes(&mut content));
        let mut rights = noted(&path, Question::Rights);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(changes(&mut rights) && !changes(&mut presence));
        std::fs::remove_file(&path).unwrap();
        assert!(changes(&mut presence));
    }

    #[test]
    fn what_was_not_there_and_is_now_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rb");
        for question in [Question::Kind, Question::LinkStat, Question::Content] {
            let mut observed = noted(&path, question);
            assert!(!changes(&mut observed));
            std::fs::write(&path, "1").unwrap();
            assert_eq!(observed.first_change(now()), Some(path.as_os_str().as_bytes()));
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_listed_folder_may_change_as_long_as_its_names_do_not() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.rb"), "1").unwrap();
        let mut observed = noted(folder.path(), Question::Names);
        tick();
        std::fs::write(folder.path().join("b"), "2").unwrap();
        std::fs::rename(folder.path().join("b"), folder.path().join("a.rb")).unwrap();
        assert!(!changes(&mut observed));
        std::fs::write(folder.path().join("b"), "2").unwrap();
        assert!(changes(&mut observed));
        std::fs::remove_file(folder.path().join("b")).unwrap();
        std::fs::remove_file(folder.path().join("a.rb")).unwrap();
        std::fs::create_dir(folder.path().join("a.rb")).unwrap();
        assert!(changes(&mut observed), "a name that is something else now");
    }

    #[test]
    fn a_listed_folder_whose_own_state_counts_is_not_another_one_with_the_same_names() {
        let above = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| above.path().join(name));
        for questions in [[Question::Stat, Question::Names], [Question::Names, Question::LinkStat]]
        {
            [&one, &other].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
            let mut notes = QueryLog::default();
            for question in questions {
                notes.note(one.as_os_str().as_bytes(), question, now());
            }
            let mut observed = notes.sealed();
            assert!(!changes(&mut observed));
            std::fs::remove_dir(&one).unwrap();
            std::fs::rename(&other, &one).unwrap();
            assert!(changes(&mut observed), "{questions:?}");
            std::fs::remove_dir(&one).unwrap();
        }
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        ["one", "two"]
            .iter()
            .for_each(|name| std::fs::create_dir(folder.path().join(name)).unwrap());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("one", &link).unwrap();
        let mut observed = noted(&link.join("x"), Question::RealPath);
        assert!(!changes(&mut observed));
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("two", &link).unwrap();
        assert!(changes(&mut observed));
    }

    #[test]
    fn a_file_that_changed_a_moment_ago_never_holds() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().as_os_str().as_bytes();
        let mut notes = QueryLog::default();
        let stamp = look(path, true).unwrap().stamp;
        notes.note(path, Question::Content, stamp.ctime_ns + 1);
        assert!(changes(&mut notes.sealed()));
    }

    #[test]
    fn a_lock_file_that_was_touched_holds_as_long_as_its_content_does() {
        let folder = tempfile::tempdir().unwrap();
        let [lock, other] = ["Gemfile.lock", "Gemfile"].map(|name| folder.path().join(name));
        let rewrite = |text: &str| {
            tick();
            [&lock, &other].iter().for_each(|path| std::fs::write(path, text).unwrap());
        };
        rewrite("GEM");
        tick();
        let mut observed = noted(&lock, Question::Content);
        let mut without = [noted(&other, Question::Content), noted(&lock, Question::Stat)];
        rewrite("GEM");
        assert!(!changes(&mut observed));
        assert!(without.iter_mut().all(changes), "only a lock file's content is compared");
        rewrite("PEM");
        assert!(changes(&mut observed), "as many bytes");
        rewrite("GEM");
        assert!(!changes(&mut observed));
        std::fs::set_permissions(&lock, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(changes(&mut observed));
    }

    #[test]
    fn what_the_boot_wrote_itself_is_not_compared() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().as_os_str().as_bytes();
        let mut notes = QueryLog::default();
        notes.note(path, Question::Content, now());
        notes.note_written(path);
        assert!(notes.sealed().is_empty());
    }

    #[test]
    fn what_kind_of_thing_it_is_follows_from_the_names_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rb");
        std::fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink("a.rb", folder.path().join("link")).unwrap();
        let mut notes = QueryLog::default();
        for (name, question) in [("a.rb", Question::Kind), ("", Question::Names)] {
            let path = folder.path().join(name).into_os_string().into_encoded_bytes();
            notes.note(path.strip_suffix(b"/").unwrap_or(&path), question, now());
        }
        let mut observed = notes.sealed();
        assert_eq!(observed.len(), 1);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(changes(&mut observed), "a folder in its place");
        let mut notes = QueryLog::default();
        notes.note(folder.path().as_os_str().as_bytes(), Question::Names, now());
        notes.note(folder.path().join("link").as_os_str().as_bytes(), Question::Kind, now());
        assert_eq!(notes.sealed().len(), 2, "a link may lead elsewhere");
    }

    #[test]
    fn a_file_in_shared_memory_or_below_a_process_s_folder_is_compared_as_any() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
        let path = folder.path().join("a.rb");
        std::fs::write(&path, "1").unwrap();
        let through = Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap());
        for noted_path in [&path, &through] {
            let mut observed = noted(noted_path, Question::Content);
            assert!(!changes(&mut observed));
            std::fs::write(&path, "two, or more").unwrap();
            assert!(changes(&mut observed), "{}", noted_path.display());
            std::fs::write(&path, "1").unwrap();
        }
    }

    #[test]
    fn many_paths_below_nothing_are_one_question() {
        let folder = tempfile::tempdir().unwrap();
        let mut notes = QueryLog::default();
        for name in ["x/a", "x/b/c", "x"] {
            let path = folder.path().join(name);
            notes.note(path.as_os_str().as_bytes(), Question::Kind, now());
        }
        let mut observed = notes.sealed();
        assert_eq!(observed.len(), 1);
        std::fs::create_dir(folder.path().join("x")).unwrap();
        assert!(changes(&mut observed));
    }

    #[test]
    fn the_first_of_many_changes_is_named_whichever_thread_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |number: usize| folder.path().join(format!("{number:04}"));
        let mut notes = QueryLog::default();
        for number in 0..1200 {
            std::fs::write(path(number), "").unwrap();
            notes.note(path(number).as_os_str().as_bytes(), Question::Content, now());
        }
        let mut observed = notes.sealed();
        assert_eq!((observed.len(), observed.first_change(now())), (1200, None));
        for number in [1199, 900, 601, 300, 0] {
            std::fs::remove_file(path(number)).unwrap();
            let first = path(number);
            assert_eq!(observed.first_change(now()), Some(first.as_os_str().as_bytes()));
        }
    }

    #[test]
    fn what_a_listed_folder_lacks_needs_no_look_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("a.rb");
        let mut notes = QueryLog::default();
        notes.note(missing.as_os_str().as_bytes(), Question::Kind, now());
        notes.note(folder.path().as_os_str().as_bytes(), Question::Names, now());
        let mut observed = notes.sealed();
        assert_eq!(observed.len(), 1);
        std::fs::write(missing, "").unwrap();
        assert!(changes(&mut observed));
    }
}
