//! What a boot asked the disk, and whether it would be told the same now.
//!
//! Each question is noted before it is asked, so that what is kept is never younger than what the boot was told.
//! What only asks whether something is there is compared by type and rights. What asks for times, sizes or content
//! is compared by the whole stamp, and what lists a folder by its names.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use thruway_pack::Stamp;
use thruway_sys::signal::Mask;
use xxhash_rust::xxh3::Xxh3;

use crate::passing::without_process;

/// What a boot asks about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// What kind of thing is there, if any, where the path's links lead.
    Kind,
    /// What kind of thing is at the path itself.
    LinkKind,
    /// As [`Kind`](Self::Kind), and the rights to it.
    Rights,
    /// All that `stat` says.
    Stat,
    /// All that `lstat` says.
    LinkStat,
    /// What a file holds.
    Content,
    /// Which names a folder has.
    Names,
    /// Where the path's links lead, component by component.
    RealPath,
}

/// What was asked, and what the answers were.
#[derive(Debug, Default)]
pub struct Notes {
    paths: HashMap<Box<[u8]>, Entry>,
    written: HashSet<Box<[u8]>>,
    excluded: Vec<Box<[u8]>>,
}

#[derive(Debug, Default)]
struct Entry {
    link: Option<Seen>,
    target: Option<Seen>,
    names: Option<Names>,
}

/// What was found at a path.
#[derive(Debug, Clone, Copy)]
struct Seen {
    answer: Answer,
    level: Level,
    /// Whether it changed so recently that another change could leave no trace.
    is_unsettled: bool,
}

/// How much of what was found counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Kind,
    Rights,
    Whole,
}

/// A folder's names as a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Names {
    digest: u128,
    /// Whether it says of each name what it is.
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

impl Notes {
    /// Notes what is about to be asked about an absolute path.
    pub fn note(&mut self, path: &[u8], question: Question, now_ns: i64) {
        if let Some(path) = without_process(path) {
            return self.note(&path, question, now_ns);
        }
        if path.starts_with(b"/proc/self") {
            // Another process in each child.
            return;
        }
        let question = if is_made_up(path) { Question::Kind } else { question };
        match question {
            Question::Kind => self.see(path, true, Level::Kind, now_ns),
            Question::LinkKind => self.see(path, false, Level::Kind, now_ns),
            Question::Rights => self.see(path, true, Level::Rights, now_ns),
            Question::Stat | Question::Content => self.see(path, true, Level::Whole, now_ns),
            Question::LinkStat => self.see(path, false, Level::Whole, now_ns),
            Question::Names => self.list(path, now_ns),
            Question::RealPath => self.see_components(path, now_ns),
        }
    }

    /// The boot itself writes what is at that path: what is there afterwards is not compared.
    pub fn note_written(&mut self, path: &[u8]) {
        self.written.insert(without_process(path).unwrap_or_else(|| path.to_vec()).into());
    }

    /// What is at that path, or below it, is not compared.
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
        if let Some(seen) = place {
            seen.level = seen.level.max(level);
            return;
        }
        let answer = look(path, follows);
        let is_file = |state: &State| state.file_type() == FileType::RegularFile;
        let is_young = |state: &State| is_file(state) && state.stamp.is_racy(now_ns);
        let is_unsettled = answer.as_ref().is_ok_and(is_young);
        *place = Some(Seen { answer, level, is_unsettled });
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
        if let Some(seen) = before {
            // The names are younger than the stamp.
            seen.is_unsettled |= look(path, true) != seen.answer;
        }
    }

    /// What has to be compared from now on.
    #[must_use]
    pub fn sealed(mut self) -> Observed {
        let paths = std::mem::take(&mut self.paths);
        let paths: Vec<_> = paths.into_iter().filter(|(path, _)| !self.is_left_out(path)).collect();
        let names = |(path, entry): &(Box<[u8]>, Entry)| Some((path.clone(), entry.names?));
        let listed: HashMap<Box<[u8]>, Names> = paths.iter().filter_map(names).collect();
        let mut missing = HashSet::new();
        let mut checks = Vec::new();
        for (path, entry) in paths {
            if entry.is_missing() && !is_link(&path) {
                let first = first_missing(&path);
                // Something is there now: that makes what was noted stale at once.
                let is_there = look(&first, false).is_ok();
                missing.extend((is_there || !is_listed(&listed, &first)).then_some(first));
            } else if !entry.is_implied(&path, &listed) {
                entry.add_checks(path, &mut checks);
            }
        }
        let gone = |path| Check { path, follows: false, seen: Seen::MISSING, names: None };
        checks.extend(missing.into_iter().map(gone));
        checks.sort_by(|one, other| one.path.cmp(&other.path));
        Observed { checks }
    }
}

