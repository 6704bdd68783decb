//! What advice asks of the disk where the recording does not know: a search that ended early says
//! nothing about the folders behind.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::elf;

/// Answers about files as they are now. A test has one of its own.
pub trait Disk {
    /// The names in a folder.
    fn list(&self, folder: &[u8]) -> Listing;

    /// Whether two paths lead to the same file or folder.
    fn is_same(&self, one: &[u8], other: &[u8]) -> bool;

    /// Whether there is a file or a folder.
    fn has(&self, path: &[u8]) -> bool;

    /// Whether a program gets the rights of its owner or group, and is not `user`'s own.
    fn has_rights(&self, program: &[u8], user: u32) -> bool;

    /// Whether it is the disk of the command, a moment after its end: what is gone was there.
    fn is_of_command(&self) -> bool {
        false
    }

    /// Where a program of the format ELF looks for libraries: its `RUNPATH`, or its `RPATH`.
    fn run_path(&self, program: &[u8]) -> Option<Vec<u8>>;
}

/// What is in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// There is no such folder.
    Missing,
    /// It may not be read, or holds more than is looked at.
    Unknown,
    /// All its names.
    Names(HashSet<Vec<u8>>),
}

/// The disk of this machine.
#[derive(Debug)]
pub struct LocalDisk {
    /// How many more names are looked at.
    names_left: Cell<usize>,
    is_of_command: bool,
}

/// A report looks at no more names than these, some 50 ms of listing; `/usr/bin` has some 2,000.
const NAMES_MAX: usize = 1 << 16;
/// The largest program that is read for its `RUNPATH`.
const PROGRAM_BYTES_MAX: u64 = 1 << 26;

impl Default for LocalDisk {
    fn default() -> Self {
        Self { names_left: Cell::new(NAMES_MAX), is_of_command: false }
    }
}

impl LocalDisk {
    /// This machine's disk for a command that has just run on it.
    #[must_use]
    pub fn of_command() -> Self {
        Self { is_of_command: true, ..Self::default() }
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
        // Without the right to run, the bit means something else.
        const GROUPS: u32 = 0o2010;
        let has = |mode: u32, bits: u32| mode & bits == bits;
        fs::metadata(path(program)).is_ok_and(|file| {
            has(file.mode(), GROUPS) || (has(file.mode(), OWNERS) && file.uid() != user)
        })
    }

    fn is_of_command(&self) -> bool {
        self.is_of_command
    }

    fn run_path(&self, program: &[u8]) -> Option<Vec<u8>> {
        let program = path(program);
        let file = fs::metadata(program).ok()?;
        let is_read = file.is_file() && file.len() <= PROGRAM_BYTES_MAX;
        elf::run_path(&is_read.then(|| fs::read(program).ok())??)
    }
}
