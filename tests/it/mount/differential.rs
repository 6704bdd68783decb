//! Random operations on a mount, and on a plain folder beside its source. Results, errors and the tree at the end are
//! the same.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    self, AtFlags, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom,
    StatxFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::{self, Errno, IoSlice, ReadWriteFlags};

use super::fixture::{Mounted, wait_until};

/// Numbers that look random and are the same in each run.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }
}

/// One of the two folders, with files that are kept open in it.
pub(super) struct Side {
    base: OwnedFd,
    modes: &'static [u32],
    open: BTreeMap<u64, OwnedFd>,
}

/// The result of an operation, as text to compare.
type OperationResult = Result<String, Errno>;

const FOLDERS: [&str; 4] = [".", "a", "b", "a/c"];
const NAMES: [&str; 5] = ["x", "y", "z", "c", "longer name with blanks"];
pub(super) const MODES: [u32; 4] = [0o644, 0o600, 0o777, 0o0];
const SETID_MODES: [u32; 4] = [0o4755, 0o2755, 0o6777, 0o2644];
const FILES: u64 = 4;

impl Side {
    pub(super) fn new(folder: &Path, modes: &'static [u32]) -> Self {
        Self { base: File::open(folder).unwrap().into(), modes, open: BTreeMap::new() }
    }

    /// Makes the folders in which the operations take place.
    pub(super) fn make_folders(&self) {
        for name in FOLDERS.iter().skip(1) {
            fs::mkdirat(&self.base, *name, Mode::from_raw_mode(0o755)).unwrap();
        }
    }

    /// Runs the operation that the numbers determine. Both sides get the same numbers.
    pub(super) fn run(&mut self, numbers: &mut Numbers) -> (String, OperationResult) {
        let name = format!("{}/{}", numbers.of(&FOLDERS), numbers.of(&NAMES));
        let other = format!("{}/{}", numbers.of(&FOLDERS), numbers.of(&NAMES));
        let (file, at) = (numbers.below(FILES), numbers.below(20_000));
        let length = usize::try_from(numbers.below(9000)).unwrap();
        let mode = Mode::from_raw_mode(numbers.of(self.modes));
        let kind = numbers.below(27);
        let said = match kind {
            0..=13 => self.on_names(kind, &name, &other, mode, at),
            _ => self.on_files(kind, &name, file, at, length, mode),
        };
        (format!("{kind} {name} {other} file {file} at {at} length {length} {mode:?}"), said)
    }