/// Whether a link is there: what was not found is where it leads.
fn is_link(path: &[u8]) -> bool {
    look(path, false).is_ok_and(|state| state.file_type() == FileType::Symlink)
}

/// The first component of a path at which there is nothing.
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

/// Whether the names of the folder that a path is in are compared.
fn is_listed(listed: &HashMap<Box<[u8]>, Names>, path: &[u8]) -> bool {
    parent(path).is_some_and(|parent| listed.contains_key(parent))
}

fn parent(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    (slash > 0).then(|| &path[..slash])
}

impl Seen {
    /// Nothing is there.
    const MISSING: Self =
        Self { answer: Err(Errno::NOENT), level: Level::Kind, is_unsettled: false };

    fn is_link(&self) -> bool {
        self.answer.is_ok_and(|state| state.file_type() == FileType::Symlink)
    }
}

impl Entry {
    /// Whether all that was asked found nothing.
    fn is_missing(&self) -> bool {
        let mut seen = self.link.iter().chain(&self.target);
        self.names.is_none()
            && seen.all(|seen| seen.answer == Err(Errno::NOENT))
            && !self.leads_nowhere()
    }

    /// A link to nothing is something.
    fn leads_nowhere(&self) -> bool {
        self.link.is_some_and(|link| link.answer.is_ok())
    }

    /// Whether the names of its folder say all that was asked: what kind of thing it is.
    fn is_implied(&self, path: &[u8], listed: &HashMap<Box<[u8]>, Names>) -> bool {
        let names = parent(path).and_then(|parent| listed.get(parent));
        let (false, Ok(now)) = (self.names.is_some(), look(path, false)) else { return false };
        let mut seen = self.link.iter().chain(&self.target);
        let kind = now.file_type();
        let is_kind = |seen: &Seen| {
            let has_same = seen.answer.is_ok_and(|state| state.file_type() == kind);
            seen.level == Level::Kind && has_same
        };
        names.is_some_and(|names| names.has_kinds) && kind != FileType::Symlink && seen.all(is_kind)
    }

    fn add_checks(self, path: Box<[u8]>, checks: &mut Vec<Check>) {
        let (mut link, mut target) = (self.link, self.target);
        if let (Some(one), Some(other)) = (&mut link, &mut target)
            && !one.is_link()
        {
            // What is no link itself needs one look.
            one.level = one.level.max(other.level);
            one.is_unsettled |= other.is_unsettled || one.answer != other.answer;
            target = None;
        }
        let check = |seen: Seen, follows, names| Check { path: path.clone(), follows, seen, names };
        let names_of_link = if target.is_none() { self.names } else { None };
        checks.extend(link.map(|seen| check(seen, false, names_of_link)));
        checks.extend(target.map(|seen| check(seen, true, self.names)));
    }
}

/// Paths below which the kernel makes files up: their stamps say nothing.
fn is_made_up(path: &[u8]) -> bool {
    [&b"/proc/"[..], b"/sys/", b"/dev/fd/"].iter().any(|start| path.starts_with(start))
}

fn look(path: &[u8], follows: bool) -> Answer {
    let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    fs::statat(CWD, path, flags).map(|stat| State::of(&stat))
}

/// A digest of a folder's names, and of what each of them is, in whatever order; `None` if it cannot be read.
fn names(path: &[u8]) -> Option<Names> {
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
    Some(Names { digest: digest.digest128(), has_kinds })
}

/// What some file systems say of every name.
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

/// What a boot was told.
#[derive(Debug, Default)]
pub struct Observed {
    checks: Vec<Check>,
}

