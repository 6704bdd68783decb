//! The lister of POSIX systems, with one look-up per candidate. On Linux a candidate is examined through an
//! open descriptor.

use std::fs::File;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, OwnedFd};

#[cfg(target_os = "linux")]
use rustix::fs::Dir;
use rustix::fs::{self, CWD, FileType, Mode, OFlags};
#[cfg(not(target_os = "linux"))]
use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;

use super::interpreter::{self, Programs};
#[cfg(target_os = "linux")]
use super::{FolderStamp, Folders};
use super::{Hits, Lister, LookupFailure, Obstacle, Query};

/// Looks up candidates one by one, as `execvp` does. On Linux each look-up opens the file without access to
/// its content (`O_PATH`), and the descriptor tells whether the file can be executed. On other systems an
/// existing candidate costs two look-ups by name.
#[derive(Debug, Default)]
pub struct Posix {
    lookups: u64,
}

impl Lister for Posix {
    fn look(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        let mut hits = Hits::default();
        let mut path = base.to_vec();
        if !matches!(base.last(), None | Some(b'/')) {
            path.push(b'/');
        }
        path.extend_from_slice(query.stem());
        let length = path.len();
        for (place, suffix) in query.suffixes().iter().enumerate() {
            path.truncate(length);
            path.extend_from_slice(suffix);
            match self.find(&path) {
                Ok(()) => hits.add(place),
                Err(LookupFailure::Missing) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(hits)
    }

    fn lookups(&self) -> u64 {
        self.lookups
    }

    fn obstacle(&mut self, path: &[u8]) -> Option<Obstacle> {
        interpreter::obstacle(path, &mut Host)
    }
}

impl Posix {
    /// Finds a file that this process may execute.
    #[cfg(target_os = "linux")]
    fn find(&mut self, path: &[u8]) -> Result<(), LookupFailure> {
        self.lookups += 1;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = fs::openat(CWD, path, flags, Mode::empty()).map_err(failure)?;
        check_runnable(&file)
    }

    /// Finds a file that this process may execute.
    #[cfg(not(target_os = "linux"))]
    fn find(&mut self, path: &[u8]) -> Result<(), LookupFailure> {
        self.lookups += 1;
        fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).map_err(failure)?;
        self.lookups += 1;
        let stat = fs::stat(path).map_err(failure)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if is_file { Ok(()) } else { Err(LookupFailure::Denied) }
    }
}

/// The files of this system.
struct Host;

impl Programs for Host {
    fn check(&mut self, path: &[u8]) -> Result<(), LookupFailure> {
        Posix::default().find(path)
    }

    fn read(&mut self, path: &[u8]) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        fs::openat(CWD, path, flags, Mode::empty()).ok().map(File::from)
    }
}

#[cfg(target_os = "linux")]
impl Folders for Posix {
    fn stamp(&mut self, base: &[u8]) -> Result<FolderStamp, LookupFailure> {
        self.lookups += 1;
        let stat = fs::stat(base).map_err(failure)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(LookupFailure::Missing);
        }
        Ok(FolderStamp::of(&stat))
    }

    fn keeps_stamps(&mut self, base: &[u8]) -> bool {
        self.lookups += 1;
        fs::statfs(base).is_ok_and(|system| KEEP_STAMPS.contains(&system.f_type))
    }

    fn list(
        &mut self,
        base: &[u8],
        show: &mut dyn FnMut(&[u8], bool),
    ) -> Result<(), LookupFailure> {
        self.lookups += 2;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::open(base, flags, Mode::empty()).map_err(failure)?;
        for entry in Dir::new(folder).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            show(entry.file_name().to_bytes(), entry.file_type() == FileType::Directory);
        }
        Ok(())
    }

    fn list_is_enough(&self) -> bool {
        false
    }
}

/// Local file systems that update a folder's times with each change of its entries: ext4 and its
/// predecessors, XFS, Btrfs, F2FS, ZFS, bcachefs, tmpfs, ramfs, overlayfs, SquashFS, EROFS.
#[cfg(target_os = "linux")]
pub(super) const KEEP_STAMPS: [i64; 11] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
    0x0102_1994,
    0x8584_58F6,
    0x794C_7630,
    0x7371_7368,
    0xE0F5_E1E2,
];

