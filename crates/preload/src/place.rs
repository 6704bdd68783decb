//! The folder of a user's templates: theirs alone.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

/// The files of a template's key, by what they end in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The socket.
    Socket,
    /// The key, line by line.
    Key,
    /// What the command's runs load.
    Plan,
    /// Held by the template, or by what makes one.
    Lock,
    /// Why there is no template.
    Refusal,
    /// What the command is, for people.
    Command,
    /// Which of its commands were no forks, and why.
    History,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Socket,
        Self::Key,
        Self::Plan,
        Self::Lock,
        Self::Refusal,
        Self::Command,
        Self::History,
    ];

    fn end(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Key => "key",
            Self::Plan => "plan",
            Self::Lock => "lock",
            Self::Refusal => "refusal",
            Self::Command => "command",
            Self::History => "history",
        }
    }
}

/// A file's times are set to the current one.
const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
    last_modification: Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
};

/// The folder.
#[derive(Debug)]
pub struct Place {
    folder: OwnedFd,
    path: PathBuf,
}

impl Place {
    /// The user's own, made if it is not there: in `XDG_RUNTIME_DIR`, or in the user's cache.
    ///
    /// # Errors
    /// There is no place for it, or it is not this user's alone.
    pub fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache =
            || absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        let runtime = absolute("XDG_RUNTIME_DIR").filter(|path| may_use(path));
        let above = runtime.or_else(cache).ok_or(io::ErrorKind::NotFound)?;
        if !may_use(&above) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Self::at(&above.join("thruway/preload"))
    }

    /// That folder, made if it is not there.
    ///
    /// # Errors
    /// As of [`of_user`](Self::of_user).
    pub fn at(path: &Path) -> io::Result<Self> {
        for folder in [path.parent(), Some(path)].into_iter().flatten() {
            match fs::mkdir(folder, Mode::RWXU) {
                Err(Errno::NOENT) => std::fs::create_dir_all(folder)?,
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let folder = fs::openat(CWD, path, flags, Mode::empty())?;
        let stat = fs::fstat(&folder)?;
        let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
        if !is_own || stat.st_mode & 0o077 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self { folder, path: path.to_owned() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a part of a key, through the open folder. It is short enough for a socket, and in
    /// this folder whatever becomes of the folder's name.
    #[must_use]
    pub fn file(&self, key: u128, part: Part) -> PathBuf {
        let folder = self.folder.as_raw_fd();
        format!("/proc/self/fd/{folder}/{key:032x}.{}", part.end()).into()
    }

    /// The path by which other processes know it.
    #[must_use]
    pub fn public_file(&self, key: u128, part: Part) -> PathBuf {
        self.path.join(format!("{key:032x}.{}", part.end()))
    }

    /// Writes a part of a key as a whole.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn write(&self, key: u128, part: Part, content: &[u8]) -> io::Result<()> {
        let path = self.file(key, part);
        let partial = path.with_extension(format!("{}.{}", part.end(), std::process::id()));
        let written = std::fs::write(&partial, content);
        let done = written.and_then(|()| std::fs::rename(&partial, path));
        if done.is_err() {
            // It would take the room that is missing.
            let _ = std::fs::remove_file(partial);
        }
        done
    }

    /// Reads a part of a key; `None` if it is not there.
    #[must_use]
    pub fn read(&self, key: u128, part: Part) -> Option<Vec<u8>> {
        std::fs::read(self.file(key, part)).ok()
    }

    /// When a part of a key was written, in nanoseconds since 1970; `None` if it is not there.
    #[must_use]
    pub fn written_ns(&self, key: u128, part: Part) -> Option<i64> {
        let stat = std::fs::metadata(self.file(key, part)).ok()?;
        Some(stat.mtime() * 1_000_000_000 + stat.mtime_nsec())
    }

    /// Removes a part of a key, if it is there.
    pub fn remove(&self, key: u128, part: Part) {
        let _ = std::fs::remove_file(self.file(key, part));
    }

    /// The keys that have that part.
    #[must_use]
    pub fn keys(&self, part: Part) -> Vec<u128> {
        let entries = std::fs::read_dir(format!("/proc/self/fd/{}", self.folder.as_raw_fd()));
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        let key = |name: OsString| {
            let (number, end) = name.to_str()?.split_once('.')?;
            (end == part.end()).then(|| u128::from_str_radix(number, 16).ok())?
        };
        let mut keys: Vec<_> = names.filter_map(key).collect();
        keys.sort_unstable();
        keys
    }

    /// Removes all parts of a key but its lock, which other processes may be waiting for.
    pub fn forget(&self, key: u128) {
        let parts = Part::ALL.into_iter().filter(|part| *part != Part::Lock);
        parts.for_each(|part| self.remove(key, part));
    }

    /// Removes the keys that were not used for longest, so that at most so many are left.
    pub fn forget_oldest(&self, keys_max: usize) {
        let used = |key| {
            std::fs::metadata(self.file(key, Part::Lock)).and_then(|lock| lock.modified()).ok()
        };
        let mut keys: Vec<_> =
            self.keys(Part::Lock).into_iter().map(|key| (used(key), key)).collect();
        keys.sort_unstable();
        let surplus = keys.len().saturating_sub(keys_max);
        for (_, key) in keys.into_iter().take(surplus) {
            if let Ok(Some(_lock)) = self.lock(key) {
                self.forget(key);
                self.remove(key, Part::Lock);
            }
        }
    }

    /// Takes the lock of a key; `None` if another process has it.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn lock(&self, key: u128) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = fs::openat(CWD, self.file(key, Part::Lock), flags, Mode::RUSR | Mode::WUSR)?;
        match fs::flock(&file, fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // It says when the key was used last.
                let _ = fs::futimens(&file, &NOW);
                Ok(Some(file))
            }
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Whether this user may make something in a folder. `su` and `sudo -E` leave root the variables of another
/// user, whose folder it stays.
fn may_use(path: &Path) -> bool {
    let folder = path.ancestors().find_map(|folder| std::fs::metadata(folder).ok());
    !rustix::process::geteuid().is_root() || folder.is_some_and(|folder| folder.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_others_may_enter_is_not_used() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("thruway/preload");
        Place::at(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(Place::at(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let link = above.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Place::at(&link).is_err());
    }

    #[test]
    fn another_users_folder_is_left_alone() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let above = tempfile::tempdir().unwrap();
        let [own, others] = ["own", "others"].map(|name| above.path().join(name));
        [&own, &others].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        std::os::unix::fs::chown(&others, Some(65534), None).unwrap();
        let place = |runtime: &Path, cache: &Path| {
            let path = |name: &str| match name {
                "XDG_RUNTIME_DIR" => Some(runtime.into()),
                "XDG_CACHE_HOME" => Some(cache.into()),
                _ => None,
            };
            Place::of_user(path).map(|place| place.path().to_owned()).map_err(|error| error.kind())
        };
        assert_eq!(place(&others, &own), Ok(own.join("thruway/preload")));
        assert_eq!(place(&others, &others), Err(io::ErrorKind::PermissionDenied));
        assert!(std::fs::read_dir(others).unwrap().next().is_none());
    }

    #[test]
    fn what_was_written_is_read_and_its_key_is_listed() {
        let above = tempfile::tempdir().unwrap();
        let place = Place::at(&above.path().join("a/b")).unwrap();
        place.write(7, Part::Plan, b"plan").unwrap();
        assert_eq!(place.read(7, Part::Plan).as_deref(), Some(&b"plan"[..]));
        assert_eq!((place.keys(Part::Plan), place.keys(Part::Key)), (vec![7], vec![]));
        place.remove(7, Part::Plan);
        assert_eq!(place.read(7, Part::Plan), None);
    }

    #[test]
    fn keys_without_a_template_are_forgotten_in_their_order() {
        let above = tempfile::tempdir().unwrap();
        let place = Place::at(&above.path().join("a/b")).unwrap();
        let held = place.lock(1).unwrap();
        for key in [3, 2, 4] {
            std::thread::sleep(std::time::Duration::from_millis(10));
            drop(place.lock(key).unwrap());
            place.write(key, Part::Plan, b"").unwrap();
        }
        place.forget_oldest(2);
        assert_eq!((place.keys(Part::Lock), place.keys(Part::Plan)), (vec![1, 2, 4], vec![2, 4]));
        drop(held);
        place.forget_oldest(1);
        assert_eq!(place.keys(Part::Lock), [4]);
    }

    #[test]
    fn a_lock_is_held_by_one() {
        let above = tempfile::tempdir().unwrap();
        let place = Place::at(&above.path().join("a/b")).unwrap();
        let lock = place.lock(1).unwrap();
        assert!(lock.is_some() && place.lock(1).unwrap().is_none());
        assert!(place.lock(2).unwrap().is_some());
        drop(lock);
        assert!(place.lock(1).unwrap().is_some());
    }
}
