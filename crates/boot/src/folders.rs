//! What is known of folders: whether a path leads through links, and which names are there.
//!
//! A folder is asked about once (one `lstat`), and then again only after [`Folders::forget`]: when this
//! process may have been told of a change, and some seconds later in any case. Its names come from the pack
//! where its stamp is still the one in the pack; else they are read, once.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use thruway_pack::{Pack, Stamp};
use xxhash_rust::xxh3::xxh3_64;

use crate::changes::Changes;
use crate::kind;
use crate::listing::{self, Listing, NameKind, Stem};
use crate::path;
use crate::rights;

/// A folder with more names is not listed: reading it would cost more than it can save.
const NAMES_MAX: usize = 1 << 16;
/// As many links as the kernel follows in one path (`MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

/// After so long a pause nothing is believed that nobody has said anything about: who changed it may have
/// told this process in a way that is not seen (a file, a library of C). A boot makes no such pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// For so long a folder is believed without a pause.
const BELIEVED_MAX: Duration = Duration::from_secs(30);

/// The place of a folder in the table. It stays the same for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderId(u32);

/// All folders that have been asked about.
#[derive(Debug)]
pub struct Folders {
    pack: Option<Pack<'static>>,
    /// Whether the pack is believed without asking the disk.
    is_frozen: bool,
    ids: HashMap<Box<[u8]>, FolderId, BuildHasherDefault<PathHasher>>,
    folders: Vec<Folder>,
    /// Counts what may have changed folders.
    now: u32,
    /// Folders that were checked before are checked again.
    valid_since: u32,
    /// When that was.
    forgotten: Instant,
    /// When anything was asked last.
    asked: Instant,
    /// What this process has been told when it was.
    news: u64,
    /// What a frozen pack is not believed about.
    changes: Changes,
    /// How often the disk was asked, for reports.
    pub(crate) lookups: u64,
}

#[derive(Debug)]
struct Folder {
    path: Box<[u8]>,
    checked: u32,
    state: State,
    stamp: Stamp,
    names: Names,
    /// When the names were read, in nanoseconds since 1970.
    read_ns: i64,
    /// Whether this process has made, moved or removed something in it: no pack knows of that.
    is_ours: bool,
    /// Whether its mode lets everybody search it.
    is_open: bool,
    /// Whether this process may search it, once that was asked.
    may_search: Option<bool>,
}

impl Folder {
    /// Nothing that was known of it counts.
    fn forget(&mut self) {
        (self.checked, self.is_ours, self.names) = (0, true, Names::NotRead);
    }
}

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not a folder, or one that may not be looked at.
    Unknown,
    /// Nothing of that name.
    Missing,
    /// A folder: this one itself, or the one that links lead to.
    Folder(FolderId),
}

#[derive(Debug)]
enum Names {
    NotRead,
    Unreadable,
    Packed(Listing<'static>),
    Read(Vec<u8>),
}

/// What a name below a folder turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// There is nothing of that name.
    Absent,
    /// There is a regular file.
    File,
    /// There is something else, or a link: the disk has to be asked.
    Present,
    /// Not known.
    Unknown,
}

/// A folder as it goes into a pack.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) real_path: &'a [u8],
    pub(crate) stamp: Stamp,
    /// Its names, if they were read and cannot have changed within the stamp since.
    pub(crate) names: Option<&'a [u8]>,
    /// Whether everybody may search it and all folders above it, as far as modes say.
    pub(crate) is_open: bool,
    /// Whether the pack does not hold it, or other names.
    pub(crate) is_news: bool,
}

impl Folders {
    /// Nothing is known but what `pack` holds.
    #[must_use]
    pub fn new(pack: Option<Pack<'static>>, is_frozen: bool) -> Self {
        Self {
            pack,
            is_frozen,
            ids: HashMap::default(),
            folders: Vec::new(),
            now: 1,
            valid_since: 1,
            forgotten: Instant::now(),
            asked: Instant::now(),
            news: 0,
            changes: Changes::default(),
            lookups: 0,
        }
    }

