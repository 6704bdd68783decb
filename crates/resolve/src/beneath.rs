//! Opens a path whose links must not lead outside: by `openat2`, or component by component.
//!
//! `openat2` appeared in Linux 5.6, and QEMU before 8 and the filters of older container engines refuse it.
//! In that case each component is opened without following links, and the text of a link is walked as a path.
//! Folders opened on the way stay open, so `..` leads back to the folder that the walk came from, whatever is
//! renamed in the meantime.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    self, AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The number of symbolic links that the kernel follows in one path.
const LINKS_MAX: usize = 40;
/// The mode bits of a folder in which all users may create names, such as `/tmp`.
const STICKY_AND_SHARED: u32 = 0o1002;
/// The mount option `nosymfollow` in the flags of `statfs`.
const NO_LINKS: u64 = 0x2000;

/// Whether the kernel lacks `openat2`.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

/// Opens `path`, relative to `base`, within the limits of `resolve`: `BENEATH`, `IN_ROOT` or neither, with
/// `NO_MAGICLINKS` or `NO_SYMLINKS`.
pub(crate) fn open(
    base: impl AsFd,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    if !IS_MISSING.load(Ordering::Relaxed) {
        match fs::openat2(&base, path, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS) => IS_MISSING.store(true, Ordering::Relaxed),
            // A seccomp filter answers `EPERM`. If the file itself is not permitted, the walk returns the
            // same error.
            Err(Errno::PERM) => {}
            opened => return opened,
        }
    }
    walk(base.as_fd(), path, flags, resolve)
}

/// Opens a path as `openat2` does, by calls that every Linux has.
fn walk(
    base: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let mut walk = Walk { base, opened: Vec::new(), left: Vec::new(), links: 0, resolve };
    walk.add(path)?;
    while let Some(name) = walk.left.pop() {
        let is_last = walk.left.is_empty();
        let flags =
            if is_last { flags } else { OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC };
        if name == b".." {
            walk.leave()?;
        }
        let next = match &*name {
            b"." | b".." if is_last => fs::openat(walk.top(), c".", flags, Mode::empty())?,
            b"." | b".." => continue,
            name => match walk.enter(name, flags)? {
                Some(next) => next,
                None => continue,
            },
        };
        if is_last {
            return Ok(next);
        }
        walk.opened.push(next);
    }
    Err(Errno::NOENT)
}

/// A walk along a path.
struct Walk<'a> {
    base: BorrowedFd<'a>,
    /// The open folders from below the base to the current one.
    opened: Vec<OwnedFd>,
    /// The components that are left, in reverse order.
    left: Vec<Vec<u8>>,
    links: usize,
    resolve: ResolveFlags,
}

