//! The state of the disk, which advice consults where the recording leaves a gap: a search that ended early
//! says nothing about later folders.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::elf;

/// Queries about the current state of files. Tests implement their own.
pub trait Disk {
    /// Lists the names in a folder.
    fn list(&self, folder: &[u8]) -> Listing;

    /// Whether two paths lead to the same file or folder.
    fn is_same(&self, one: &[u8], other: &[u8]) -> bool;

    /// Whether there is a file or folder at the path.
    fn has(&self, path: &[u8]) -> bool;

    /// Whether a program has the set-group-ID bit, or has the set-user-ID bit and belongs to another user than `user`.
    fn has_rights(&self, program: &[u8], user: u32) -> bool;

    /// Whether the recorded command has just ended on this disk. Then files that the command found and that are missing
    /// now have been removed; otherwise they may show that the recording comes from another machine.
    fn is_recorded_disk(&self) -> bool {
        false
    }

    /// Returns the library folders in an ELF program: its `RUNPATH`, or else its `RPATH`.
    fn run_path(&self, program: &[u8]) -> Option<Vec<u8>>;
}

/// The content of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// The folder does not exist.
    Missing,
    /// The folder cannot be read, or has too many names.
    Unknown,
    /// All names in the folder.
    Names(HashSet<Vec<u8>>),
}

/// The disk of this machine.
#[derive(Debug)]
pub struct LocalDisk {
    /// The number of names that may still be read.
    names_left: Cell<usize>,
    is_recorded_disk: bool,
}

/// The most names that a report reads, some 50 ms of listing. `/usr/bin` has about 2,000.
const NAMES_MAX: usize = 1 << 16;
/// The largest program, in bytes, that is searched for its `RUNPATH`.
const PROGRAM_BYTES_MAX: u64 = 1 << 26;

impl Default for LocalDisk {
    fn default() -> Self {
        Self { names_left: Cell::new(NAMES_MAX), is_recorded_disk: false }
    }
}

impl LocalDisk {
    /// Creates the disk of a command that was just recorded on this machine.
    #[must_use]
    pub fn after_recording() -> Self {
        Self { is_recorded_disk: true, ..Self::default() }
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Disk for LocalDisk {
    fn list(&self, folder: &[u8]) -> Listing {
        let entries = match fs::read_dir(path(folder)) {
            Ok(entries) => entries,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Listing::Missing;
            }
            Err(_) => return Listing::Unknown,
        };
        let mut names = HashSet::new();
        for entry in entries {
            let left = self.names_left.get().checked_sub(1);
            let (Ok(entry), Some(left)) = (entry, left) else { return Listing::Unknown };
            self.names_left.set(left);
            names.insert(entry.file_name().as_bytes().to_vec());
        }
        Listing::Names(names)
    }

    fn is_same(&self, one: &[u8], other: &[u8]) -> bool {
        let id = |name| fs::metadata(path(name)).map(|file| (file.dev(), file.ino())).ok();
        id(one).is_some_and(|one| id(other) == Some(one))
    }

    fn has(&self, name: &[u8]) -> bool {
        fs::metadata(path(name)).is_ok()
    }

    fn has_rights(&self, program: &[u8], user: u32) -> bool {
        const OWNERS: u32 = 0o4000;
        // Without the group's execute bit, the set-group-ID bit has another meaning.
        const GROUPS: u32 = 0o2010;
        let has = |mode: u32, bits: u32| mode & bits == bits;
        fs::metadata(path(program)).is_ok_and(|file| {
            has(file.mode(), GROUPS) || (has(file.mode(), OWNERS) && file.uid() != user)
        })
    }

    fn is_recorded_disk(&self) -> bool {
        self.is_recorded_disk
    }

    fn run_path(&self, program: &[u8]) -> Option<Vec<u8>> {
        let program = path(program);
        let file = fs::metadata(program).ok()?;
        let is_read = file.is_file() && file.len() <= PROGRAM_BYTES_MAX;
        elf::run_path(&is_read.then(|| fs::read(program).ok())??)
    }
}
