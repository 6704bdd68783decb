//! The upper source of a mount, which takes all changes, and the marks that hide files of the other sources.
//!
//! The marks are those of overlayfs: a **whiteout** hides a name, and an **opaque** folder is not merged with the
//! folders below. Changes that take several steps are prepared in the **work folder**, beside the upper source, and
//! take effect by a single rename.

use std::ffi::{CStr, CString, OsString};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Statx, XattrFlags,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use thruway_sys::printable;

use crate::Error;
use crate::inodes::lock;
use crate::proc_path::ProcPath;

/// The number of the upper source: it comes first.
pub(crate) const UPPER: u16 = 0;

/// The value that marks a folder as opaque.
const OPAQUE: &[u8] = b"y";
/// The value that marks a folder in which empty files may be whiteouts.
const HOLDS_WHITEOUTS: &[u8] = b"x";

/// The file-type bits of a mode, and two of their values.
const FILE_TYPE: u16 = 0o170_000;
const CHARACTER_DEVICE: u16 = 0o020_000;
const REGULAR: u16 = 0o100_000;

/// The extended attributes of overlayfs in one of two namespaces.
#[derive(Debug)]
struct Marks {
    prefix: &'static [u8],
    opaque: &'static CStr,
    whiteout: &'static CStr,
    redirect: &'static CStr,
    metacopy: &'static CStr,
}

/// The attributes that only privileged processes can read and write.
const TRUSTED: Marks = Marks {
    prefix: b"trusted.overlay.",
    opaque: c"trusted.overlay.opaque",
    whiteout: c"trusted.overlay.whiteout",
    redirect: c"trusted.overlay.redirect",
    metacopy: c"trusted.overlay.metacopy",
};

/// The attributes of overlayfs with its option `userxattr`.
const USER: Marks = Marks {
    prefix: b"user.overlay.",
    opaque: c"user.overlay.opaque",
    whiteout: c"user.overlay.whiteout",
    redirect: c"user.overlay.redirect",
    metacopy: c"user.overlay.metacopy",
};

/// The upper source of a mount.
#[derive(Debug)]
pub(crate) struct Upper {
    /// The work folder, locked for as long as the descriptor is open.
    work: OwnedFd,
    marks: &'static Marks,
    /// The number of temporary names so far.
    count: AtomicU64,
    /// Held while a folder is made in the upper source.
    making_folders: Mutex<()>,
}

impl Upper {
    /// Opens and locks the work folder of the upper source at `path`. Creates the folder if necessary, and removes
    /// the remains of interrupted changes.
    ///
    /// # Errors
    /// Another mount has the same upper source, or the file system does not support whiteouts.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |errno| Error::new("cannot use the upper source", path, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let upper = fs::openat(CWD, path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => {
                failed(errno).with_hint(format_args!("mkdir {}", printable::path(&path)))
            }
            _ => failed(errno),
        })?;
        let work = open_work(path, &upper)?;
        fs::flock(&work, FlockOperation::NonBlockingLockExclusive).map_err(
            |errno| match errno {
                Errno::WOULDBLOCK => {
                    let shown = printable::path(&path);
                    Error::plain(format_args!("{shown} is the upper source of another mount"))
                        .with_hint("thruway mount status shows the mounts and their sources")
                }
                _ => failed(errno),
            },
        )?;
        clear(&work).map_err(failed)?;
        let mut upper = Self {
            work,
            marks: &TRUSTED,
            count: AtomicU64::default(),
            making_folders: Mutex::default(),
        };
        upper.probe(path)?;
        Ok(upper)
    }

    /// Tries what whiteouts and opaque folders need in the work folder.
    fn probe(&mut self, path: &Path) -> Result<(), Error> {
        let lacks = |what: &dyn fmt::Display, errno: Errno| {
            let error = Error::new("cannot use the upper source", path, errno);
            error.with_hint(format_args!("its file system has to support {what}"))
        };
        let (folder, name, other) = (self.temporary(), self.temporary(), self.temporary());
        fs::mkdirat(&self.work, folder.as_c_str(), Mode::RWXU)
            .map_err(|errno| Error::new("cannot write to the upper source", path, errno))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tried = fs::openat(&self.work, folder.as_c_str(), flags, Mode::empty())
            .map_err(|errno| lacks(&"folders", errno))?;
        let mut marked = set_mark(&tried, TRUSTED.opaque, OPAQUE);
        if marked.is_err() {
            self.marks = &USER;
            marked = set_mark(&tried, USER.opaque, OPAQUE);
        }
        marked.map_err(|errno| {
            lacks(&"extended attributes (trusted.overlay.opaque or user.overlay.opaque)", errno)
        })?;
        self.make_whiteout(&self.work, &name).map_err(|errno| {
            lacks(&"whiteouts, which are character devices with the number 0:0", errno)
        })?;
        let (work, flags) = (&self.work, RenameFlags::WHITEOUT);
        fs::renameat_with(work, folder.as_c_str(), work, other.as_c_str(), flags)
            .and_then(|()| {
                let flags = RenameFlags::EXCHANGE;
                fs::renameat_with(work, name.as_c_str(), work, other.as_c_str(), flags)
            })
            .map_err(|errno| lacks(&"renameat2 with RENAME_WHITEOUT and RENAME_EXCHANGE", errno))?;
        clear(&self.work).map_err(|errno| lacks(&"removals", errno))
    }

    /// Returns the work folder.
    pub(crate) fn work(&self) -> &OwnedFd {
        &self.work
    }

    /// Returns a name that nothing in the work folder has.
    pub(crate) fn temporary(&self) -> CString {
        let number = self.count.fetch_add(1, Relaxed);
        // Digits contain no NUL.
        CString::new(format!("{number}")).unwrap_or_default()
    }

    /// Keeps other threads from making folders in the upper source.
    pub(crate) fn hold_folders(&self) -> MutexGuard<'_, ()> {
        lock(&self.making_folders)
    }

    /// Whether the extended attribute is a mark, which the view does not show.
    pub(crate) fn is_mark(&self, attribute: &[u8]) -> bool {
        attribute.starts_with(self.marks.prefix)
    }

    /// Whether the file of this name, with these attributes, is a whiteout.
    pub(crate) fn is_whiteout(&self, folder: &OwnedFd, name: &CStr, stat: &Statx) -> bool {
        match stat.stx_mode & FILE_TYPE {
            CHARACTER_DEVICE => (stat.stx_rdev_major, stat.stx_rdev_minor) == (0, 0),
            REGULAR if stat.stx_size == 0 => {
                self.holds_marked_whiteouts(folder) && self.has_whiteout_mark(folder, name)
            }
            _ => false,
        }
    }

    /// Whether an empty file in the folder may be a whiteout by an extended attribute.
    pub(crate) fn holds_marked_whiteouts(&self, folder: &OwnedFd) -> bool {
        mark(folder, self.marks.opaque).is_some_and(|value| value == HOLDS_WHITEOUTS)
    }

    fn has_whiteout_mark(&self, folder: &OwnedFd, name: &CStr) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(folder, name, flags, Mode::empty())
            .is_ok_and(|file| mark(&file, self.marks.whiteout).is_some())
    }

    /// Whether the folder hides the folders below.
    pub(crate) fn is_opaque(&self, folder: &OwnedFd) -> bool {
        mark(folder, self.marks.opaque).is_some_and(|value| value == OPAQUE)
    }

    /// Fails if overlayfs takes parts of the file or folder from elsewhere, by its options `redirect_dir` and
    /// `metacopy`.
    pub(crate) fn check_complete(&self, file: &OwnedFd) -> Result<(), Errno> {
        let marks = [self.marks.redirect, self.marks.metacopy];
        if marks.iter().any(|name| mark(file, name).is_some()) { Err(Errno::IO) } else { Ok(()) }
    }

    pub(crate) fn set_opaque(&self, folder: &OwnedFd) -> Result<(), Errno> {
        set_mark(folder, self.marks.opaque, OPAQUE)
    }

    pub(crate) fn make_whiteout(&self, folder: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        fs::mknodat(folder, name, FileType::CharacterDevice, Mode::empty(), fs::makedev(0, 0))
    }
}