impl Walk<'_> {
    fn top(&self) -> BorrowedFd<'_> {
        self.opened.last().map_or(self.base, AsFd::as_fd)
    }

    /// Puts the components of a path in front of those that are left.
    fn add(&mut self, path: &[u8]) -> Result<(), Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.starts_with(b"/") {
            self.begin_at_root()?;
        }
        // A trailing slash requires a folder.
        if path.ends_with(b"/") {
            self.left.push(b".".to_vec());
        }
        let components = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        self.left.extend(components.rev().map(<[u8]>::to_vec));
        Ok(())
    }

    fn begin_at_root(&mut self) -> Result<(), Errno> {
        if self.resolve.contains(ResolveFlags::BENEATH) {
            return Err(Errno::XDEV);
        }
        self.opened.clear();
        if !self.resolve.contains(ResolveFlags::IN_ROOT) {
            self.opened.push(fs::openat(CWD, c"/", FOLDER, Mode::empty())?);
        }
        Ok(())
    }

    /// Moves to the parent folder.
    fn leave(&mut self) -> Result<(), Errno> {
        let limits = ResolveFlags::BENEATH | ResolveFlags::IN_ROOT;
        if !self.resolve.intersects(limits) {
            let above = fs::openat(self.top(), c"..", FOLDER, Mode::empty())?;
            self.opened.push(above);
        } else if self.opened.pop().is_none() && self.resolve.contains(ResolveFlags::BENEATH) {
            return Err(Errno::XDEV);
        }
        Ok(())
    }

    /// Opens an entry of the current folder. The text of a link is put in front of the components that are
    /// left.
    fn enter(&mut self, name: &[u8], flags: OFlags) -> Result<Option<OwnedFd>, Errno> {
        let opened = fs::openat(self.top(), name, flags | OFlags::NOFOLLOW, Mode::empty());
        let is_link = match &opened {
            // With NOFOLLOW these two errors indicate a link.
            Err(Errno::LOOP | Errno::NOTDIR) => true,
            Err(_) => false,
            Ok(opened) => flags.contains(OFlags::PATH) && is_symlink(&fs::fstat(opened)?),
        };
        if !is_link {
            return opened.map(Some);
        }
        match fs::readlinkat(self.top(), name, Vec::new()) {
            Ok(text) => self.follow(name, text.as_bytes()).map(|()| None),
            // The entry is not a link, or no longer one.
            Err(Errno::INVAL) => opened.map(Some),
            Err(errno) => Err(errno),
        }
    }

    /// Follows a link of the current folder under the same conditions as the kernel.
    fn follow(&mut self, name: &[u8], text: &[u8]) -> Result<(), Errno> {
        self.links += 1;
        let volume = fs::fstatfs(self.top())?;
        // Links in /proc may lead elsewhere than their text says.
        let is_magic = volume.f_type == PROC_SUPER_MAGIC;
        let is_refused = u64::try_from(volume.f_flags).is_ok_and(|flags| flags & NO_LINKS != 0);
        let none = self.resolve.contains(ResolveFlags::NO_SYMLINKS);
        if none || is_magic || is_refused || self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        self.check_owner(name)?;
        self.add(text)
    }

    /// In a shared folder such as `/tmp`, allows only links of this user and of the folder's owner
    /// (`fs.protected_symlinks`).
    fn check_owner(&self, name: &[u8]) -> Result<(), Errno> {
        let folder = fs::fstat(self.top())?;
        if folder.st_mode & STICKY_AND_SHARED != STICKY_AND_SHARED {
            return Ok(());
        }
        let link = fs::statat(self.top(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_trusted = link.st_uid == geteuid().as_raw() || link.st_uid == folder.st_uid;
        if is_trusted { Ok(()) } else { Err(Errno::ACCESS) }
    }
}

/// The flags for opening a folder on the way.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn is_symlink(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    const NAMES: [&str; 6] = ["a", "b", "file", "up", "..", "."];
    const TARGETS: [&str; 14] = [
        "a",
        "a/",
        "b",
        "a/b",
        "../a",
        "..",
        "../..",
        "file",
        "file/",
        "/",
        "/a",
        "up",
        "/proc/self/root",
        "none",
    ];

    /// Generates positions of links in the tree, and the target of each.
    fn links() -> impl Strategy<Value = Vec<(usize, usize)>> {
        prop::collection::vec((0..9_usize, 0..TARGETS.len()), 0..8)
    }

    fn path() -> impl Strategy<Value = String> {
        let names = prop::collection::vec(0..NAMES.len(), 1..6);
        (names, any::<bool>()).prop_map(|(names, with_slash)| {
            let names: Vec<_> = names.into_iter().map(|name| NAMES[name]).collect();
            names.join("/") + if with_slash { "/" } else { "" }
        })
    }

    fn resolves() -> [ResolveFlags; 5] {
        let magic = ResolveFlags::NO_MAGICLINKS;
        let (beneath, none) = (ResolveFlags::BENEATH, ResolveFlags::NO_SYMLINKS);
        [beneath | magic, beneath | none, beneath, ResolveFlags::IN_ROOT | magic, magic]
    }

    fn flags() -> [OFlags; 3] {
        let read = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        [read, FOLDER, OFlags::PATH | OFlags::CLOEXEC]
    }

    /// Creates folders three levels deep, with files and links.
    fn tree(root: &Path, links: &[(usize, usize)]) {
        let base = root.join("base");
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::fs::create_dir_all(root.join("a")).unwrap();
        for file in ["file", "a/file", "a/b/file", "../file"] {
            std::fs::write(base.join(file), "").unwrap();
        }
        let folders = ["", "a", "a/b"];
        for (place, target) in links {
            let name = ["up", "b", "a"][place % 3];
            // An existing entry stays.
            let _ = symlink(TARGETS[*target], base.join(folders[place / 3]).join(name));
        }
    }

    fn outcome(opened: Result<OwnedFd, Errno>) -> Result<(u64, u64), Errno> {
        opened.map(|file| fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino)).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(80))]

        #[test]
        fn a_walk_opens_what_openat2_opens(links in links(), paths in prop::collection::vec(path(), 1..12)) {
            let root = tempfile::tempdir().unwrap();
            tree(root.path(), &links);
            let base = fs::open(root.path().join("base"), FOLDER, Mode::empty()).unwrap();
            for path in &paths {
                for (resolve, flags) in resolves().into_iter().flat_map(|each| flags().map(|flags| (each, flags))) {
                    let path = path.as_bytes();
                    let wanted = outcome(fs::openat2(&base, path, flags, Mode::empty(), resolve));
                    let walked = outcome(walk(base.as_fd(), path, flags, resolve));
                    prop_assert_eq!(walked, wanted, "{:?} {:?}", resolve, flags);
                }
            }
        }
    }

    #[test]
    fn links_of_proc_are_refused() {
        let base = fs::open("/proc/self", FOLDER, Mode::empty()).unwrap();
        for resolve in resolves() {
            for path in [&b"root"[..], b"root/etc", b"cwd/", b"fd/0/x"] {
                let wanted = fs::openat2(
                    &base,
                    path,
                    FOLDER,
                    Mode::empty(),
                    resolve | ResolveFlags::NO_MAGICLINKS,
                );
                assert_eq!(
                    walk(base.as_fd(), path, FOLDER, resolve).unwrap_err(),
                    wanted.unwrap_err()
                );
            }
        }
    }

    #[test]
    fn a_link_of_another_user_in_a_shared_folder_is_refused() {
        if !geteuid().is_root() {
            thruway_testing::skipped("links of other users, because that takes root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        symlink("file", folder.path().join("link")).unwrap();
        std::os::unix::fs::lchown(folder.path().join("link"), Some(1), None).unwrap();
        let base = fs::open(folder.path(), FOLDER, Mode::empty()).unwrap();
        let open = || walk(base.as_fd(), b"link", OFlags::RDONLY, ResolveFlags::BENEATH).map(drop);
        assert_eq!(open(), Ok(()));
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(open(), Err(Errno::ACCESS));
        std::os::unix::fs::lchown(folder.path().join("link"), Some(0), None).unwrap();
        assert_eq!(open(), Ok(()));
    }
}
