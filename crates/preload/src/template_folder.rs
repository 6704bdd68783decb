//! The folder that holds a user's templates. No other user may enter it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

/// The files of a key; each kind has its own extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFile {
    /// The socket of the template.
    Socket,
    /// The key, line by line.
    Key,
    /// The plan: the features that runs of the command load.
    Plan,
    /// The lock, held by the template or by the process that starts one.
    Lock,
    /// The reason why there is no template.
    Refusal,
    /// The command, for display.
    Command,
    /// The commands that were not forked, and the reasons.
    History,
}

impl KeyFile {
    /// All kinds of files.
    pub const ALL: [Self; 7] = [
        Self::Socket,
        Self::Key,
        Self::Plan,
        Self::Lock,
        Self::Refusal,
        Self::Command,
        Self::History,
    ];

    fn extension(self) -> &'static str {
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

/// Sets both of a file's times to the current time.
const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
    last_modification: Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
};

/// An open folder of templates.
#[derive(Debug)]
pub struct TemplateFolder {
    folder: OwnedFd,
    path: PathBuf,
}

impl TemplateFolder {
    /// Opens the user's folder in `XDG_RUNTIME_DIR`, or else in the user's cache. Creates a missing folder.
    ///
    /// # Errors
    /// `NotFound`: neither variable names an absolute path. `PermissionDenied`: the folder belongs to another
    /// user, or others may enter it.
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

    /// Opens the folder at `path`. Creates a missing folder.
    ///
    /// # Errors
    /// `PermissionDenied`: the folder belongs to another user, or others may enter it.
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

    /// The path that the folder was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file through the open folder. The path is short enough for a socket address and
    /// stays valid when the folder is renamed.
    #[must_use]
    pub fn file(&self, key: u128, kind: KeyFile) -> PathBuf {
        let folder = self.folder.as_raw_fd();
        format!("/proc/self/fd/{folder}/{key:032x}.{}", kind.extension()).into()
    }

    /// Returns the path of a file as other processes can use it.
    #[must_use]
    pub fn public_file(&self, key: u128, kind: KeyFile) -> PathBuf {
        self.path.join(format!("{key:032x}.{}", kind.extension()))
    }

    /// Replaces a file of a key atomically.
    ///
    /// # Errors
    /// The file system's error.
    pub fn write(&self, key: u128, kind: KeyFile, content: &[u8]) -> io::Result<()> {
        let path = self.file(key, kind);
        let partial = path.with_extension(format!("{}.{}", kind.extension(), std::process::id()));
        let written = std::fs::write(&partial, content);
        let done = written.and_then(|()| std::fs::rename(&partial, path));
        if done.is_err() {
            // A partial file would occupy the space that ran out.
            let _ = std::fs::remove_file(partial);
        }
        done
    }

    /// Reads a file of a key; `None` without one.
    #[must_use]
    pub fn read(&self, key: u128, kind: KeyFile) -> Option<Vec<u8>> {
        std::fs::read(self.file(key, kind)).ok()
    }

    /// Returns when a file of a key was written, in nanoseconds since 1970; `None` without one.
    #[must_use]
    pub fn written_ns(&self, key: u128, kind: KeyFile) -> Option<i64> {
        let stat = std::fs::metadata(self.file(key, kind)).ok()?;
        Some(stat.mtime() * 1_000_000_000 + stat.mtime_nsec())
    }

    /// Removes a file of a key, if it exists.
    pub fn remove(&self, key: u128, kind: KeyFile) {
        let _ = std::fs::remove_file(self.file(key, kind));
    }

    /// Returns the keys that have a file of that kind, in ascending order.
    #[must_use]
    pub fn keys(&self, kind: KeyFile) -> Vec<u128> {
        let entries = std::fs::read_dir(format!("/proc/self/fd/{}", self.folder.as_raw_fd()));
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        let key = |name: OsString| {
            let (number, end) = name.to_str()?.split_once('.')?;
            (end == kind.extension()).then(|| u128::from_str_radix(number, 16).ok())?
        };
        let mut keys: Vec<_> = names.filter_map(key).collect();
        keys.sort_unstable();
        keys
    }

