//! The state that was found at a path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use thruway_pack::Stamp;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The size above which a lock file is compared by its stamp alone: reading it at each command would take too long.
const LOCK_FILE_BYTES_MAX: u64 = 1 << 20;

/// The state found at a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    pub(super) answer: Answer,
    pub(super) level: Level,
    /// Whether the file changed so recently that another change could leave the same stamp.
    pub(super) is_unsettled: bool,
    /// The digest of the content at that state, for a lock file of which only the content counts.
    pub(super) content: Option<u128>,
}

/// How much of a state has to stay the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Kind,
    Rights,
    Content,
    Whole,
}

/// A digest of the names in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamesDigest {
    digest: u128,
    /// Whether the digest includes the type of each entry.
    pub(super) has_kinds: bool,
}

pub(super) type Answer = Result<State, Errno>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub(super) stamp: Stamp,
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

    pub(super) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    pub(super) fn has_same_rights(&self, other: &Self) -> bool {
        (self.mode, self.owner) == (other.mode, other.owner)
    }
}

impl Observation {
    /// The state of a path without a file.
    pub(super) const MISSING: Self =
        Self { answer: Err(Errno::NOENT), level: Level::Kind, is_unsettled: false, content: None };

    pub(super) fn is_link(&self) -> bool {
        self.answer.is_ok_and(|state| state.file_type() == FileType::Symlink)
    }
}

/// Returns the state of a path.
pub(super) fn look(path: &[u8], follows: bool) -> Answer {
    let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    fs::statat(CWD, path, flags).map(|stat| State::of(&stat))
}

/// Returns a digest of a file's content; `None` if the path's state is not `answer` before and after the file is
/// read, or if the file is too large or not a regular one.
pub(super) fn content_at(path: &[u8], answer: Answer) -> Option<u128> {
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
pub(super) fn names(path: &[u8]) -> Option<NamesDigest> {
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