    /// Something may have been made, moved or removed: everything is checked before it is used again.
    pub fn forget(&mut self) {
        self.now += 1;
        self.valid_since = self.now;
        self.forgotten = Instant::now();
    }

    /// Forgets what may not be so any more: this process has been told something since, or was told
    /// nothing for long.
    pub(crate) fn mind(&mut self, news: u64) {
        let now = Instant::now();
        let has_paused = now - self.asked >= PAUSE_MAX || now - self.forgotten >= BELIEVED_MAX;
        self.asked = now;
        if self.news != news || has_paused {
            self.news = news;
            self.forget();
        }
    }

    /// This process has made, moved or removed something, and nobody knows what.
    pub(crate) fn changed_somewhere(&mut self) {
        self.forget();
        if self.is_frozen {
            self.changes.add_all();
        }
    }

    /// Looks with fresh eyes: every folder that `look` needs is checked again, and no other.
    pub fn afresh<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let (valid_since, forgotten) = (self.valid_since, self.forgotten);
        self.forget();
        let seen = look(self);
        (self.valid_since, self.forgotten) = (valid_since, forgotten);
        seen
    }

    /// The thing at a clean path may have been made, moved or removed. Only what is known of it, of
    /// what is below it, or of the folder that it is in, is affected.
    pub fn changed(&mut self, path: &[u8]) {
        let is_below = |known: &[u8]| {
            known.strip_prefix(path).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        if self.ids.keys().any(|known| is_below(known)) {
            self.forget();
        }
        if self.is_frozen {
            self.edited(path);
        }
        let Some((parent, _)) = path::split(path) else { return };
        // A frozen pack would be believed when the folder is asked about for the first time.
        let known =
            if self.is_frozen { Some(self.id(parent)) } else { self.ids.get(parent).copied() };
        if let Some(parent) = known {
            if self.is_frozen {
                self.check(parent, 0);
            }
            if let State::Folder(real) = self.folders[parent.0 as usize].state {
                self.folders[real.0 as usize].forget();
            }
            self.folders[parent.0 as usize].forget();
        }
    }

    /// This process has changed what is at a clean path, or moved it. A folder or a link that the pack
    /// knows may stand for any number of paths.
    pub(crate) fn edited(&mut self, path: &[u8]) {
        let is_known = |kind| self.pack.is_some_and(|pack| pack.find(kind, path).is_some());
        if is_known(kind::FOLDER) || is_known(kind::ALIAS) {
            self.changes.add_all();
        } else {
            self.changes.add(path);
        }
    }

    /// Whether the pack is believed about what is at a clean path, without asking: it is frozen, this
    /// process has changed nothing there, and it may look there.
    pub(crate) fn is_frozen_at(&mut self, path: &[u8]) -> bool {
        if !self.is_frozen() {
            return false;
        }
        let Some((folder, name)) = path::split(path) else { return false };
        let id = self.id(folder);
        if !self.changes.is_empty() {
            let real = self.real_path(id).map(|real| path::join(real, name));
            let is_changed = self.changes.concern(path);
            if is_changed || real.is_none_or(|real| self.changes.concern(&real)) {
                return false;
            }
        }
        self.may_search(id)
    }

    /// Whether the pack is believed without asking the disk, as far as nothing was changed.
    pub(crate) fn is_frozen(&self) -> bool {
        self.is_frozen && !self.changes.are_all()
    }

    /// Whether this process may search a folder that a frozen pack knows; asked once.
    fn may_search(&mut self, id: FolderId) -> bool {
        let folder = &self.folders[id.0 as usize];
        if let Some(may_search) = folder.may_search {
            return may_search;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind::FOLDER, &folder.path));
        let is_open = entry.is_some_and(|entry| entry.flags() & kind::OPEN != 0);
        let may_search = is_open || rights::may_search(&folder.path);
        self.folders[id.0 as usize].may_search = Some(may_search);
        may_search
    }

    /// The folder at a clean path.
    pub fn id(&mut self, path: &[u8]) -> FolderId {
        if let Some(id) = self.ids.get(path) {
            return *id;
        }
        let id = FolderId(u32::try_from(self.folders.len()).unwrap_or(u32::MAX));
        self.ids.insert(path.into(), id);
        self.folders.push(Folder {
            path: path.into(),
            checked: 0,
            state: State::Unknown,
            stamp: Stamp::default(),
            names: Names::NotRead,
            read_ns: 0,
            is_ours: false,
            is_open: false,
            may_search: None,
        });
        id
    }

    /// The path by which the folder is known.
    pub(crate) fn path(&self, id: FolderId) -> &[u8] {
        &self.folders[id.0 as usize].path
    }

    /// The folder's path without links; `None` if it is not a folder.
    pub fn real_path(&mut self, id: FolderId) -> Option<&[u8]> {
        let real = self.real(id)?;
        Some(&self.folders[real.0 as usize].path)
    }

    /// Whether there is nothing at the folder's path.
    pub fn is_missing(&mut self, id: FolderId) -> bool {
        self.check(id, 0);
        self.folders[id.0 as usize].state == State::Missing
    }

    /// The folder's names, if they can be had.
    pub fn names(&mut self, id: FolderId) -> Option<Listing<'_>> {
        let real = self.real(id)?;
        if matches!(self.folders[real.0 as usize].names, Names::NotRead) {
            self.read_names(real);
        }
        match &self.folders[real.0 as usize].names {
            Names::Packed(listing) => Some(*listing),
            Names::Read(bytes) => Some(Listing::new(bytes)),
            Names::NotRead | Names::Unreadable => None,
        }
    }

    /// Whether a name with that stem may be in the folder; `true` if it is not known.
    pub fn may_hold(&mut self, id: FolderId, stem: Stem) -> bool {
        if self.is_missing(id) {
            return false;
        }
        self.names(id).is_none_or(|names| names.may_hold(stem))
    }

    /// What `name`, of one component or several, is below the folder.
    pub fn probe(&mut self, id: FolderId, name: &[u8]) -> Probe {
        if self.is_missing(id) {
            return Probe::Absent;
        }
        let (first, rest) = match name.iter().position(|byte| *byte == b'/') {
            Some(slash) => (&name[..slash], Some(&name[slash + 1..])),
            None => (name, None),
        };
        let Some(names) = self.names(id) else { return Probe::Unknown };
        match (names.find(first), rest) {
            (None, _) | (Some(NameKind::File), Some(_)) => Probe::Absent,
            (Some(NameKind::File), None) => Probe::File,
            (Some(_), None) => Probe::Present,
            (Some(_), Some(rest)) => {
                let below = path::join(&self.folders[id.0 as usize].path, first);
                let below = self.id(&below);
                self.probe(below, rest)
            }
        }
    }

    /// What is at a clean path, as far as it follows from folders whose names were wanted before. A
    /// folder that is known for what is below it, as `/home` is, says nothing: its names change.
    pub fn probe_path(&mut self, path: &[u8]) -> Probe {
        let mut folder = path;
        while let Some((parent, _)) = path::split(folder) {
            folder = parent;
            if let Some(id) = self.ids.get(folder).copied() {
                if matches!(self.folders[id.0 as usize].names, Names::NotRead)
                    && !self.is_missing(id)
                {
                    return Probe::Unknown;
                }
                let name = &path[folder.len()..];
                return self.probe(id, name.strip_prefix(b"/").unwrap_or(name));
            }
        }
        Probe::Unknown
    }

    /// Every folder that was found, for a pack.
    pub(crate) fn known(&self) -> impl Iterator<Item = Known<'_>> {
        self.folders.iter().filter_map(|folder| {
            let State::Folder(real) = folder.state else { return None };
            let real = &self.folders[real.0 as usize];
            let names = match &folder.names {
                Names::Read(bytes) if !folder.stamp.is_racy(folder.read_ns) => Some(&bytes[..]),
                Names::Packed(listing) => Some(listing.as_bytes()),
                _ => None,
            };
            let known = Known {
                path: &folder.path,
                real_path: &real.path,
                stamp: folder.stamp,
                names,
                is_open: self.is_open(&folder.path),
                is_news: false,
            };
            Some(Known { is_news: self.is_news(&known), ..known })
        })
    }

    /// Whether the folder and all those above it let everybody search them.
    fn is_open(&self, path: &[u8]) -> bool {
        let mut above =
            std::iter::successors(Some(path), |path| path::split(path).map(|(folder, _)| folder));
        above.all(|path| {
            let id = self.ids.get(path);
            id.is_some_and(|id| self.folders[id.0 as usize].is_open)
        })
    }

    fn is_news(&self, known: &Known<'_>) -> bool {
        let Some(pack) = &self.pack else { return true };
        if known.path != known.real_path {
            let entry = pack.find(kind::ALIAS, known.path);
            return entry.and_then(|entry| entry.data()) != Some(known.real_path);
        }
        match (pack.find(kind::FOLDER, known.path), known.names) {
            (None, _) => true,
            (Some(entry), Some(names)) => entry.data() != Some(names),
            (Some(_), None) => false,
        }
    }

    /// The folder that the path leads to.
    fn real(&mut self, id: FolderId) -> Option<FolderId> {
        self.check(id, 0);
        match self.folders[id.0 as usize].state {
            State::Folder(real) => Some(real),
            State::Missing | State::Unknown => None,
        }
    }

    /// Makes sure that nothing has happened since the folder was looked at.
    fn check(&mut self, id: FolderId, links: u32) {
        if self.folders[id.0 as usize].checked >= self.valid_since {
            return;
        }
        let state = match self.state_from_pack(id) {
            Some(state) => state,
            None => self.state_from_disk(id, links),
        };
        let folder = &mut self.folders[id.0 as usize];
        folder.state = state;
        folder.checked = self.now;
    }

    /// What a frozen pack says of the path.
    fn state_from_pack(&mut self, id: FolderId) -> Option<State> {
        if !self.is_frozen {
            return None;
        }
        let (pack, folder) = (self.pack?, &mut self.folders[id.0 as usize]);
        if folder.is_ours || self.changes.concern(&folder.path) {
            return None;
        }
        if let Some(entry) = pack.find(kind::FOLDER, &folder.path) {
            folder.stamp = entry.stamp();
            return Some(State::Folder(id));
        }
        let real_path = pack.find(kind::ALIAS, &folder.path)?.data()?;
        let real = self.id(real_path);
        self.check(real, 0);
        Some(self.folders[real.0 as usize].state)
    }

    fn state_from_disk(&mut self, id: FolderId, links: u32) -> State {
        let path = self.folders[id.0 as usize].path.clone();
        self.lookups += 1;
        let stat = match fs::statat(CWD, &*path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => return State::Missing,
            Err(_) => return State::Unknown,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.state_of_folder(id, &path, &stat, links),
            FileType::Symlink if links < LINKS_MAX => self.follow(&path, links + 1),
            _ => State::Unknown,
        }
    }

    /// A folder that is not a link itself may still lie below one.
    fn state_of_folder(&mut self, id: FolderId, path: &[u8], stat: &Stat, links: u32) -> State {
        if let Some((parent, name)) = path::split(path) {
            let parent = self.id(parent);
            self.check(parent, links);
            match self.folders[parent.0 as usize].state {
                State::Folder(real) if real != parent => {
                    let real = path::join(&self.folders[real.0 as usize].path, name);
                    return self.state_at(&real, links);
                }
                State::Folder(_) => {}
                other => return other,
            }
        }
        let stamp = Stamp::of(stat);
        let folder = &mut self.folders[id.0 as usize];
        folder.is_open = rights::is_open_folder(stat);
        // Names that were read a moment after a change may lack the next one.
        let may_lack = matches!(folder.names, Names::Read(_)) && stamp.is_racy(folder.read_ns);
        if folder.stamp != stamp || may_lack {
            folder.stamp = stamp;
            folder.names = Names::NotRead;
        }
        State::Folder(id)
    }

    /// Where the link at `path` leads, component by component as the kernel does it.
    fn follow(&mut self, path: &[u8], links: u32) -> State {
        self.lookups += 1;
        let Ok(target) = fs::readlink(path, Vec::new()) else { return State::Unknown };
        let Some((parent, _)) = path::split(path) else { return State::Unknown };
        let start = if target.as_bytes().starts_with(b"/") { b"/" } else { parent };
        let mut state = self.state_at(start, links);
        for component in target.as_bytes().split(|byte| *byte == b'/') {
            let State::Folder(real) = state else { return state };
            let here = self.folders[real.0 as usize].path.clone();
            state = match component {
                b"" | b"." => state,
                b".." => {
                    self.state_at(path::split(&here).map_or(b"/", |(parent, _)| parent), links)
                }
                name => self.state_at(&path::join(&here, name), links),
            };
        }
        state
    }

    fn state_at(&mut self, path: &[u8], links: u32) -> State {
        let id = self.id(path);
        self.check(id, links);
        self.folders[id.0 as usize].state
    }

    /// Takes the names from the pack if its stamp is the folder's, else from the disk.
    fn read_names(&mut self, id: FolderId) {
        let names = match self.names_from_pack(id) {
            Some(listing) => Names::Packed(listing),
            None => self.names_from_disk(id).map_or(Names::Unreadable, Names::Read),
        };
        self.folders[id.0 as usize].names = names;
    }

    fn names_from_pack(&self, id: FolderId) -> Option<Listing<'static>> {
        let folder = &self.folders[id.0 as usize];
        let entry = self.pack?.find(kind::FOLDER, &folder.path)?;
        let is_current = entry.flags() & kind::LISTED != 0 && entry.stamp() == folder.stamp;
        if is_current { entry.data().map(Listing::new) } else { None }
    }

    fn names_from_disk(&mut self, id: FolderId) -> Option<Vec<u8>> {
        let folder = &mut self.folders[id.0 as usize];
        // Five calls: open, fstat, two getdents, close.
        self.lookups += 5;
        folder.read_ns = now_ns();
        let (stamp, names) = read_folder(&folder.path)?;
        folder.stamp = stamp;
        listing::encode(names)
    }
}

/// A name in a folder, and what it is.
type Named = (Vec<u8>, NameKind);

/// A folder's stamp before its names were read, and the names; `None` if there are too many, or if it
/// is no folder that can be read.
pub(crate) fn read_folder(path: &[u8]) -> Option<(Stamp, Vec<Named>)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    let stamp = Stamp::of(&fs::fstat(&open).ok()?);
    let mut names = Vec::new();
    for entry in Dir::new(open).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push((name.to_vec(), kind_of(entry.file_type())));
        }
        if names.len() > NAMES_MAX {
            return None;
        }
    }
    Some((stamp, names))
}

fn kind_of(file_type: FileType) -> NameKind {
    match file_type {
        FileType::RegularFile => NameKind::File,
        FileType::Directory => NameKind::Folder,
        FileType::Symlink => NameKind::Link,
        _ => NameKind::Other,
    }
}

/// Nanoseconds since 1970.
#[must_use]
pub fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Paths hash with XXH3: the table is asked several times a feature, by nobody who means harm.
#[derive(Debug, Default)]
pub(crate) struct PathHasher(u64);

impl Hasher for PathHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= xxh3_64(bytes);
    }
}