    /// Removes all files of a key except its lock, for which other processes may be waiting.
    pub fn forget(&self, key: u128) {
        let kinds = KeyFile::ALL.into_iter().filter(|kind| *kind != KeyFile::Lock);
        kinds.for_each(|kind| self.remove(key, kind));
    }

    /// Removes the least recently used keys until at most `keys_max` are left. Keys whose lock is held stay.
    pub fn forget_oldest(&self, keys_max: usize) {
        let used = |key| {
            std::fs::metadata(self.file(key, KeyFile::Lock)).and_then(|lock| lock.modified()).ok()
        };
        let mut keys: Vec<_> =
            self.keys(KeyFile::Lock).into_iter().map(|key| (used(key), key)).collect();
        keys.sort_unstable();
        let surplus = keys.len().saturating_sub(keys_max);
        for (_, key) in keys.into_iter().take(surplus) {
            if let Ok(Some(_lock)) = self.lock(key) {
                self.forget(key);
                self.remove(key, KeyFile::Lock);
            }
        }
    }

    /// Takes the lock of a key; `None` if another process holds the lock.
    ///
    /// # Errors
    /// The file system's error.
    pub fn lock(&self, key: u128) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = fs::openat(CWD, self.file(key, KeyFile::Lock), flags, Mode::RUSR | Mode::WUSR)?;
        match fs::flock(&file, fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // `forget_oldest` sorts keys by this time.
                let _ = fs::futimens(&file, &NOW);
                Ok(Some(file))
            }
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Whether this user may create files in a folder. `su` and `sudo -E` leave root with the variables of
/// another user, and root must not create files in that user's folders.
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
        TemplateFolder::at(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(TemplateFolder::at(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let link = above.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(TemplateFolder::at(&link).is_err());
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
            TemplateFolder::of_user(path)
                .map(|place| place.path().to_owned())
                .map_err(|error| error.kind())
        };
        assert_eq!(place(&others, &own), Ok(own.join("thruway/preload")));
        assert_eq!(place(&others, &others), Err(io::ErrorKind::PermissionDenied));
        assert!(std::fs::read_dir(others).unwrap().next().is_none());
    }

    #[test]
    fn a_written_file_is_read_and_its_key_is_listed() {
        let above = tempfile::tempdir().unwrap();
        let place = TemplateFolder::at(&above.path().join("a/b")).unwrap();
        place.write(7, KeyFile::Plan, b"plan").unwrap();
        assert_eq!(place.read(7, KeyFile::Plan).as_deref(), Some(&b"plan"[..]));
        assert_eq!((place.keys(KeyFile::Plan), place.keys(KeyFile::Key)), (vec![7], vec![]));
        place.remove(7, KeyFile::Plan);
        assert_eq!(place.read(7, KeyFile::Plan), None);
    }

    #[test]
    fn keys_without_a_template_are_forgotten_in_their_order() {
        let above = tempfile::tempdir().unwrap();
        let place = TemplateFolder::at(&above.path().join("a/b")).unwrap();
        let held = place.lock(1).unwrap();
        for key in [3, 2, 4] {
            std::thread::sleep(std::time::Duration::from_millis(10));
            drop(place.lock(key).unwrap());
            place.write(key, KeyFile::Plan, b"").unwrap();
        }
        place.forget_oldest(2);
        assert_eq!(
            (place.keys(KeyFile::Lock), place.keys(KeyFile::Plan)),
            (vec![1, 2, 4], vec![2, 4])
        );
        drop(held);
        place.forget_oldest(1);
        assert_eq!(place.keys(KeyFile::Lock), [4]);
    }

    #[test]
    fn a_lock_is_held_by_one() {
        let above = tempfile::tempdir().unwrap();
        let place = TemplateFolder::at(&above.path().join("a/b")).unwrap();
        let lock = place.lock(1).unwrap();
        assert!(lock.is_some() && place.lock(1).unwrap().is_none());
        assert!(place.lock(2).unwrap().is_some());
        drop(lock);
        assert!(place.lock(1).unwrap().is_some());
    }
}