/// Checks, through the descriptor rather than the name, that a file may be executed by this process.
#[cfg(target_os = "linux")]
pub(super) fn check_runnable(file: &OwnedFd) -> Result<(), LookupFailure> {
    let stat = fs::fstat(file).map_err(failure)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(LookupFailure::Denied);
    }
    thruway_sys::access::may_execute(file.as_fd())
        .map_err(|error| failure(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

/// Classifies errors as `execvp` does.
pub(super) fn failure(errno: Errno) -> LookupFailure {
    match errno {
        Errno::ACCESS => LookupFailure::Denied,
        Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::TIMEDOUT | Errno::STALE => {
            LookupFailure::Missing
        }
        errno => LookupFailure::Failed(errno.raw_os_error()),
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::search::{Places, Plan, Rules, Search};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    const FOLDERS: usize = 211;
    const FILES: usize = 40;

    /// Creates `FOLDERS` folders of `FILES` files; `first` is in the first folder, `deep` in the 197th.
    fn folders() -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut path = Vec::new();
        for number in 0..FOLDERS {
            let base = folder.path().join(format!("d{number:03}"));
            std::fs::create_dir(&base).unwrap();
            (0..FILES).for_each(|file| std::fs::write(base.join(format!("f{file}")), "").unwrap());
            path.push(base.to_str().unwrap().to_owned());
        }
        program(&folder.path().join("d000/first"), 0o755);
        program(&folder.path().join("d196/deep"), 0o755);
        (folder, path.join(":"))
    }

    fn program(path: &Path, mode: u32) {
        std::fs::write(path, "").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn plan(name: &str, path: &str) -> Plan {
        let places = Places { path: path.as_bytes(), before: &[] };
        Plan::new(&Rules::exec(), name.as_bytes(), &places).unwrap()
    }

    #[test]
    fn a_search_asks_one_question_a_folder() {
        let (_folder, path) = folders();
        for (name, lookups) in [("first", 1), ("deep", 197), ("miss", 211)] {
            let mut posix = Posix::default();
            let plan = plan(name, &path);
            let found = Search::new(&plan, &mut posix).next();
            assert_eq!((found.is_some(), posix.lookups()), (name != "miss", lookups), "{name}");
        }
    }

    #[test]
    fn files_that_may_not_be_run_are_skipped_and_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let path = |sub: &str| folder.path().join(sub);
        for sub in ["a", "b/x", "c", "d"] {
            std::fs::create_dir_all(path(sub)).unwrap();
        }
        program(&path("a/x"), 0o644);
        program(&path("c/x"), 0o755);
        symlink("nowhere", path("d/x")).unwrap();
        let names = ["none", "a", "b", "a/x", "c", "d"].map(|sub| path(sub).display().to_string());
        let plan = plan("x", &names.join(":"));
        let mut posix = Posix::default();
        let mut search = Search::new(&plan, &mut posix);
        let found = search.next().unwrap().unwrap();
        assert_eq!(found.path, path("c/x").to_str().unwrap().as_bytes());
        let denied = ["a/x", "b/x"].map(|sub| path(sub).display().to_string().into_bytes());
        assert_eq!(search.denied(), denied);
        assert_eq!(search.next(), None);
    }

    #[test]
    fn a_cycle_of_links_ends_the_search_as_it_ends_execvp() {
        let folder = tempfile::tempdir().unwrap();
        symlink("x", folder.path().join("x")).unwrap();
        let path = folder.path().to_str().unwrap();
        let plan = plan("x", &format!("{path}:/bin"));
        let mut posix = Posix::default();
        let mut search = Search::new(&plan, &mut posix);
        let error = search.next().unwrap().unwrap_err();
        assert_eq!(error.errno(), Some(Errno::LOOP.raw_os_error()));
        assert!(search.next().is_none());
    }
}