    fn on_names(&self, kind: u64, name: &str, other: &str, mode: Mode, at: u64) -> OperationResult {
        let base = self.base.as_fd();
        let link = CString::new(name).unwrap();
        let done = match kind {
            0 => fs::mkdirat(base, name, mode),
            1 => fs::unlinkat(base, name, AtFlags::REMOVEDIR),
            2 => fs::unlinkat(base, name, AtFlags::empty()),
            3 => fs::renameat(base, name, base, other),
            4 => fs::renameat_with(base, name, base, other, RenameFlags::NOREPLACE),
            5 => fs::renameat_with(base, name, base, other, RenameFlags::EXCHANGE),
            6 => fs::linkat(base, name, base, other, AtFlags::empty()),
            7 => fs::symlinkat(&link, base, other),
            8 => fs::chmodat(base, name, mode, AtFlags::empty()),
            9 => {
                let (uid, gid) = (Uid::from_raw(at as u32 % 3), Gid::from_raw(at as u32 % 2));
                fs::chownat(base, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            }
            10 => {
                let time = Timespec { tv_sec: at as i64 - 500, tv_nsec: at as i64 };
                let times = Timestamps { last_access: time, last_modification: time };
                fs::utimensat(base, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            11 => fs::mknodat(base, name, FileType::Fifo, mode, 0),
            12 => {
                return fs::readlinkat(base, name, Vec::new()).map(|target| format!("{target:?}"));
            }
            _ => return self.stat(name),
        };
        done.map(|()| String::new())
    }

    fn on_files(
        &mut self,
        kind: u64,
        name: &str,
        file: u64,
        at: u64,
        length: usize,
        mode: Mode,
    ) -> OperationResult {
        let flags = match kind {
            14 => OFlags::RDWR | OFlags::CREATE,
            15 => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            16 => OFlags::WRONLY | OFlags::TRUNC,
            17 => OFlags::RDONLY,
            18 => OFlags::WRONLY | OFlags::APPEND,
            19 => OFlags::RDWR | OFlags::TMPFILE,
            _ => return self.on_open_file(kind, name, file, at, length, mode),
        };
        // Without NONBLOCK the open of a FIFO would wait.
        let common = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let flags = flags | common;
        let name = if kind == 19 { "." } else { name };
        // A FIFO opens for writing only while it has a reader. Whether a reader that was closed is gone is chance: a
        // program that another test starts has a copy of each descriptor until it is executed. So there is always one.
        let _reader = self.is_fifo(name).then(|| fs::openat(&self.base, name, common, mode));
        let opened = fs::openat(&self.base, name, flags, mode)?;
        self.open.insert(file, opened);
        Ok(String::new())
    }

    fn is_fifo(&self, name: &str) -> bool {
        let stat = fs::statat(&self.base, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
    }

    fn on_open_file(
        &mut self,
        kind: u64,
        name: &str,
        file: u64,
        at: u64,
        length: usize,
        mode: Mode,
    ) -> OperationResult {
        let Some(open) = self.open.get(&file) else { return self.list(name) };
        let mut buffer = vec![0; length];
        let done = match kind {
            20 => {
                buffer.fill(b'a' + (at % 26) as u8);
                return io::pwrite(open, &buffer, at).map(|written| written.to_string());
            }
            21 => {
                let read = io::pread(open, &mut buffer, at)?;
                buffer.truncate(read);
                return Ok(format!("{read} bytes, sum {}", checksum(&buffer)));
            }
            22 => fs::ftruncate(open, at),
            23 => fs::fallocate(open, FallocateFlags::KEEP_SIZE, at, length as u64),
            // The offset of the hole depends on the data that the source has written to its disk so far. The reply for
            // a folder depends on the file system.
            24 if kind_of(open) == FileType::RegularFile => {
                return fs::seek(open, SeekFrom::Hole(at)).map(|found| (found >= at).to_string());
            }
            25 => fs::fchmod(open, mode),
            _ => return self.on_two(name, file, at, length),
        };
        done.map(|()| String::new())
    }

    /// Operations with extended attributes, or with two open files.
    fn on_two(&mut self, name: &str, file: u64, at: u64, length: usize) -> OperationResult {
        let open = &self.open[&file];
        match at % 8 {
            0 => fs::fsetxattr(open, "user.thruway", &vec![7; length % 200], XattrFlags::empty())
                .map(|()| String::new()),
            1 => {
                let mut value = vec![0; 200];
                fs::fgetxattr(open, "user.thruway", value.as_mut_slice()).map(|l| l.to_string())
            }
            2 => fs::fremovexattr(open, "user.thruway").map(|()| String::new()),
            3 => {
                let mut names = vec![0; 200];
                let length = fs::flistxattr(open, names.as_mut_slice())?;
                Ok(String::from_utf8_lossy(&names[..length]).into_owned())
            }
            4 => {
                let other = self.open.get(&((file + 1) % FILES)).ok_or(Errno::BADF)?;
                let copied = fs::copy_file_range(open, None, other, None, length)?;
                Ok(copied.to_string())
            }
            5 => {
                let append = ReadWriteFlags::APPEND;
                let text = IoSlice::new(b"appended");
                io::pwritev2(open, &[text], 0, append).map(|written| written.to_string())
            }
            6 => {
                fs::linkat(open, "", &self.base, name, AtFlags::EMPTY_PATH).map(|()| String::new())
            }
            _ => {
                self.open.remove(&file);
                Ok(String::new())
            }
        }
    }

    /// Formats the fields of `statx`, except those that differ between any two files.
    fn stat(&self, name: &str) -> OperationResult {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = fs::statx(&self.base, name, flags, StatxFlags::BASIC_STATS)?;
        let is_folder = FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::Directory;
        Ok(format!(
            "{:o} {} {} {} {}",
            stat.stx_mode,
            if is_folder { 0 } else { stat.stx_nlink },
            stat.stx_uid,
            stat.stx_gid,
            if is_folder { 0 } else { stat.stx_size }
        ))
    }

    /// The names in a folder.
    fn list(&self, name: &str) -> OperationResult {
        let folder = Path::new(name).parent().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::openat(&self.base, folder, flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            names.push(format!("{:?} {:?}", entry.file_name(), entry.file_type()));
        }
        names.sort();
        Ok(names.join("\n"))
    }

    /// Formats the whole tree: every name with its kind and its content.
    pub(super) fn tree(&self) -> String {
        let mut tree = String::new();
        let mut folders = vec![String::from(".")];
        while let Some(folder) = folders.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = fs::openat(&self.base, folder.as_str(), flags, Mode::empty()).unwrap();
            let mut names: Vec<_> = Dir::read_from(open)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
                .filter(|name| name != "." && name != "..")
                .collect();
            names.sort();
            for name in names {
                let path = format!("{folder}/{name}");
                tree.push_str(&format!("{path}: {:?} {}\n", self.stat(&path), self.text(&path)));
                if self.kind(&path) == FileType::Directory {
                    folders.push(path);
                }
            }
        }
        tree
    }

    fn kind(&self, path: &str) -> FileType {
        let stat = fs::statat(&self.base, path, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        FileType::from_raw_mode(stat.st_mode)
    }

    /// Returns the text of a regular file. Other files have no bytes that both sides share.
    fn text(&self, path: &str) -> String {
        if self.kind(path) != FileType::RegularFile {
            return String::new();
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut bytes = vec![0; 40_000];
        match fs::openat(&self.base, path, flags, Mode::empty()).map(|f| io::read(f, &mut bytes)) {
            Ok(Ok(length)) => format!("{length} bytes, sum {}", checksum(&bytes[..length])),
            other => format!("{other:?}"),
        }
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum: u64, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

pub(super) fn assert_same_tree(ours: &str, theirs: &str, place: &str) {
    let differ = ours.lines().zip(theirs.lines()).find(|(our, their)| our != their);
    assert_eq!(differ, None, "{place}");
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{place}");
}

fn kind_of(file: &OwnedFd) -> FileType {
    FileType::from_raw_mode(fs::fstat(file).unwrap().st_mode)
}

/// Applies `operations` to both folders and compares the results.
pub(super) fn compare(mounted: &Mounted, modes: &'static [u32], seed: u64, operations: usize) {
    let plain = mounted.folder.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    for base in [&plain, &mounted.target("")] {
        FOLDERS.iter().skip(1).for_each(|name| std::fs::create_dir(base.join(name)).unwrap());
    }
    let (mut ours, mut theirs) = (Side::new(&mounted.target(""), modes), Side::new(&plain, modes));
    let mut history = Vec::new();
    for step in 0..operations {
        let seed = (seed << 32 | step as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (operation, expected) = theirs.run(&mut Numbers(seed));
        let (_, said) = ours.run(&mut Numbers(seed));
        history.push(format!("{operation}: {expected:?}"));
        let recent = history[history.len().saturating_sub(12)..].join("\n");
        assert_eq!(said, expected, "seed {seed}, step {step}, after\n{recent}");
    }
    let source = Side::new(&mounted.source(""), modes);
    assert_same_tree(&ours.tree(), &theirs.tree(), &format!("seed {seed}"));
    assert_same_tree(&source.tree(), &theirs.tree(), &format!("seed {seed}, in the source"));
    drop((ours, theirs));
    std::fs::remove_dir_all(&plain).unwrap();
    for entry in std::fs::read_dir(mounted.source("")).unwrap().flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().unwrap().is_dir();
        let name = Path::new(std::ffi::OsStr::from_bytes(entry.file_name().as_bytes())).to_owned();
        let ours = mounted.target(name.to_str().unwrap());
        if is_folder { std::fs::remove_dir_all(ours) } else { std::fs::remove_file(ours) }.unwrap();
        assert!(path.symlink_metadata().is_err());
    }
}

/// Returns the seeds to try. A long run sets `DIFFERENTIAL_SEEDS`.
pub(super) fn seeds(short: u64) -> std::ops::RangeInclusive<u64> {
    let long = std::env::var("DIFFERENTIAL_SEEDS").ok().and_then(|text| text.parse().ok());
    1..=long.unwrap_or(short)
}

#[test]
fn a_live_mount_behaves_as_a_plain_folder() {
    let Some(mounted) = Mounted::new(&["--suid"]) else { return };
    seeds(6).for_each(|seed| compare(&mounted, &MODES, seed, 1500));
    assert!(mounted.status("counts")["opens_passthrough"].as_u64() > Some(100));
}

#[test]
fn a_mount_without_passthrough_behaves_as_a_plain_folder() {
    let Some(mounted) = Mounted::new(&["--suid", "--passthrough", "off"]) else { return };
    seeds(3).for_each(|seed| compare(&mounted, &SETID_MODES, seed, 1500));
    assert_eq!(mounted.status("counts")["opens_passthrough"], 0);
}

#[test]
fn a_view_of_several_sources_behaves_as_a_plain_folder() {
    let sources = &["source", "empty", "also_empty"];
    let Some(mounted) = Mounted::with_sources(sources, &["--suid"], |_| ()) else { return };
    seeds(3).for_each(|seed| compare(&mounted, &MODES, seed, 1500));
    // A late report of a change drops the merged folder; the next look at a name merges it again.
    let looks = Cell::new(0);
    wait_until("the root is known as a merged folder", || {
        looks.set(looks.get() + 1);
        let name = format!("absent {}", looks.get());
        assert!(mounted.target(&name).symlink_metadata().is_err());
        mounted.status("merged_folders").as_u64() >= Some(1)
    });
}