#[derive(Debug)]
struct Check {
    path: Box<[u8]>,
    follows: bool,
    seen: Seen,
    names: Option<Names>,
}

impl Observed {
    /// How many questions are asked again.
    #[must_use]
    pub fn len(&self) -> usize {
        self.checks.len()
    }

    /// Whether there is nothing to compare.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.checks.is_empty()
    }

    /// The first path at which something is not as the boot was told.
    ///
    /// The questions are shared out among the processors, to threads that have ended when this answers.
    pub fn first_change(&mut self, now_ns: i64) -> Option<&[u8]> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = threads.min(THREADS_MAX).min(self.checks.len() / QUESTIONS_MIN).max(1);
        let length = self.checks.len().div_ceil(threads).max(1);
        // Signals are this thread's alone, whose program has handlers for them.
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

/// More threads would wait for each other in the kernel's tables of names.
const THREADS_MAX: usize = 4;
/// Fewer questions take no longer than the start of a thread.
const QUESTIONS_MIN: usize = 256;

fn first_changed(checks: &mut [Check], now_ns: i64) -> Option<usize> {
    checks.iter_mut().position(|check| !check.holds(now_ns))
}

impl Check {
    fn holds(&mut self, now_ns: i64) -> bool {
        let now = look(&self.path, self.follows);
        let (then, now) = match (self.seen.answer, now) {
            (Ok(then), Ok(now)) => (then, now),
            (then, now) => return then == now && !self.seen.is_unsettled,
        };
        if self.names.is_some() {
            return self.has_same_names(then, now, now_ns);
        }
        let level = self.seen.level;
        if self.seen.is_unsettled && level == Level::Whole {
            return false;
        }
        match (level, then.file_type()) {
            (_, FileType::Symlink)
            | (Level::Whole, FileType::RegularFile | FileType::Directory) => then == now,
            (Level::Kind, kind) => kind == now.file_type(),
            _ => then.has_same_rights(&now),
        }
    }

    /// A folder whose time has changed may have the names that it had. That does for a boot that asked for them alone.
    fn has_same_names(&mut self, then: State, now: State, now_ns: i64) -> bool {
        if then == now && !self.seen.is_unsettled {
            return true;
        }
        let counts_whole = self.seen.level == Level::Whole;
        if counts_whole && then != now || !then.has_same_rights(&now) {
            return false;
        }
        let has_same = names(&self.path) == self.names;
        if has_same {
            self.seen.answer = Ok(now);
            self.seen.is_unsettled = now.stamp.is_racy(now_ns);
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

    fn noted(path: &Path, question: Question) -> Observed {
        let mut notes = Notes::default();
        notes.note(path.as_os_str().as_bytes(), question, now());
        notes.sealed()
    }

    fn changes(observed: &mut Observed) -> bool {
        observed.first_change(now()).is_some()
    }

    /// Long enough for another stamp.
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
            let mut notes = Notes::default();
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
        let mut notes = Notes::default();
        let stamp = look(path, true).unwrap().stamp;
        notes.note(path, Question::Content, stamp.ctime_ns + 1);
        assert!(changes(&mut notes.sealed()));
    }

    #[test]
    fn what_the_boot_wrote_itself_is_not_compared() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().as_os_str().as_bytes();
        let mut notes = Notes::default();
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
        let mut notes = Notes::default();
        for (name, question) in [("a.rb", Question::Kind), ("", Question::Names)] {
            let path = folder.path().join(name).into_os_string().into_encoded_bytes();
            notes.note(path.strip_suffix(b"/").unwrap_or(&path), question, now());
        }
        let mut observed = notes.sealed();
        assert_eq!(observed.len(), 1);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(changes(&mut observed), "a folder in its place");
        let mut notes = Notes::default();
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
        let mut notes = Notes::default();
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
        let mut notes = Notes::default();
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
        let mut notes = Notes::default();
        notes.note(missing.as_os_str().as_bytes(), Question::Kind, now());
        notes.note(folder.path().as_os_str().as_bytes(), Question::Names, now());
        let mut observed = notes.sealed();
        assert_eq!(observed.len(), 1);
        std::fs::write(missing, "").unwrap();
        assert!(changes(&mut observed));
    }
}