/// Opens the work folder beside the upper source, on the same file system.
fn open_work(path: &Path, upper: &OwnedFd) -> Result<OwnedFd, Error> {
    let failed = |errno| Error::new("cannot make the work folder", &work_of(path), errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = fs::openat(upper, c"..", flags, Mode::empty()).map_err(failed)?;
    let work_path = work_of(path);
    let name = work_path.file_name().ok_or_else(|| failed(Errno::INVAL))?;
    match fs::mkdirat(&above, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let flags = flags | OFlags::NOFOLLOW;
    let work = fs::openat(&above, name, flags, Mode::empty()).map_err(failed)?;
    let stat = fs::fstat(&work).map_err(failed)?;
    // Another user could replace a copy before it gets its name.
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        let shown = printable::path(&work_path);
        return Err(Error::plain(format_args!("other users may change the work folder {shown}"))
            .with_hint(format_args!("remove it, if nothing in it is needed: rm -r {shown}")));
    }
    let device = |fd: &OwnedFd| fs::fstat(fd).map(|stat| stat.st_dev);
    if device(&work).map_err(failed)? == device(upper).map_err(failed)? {
        return Ok(work);
    }
    let _ = fs::unlinkat(&above, name, AtFlags::REMOVEDIR);
    let error = Error::plain(format_args!(
        "the upper source {} is a mount point, and its work folder has to be beside it on the same file system",
        printable::path(&path)
    ));
    Err(error.with_hint(format_args!(
        "use a folder of it: --upper {}",
        printable::path(&path.join("upper"))
    )))
}

/// Returns the path of an upper source's work folder.
pub(crate) fn work_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".thruway-work");
    path.with_file_name(name)
}

/// Removes everything in the folder.
pub(crate) fn clear(folder: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    for name in names {
        match fs::unlinkat(folder, name.as_c_str(), AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                clear(&fs::openat(folder, name.as_c_str(), flags, Mode::empty())?)?;
                fs::unlinkat(folder, name.as_c_str(), AtFlags::REMOVEDIR)?;
            }
            removed => removed?,
        }
    }
    Ok(())
}

/// Returns the value of a mark, of which only the beginning matters.
fn mark(file: &OwnedFd, name: &CStr) -> Option<Vec<u8>> {
    let mut value = vec![0; 8];
    match fs::getxattr(ProcPath::new(file.as_fd()).as_c_str(), name, value.as_mut_slice()) {
        Ok(length) => {
            value.truncate(length);
            Some(value)
        }
        // A longer value.
        Err(Errno::RANGE) => Some(value),
        Err(_) => None,
    }
}

fn set_mark(file: &OwnedFd, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    let path = ProcPath::new(file.as_fd());
    fs::setxattr(path.as_c_str(), name, value, XattrFlags::empty())
}
