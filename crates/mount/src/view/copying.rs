//! Copies files and folders from one source to another.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{
    self, AtFlags, CWD, Gid, IFlags, Mode, OFlags, RenameFlags, SeekFrom, Statx, StatxTimestamp,
    Timespec, Timestamps, Uid,
};
use rustix::io::{self, Errno};

use thruway_sys::file_flags;

use super::attribute_names::copy_where;
use super::stat::{FILE_TYPE, LINK, stat_fd};
use crate::actor::set_mode_of_copy;
use crate::proc_path::ProcPath;

/// The flags that a copy keeps. Files that cannot be changed (`chattr +i`, `+a`) do not move.
const KEPT_FLAGS: IFlags = IFlags::SECURE_REMOVAL
    .union(IFlags::UNRM)
    .union(IFlags::COMPRESSED)
    .union(IFlags::SYNC)
    .union(IFlags::NODUMP)
    .union(IFlags::NOATIME)
    .union(IFlags::NOTAIL)
    .union(IFlags::DIRSYNC)
    .union(IFlags::TOPDIR)
    .union(IFlags::NOCOW)
    .union(IFlags::PROJECT_INHERIT);

/// The number of bytes that are copied before the copy may be given up.
const CHUNK_BYTES: u64 = 8 << 20;
/// The size of the buffer where the kernel does not copy by itself.
const BUFFER_BYTES: usize = 1 << 20;

/// A new file, which gets its names once it is complete.
#[derive(Debug)]
pub(super) struct NewFile {
    fd: OwnedFd,
    /// The folder and the temporary name, on file systems without nameless files.
    temporary: Option<(OwnedFd, CString)>,
    is_finished: Cell<bool>,
}

impl NewFile {
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Takes a file that an interrupted move has left, with all its names.
    pub(super) fn of_interrupted_move(fd: OwnedFd) -> Self {
        Self { fd, temporary: None, is_finished: Cell::new(false) }
    }

    /// Gives the file a name that does not exist yet.
    pub(super) fn link(&self, folder: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        match &self.temporary {
            None => link(&self.fd, folder, name),
            Some((above, temporary)) => {
                match fs::linkat(above, temporary.as_c_str(), folder, name, AtFlags::empty()) {
                    // The file system has no hard links, so the file has one name.
                    Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                        let flags = RenameFlags::NOREPLACE;
                        fs::renameat_with(above, temporary.as_c_str(), folder, name, flags)
                    }
                    linked => linked,
                }
            }
        }
    }

    /// Removes the temporary name.
    pub(super) fn finish(&self) {
        if let (Some((folder, name)), false) = (&self.temporary, self.is_finished.replace(true)) {
            let _ = fs::unlinkat(folder, name.as_c_str(), AtFlags::empty());
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Creates a file without a name, or with a temporary one where that is not possible.
pub(super) fn new_file(folder: &OwnedFd, mode: Mode) -> Result<NewFile, Errno> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match fs::openat(folder, c".", flags, mode) {
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::ISDIR | Errno::NOSYS) => {}
        fd => return Ok(NewFile { fd: fd?, temporary: None, is_finished: Cell::new(false) }),
    }
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Relaxed);
    let name = CString::new(format!(".thruway-move-{}-{number}", std::process::id()));
    let name = name.map_err(|_| Errno::INVAL)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = fs::openat(folder, name.as_c_str(), flags, mode)?;
    let again = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = fs::openat(folder, c".", again, Mode::empty())?;
    Ok(NewFile { fd, temporary: Some((folder, name)), is_finished: Cell::new(false) })
}

/// Links an open file. Without the capability for that, links by the descriptor's path in `/proc`.
pub(super) fn link(fd: &OwnedFd, folder: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    match fs::linkat(fd, c"", folder, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT) => {
            let path = ProcPath::new(fd.as_fd());
            fs::linkat(CWD, path.as_c_str(), folder, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

/// Copies the data of a file, and leaves holes as they are.
pub(super) fn copy_data(
    from: &OwnedFd,
    to: &OwnedFd,
    size: u64,
    is_disturbed: &impl Fn() -> bool,
) -> Result<(), Errno> {
    let mut offset = 0;
    while offset < size {
        let start = match fs::seek(from, SeekFrom::Data(offset)) {
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => offset,
            start => start?,
        };
        let end = fs::seek(from, SeekFrom::Hole(start)).unwrap_or(size).clamp(start, size);
        offset = start;
        while offset < end {
            if is_disturbed() {
                return Err(Errno::BUSY);
            }
            let copied = copy_chunk(from, to, offset, (end - offset).min(CHUNK_BYTES))?;
            if copied == 0 {
                // The file became shorter.
                return Err(Errno::BUSY);
            }
            offset += copied;
        }
    }
    fs::ftruncate(to, size)
}

fn copy_chunk(from: &OwnedFd, to: &OwnedFd, offset: u64, length: u64) -> Result<u64, Errno> {
    let (mut source, mut target) = (offset, offset);
    let whole = usize::try_from(length).map_err(|_| Errno::INVAL)?;
    match fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), whole) {
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        copied => return copied.map(|copied| copied as u64),
    }
    let mut buffer = vec![0; BUFFER_BYTES.min(whole)];
    let read = io::pread(from, buffer.as_mut_slice(), offset)?;
    let mut done = 0;
    while done < read {
        done += io::pwrite(to, &buffer[done..read], offset + done as u64)?;
    }
    Ok(read as u64)
}

/// Gives a file the owner, extended attributes, mode and times of another one.
pub(super) fn copy_attributes(from: &OwnedFd, to: &OwnedFd, stat: &Statx) -> Result<(), Errno> {
    copy_attributes_where(from, to, stat, |_| true)
}

/// Gives a file the owner, mode and times of another one, and the extended attributes that `is_kept` selects.
pub(super) fn copy_attributes_where(
    from: &OwnedFd,
    to: &OwnedFd,
    stat: &Statx,
    is_kept: impl Fn(&[u8]) -> bool,
) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(stat.stx_uid), Gid::from_raw(stat.stx_gid));
    fs::chownat(to, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    copy_where(from, to, is_kept)?;
    if u32::from(stat.stx_mode) & FILE_TYPE != LINK {
        let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777);
        set_mode_of_copy(to.as_fd(), mode)?;
    }
    restore_times(to, stat)
}

/// Gives a file these times of access and modification.
pub(super) fn restore_times(to: &OwnedFd, stat: &Statx) -> Result<(), Errno> {
    let time =
        |time: StatxTimestamp| Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec.into() };
    let times =
        Timestamps { last_access: time(stat.stx_atime), last_modification: time(stat.stx_mtime) };
    fs::utimensat(to, c"", &times, AtFlags::EMPTY_PATH)
}

/// Gives a new file the flags of another one that `chattr` sets, as far as the other file system has them.
pub(super) fn copy_flags(from: &OwnedFd, to: &OwnedFd) {
    let flags = |fd: &OwnedFd| file_flags::flags(fd.as_fd());
    let (Ok(wanted), Ok(own)) = (flags(from), flags(to)) else { return };
    let missing = wanted & KEPT_FLAGS.bits() & !own;
    if missing == 0 || file_flags::set_flags(to.as_fd(), own | missing).is_ok() {
        return;
    }
    for flag in (0..u32::BITS).map(|bit| 1 << bit).filter(|flag| missing & flag != 0) {
        // A file system refuses flags that it lacks.
        if let Ok(own) = flags(to) {
            let _ = file_flags::set_flags(to.as_fd(), own | flag);
        }
    }
}

/// Returns a folder below a source. Folders that the source lacks are made as they are in the other one.
pub(super) fn ensure_folders(from: &OwnedFd, to: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |above: &OwnedFd, name: &CStr| fs::openat(above, name, flags, Mode::empty());
    let (mut from, mut to) = (open(from, c".")?, open(to, c".")?);
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        from = open(&from, &name)?;
        to = match open(&to, &name) {
            Err(Errno::NOENT) => {
                let stat = stat_fd(&from)?;
                fs::mkdirat(&to, name.as_c_str(), Mode::RWXU)?;
                let made = open(&to, &name)
                    .and_then(|made| copy_attributes(&from, &made, &stat).map(|()| made));
                if let (Ok(made), Ok(from)) = (&made, readable(&from))
                    && let Ok(made) = readable(made)
                {
                    copy_flags(&from, &made);
                }
                made.inspect_err(|_| {
                    // A partial copy would add a folder without its permissions to the view.
                    let _ = fs::unlinkat(&to, name.as_c_str(), AtFlags::REMOVEDIR);
                })?
            }
            opened => opened?,
        };
    }
    Ok(to)
}

/// Opens a folder again, without `O_PATH`.
fn readable(folder: &OwnedFd) -> Result<OwnedFd, Errno> {
    fs::openat(folder, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns the file of this name, if it has the attributes and the content of the other one.
pub(super) fn open_same(
    folder: &OwnedFd,
    name: &CStr,
    other: &OwnedFd,
    stat: &Statx,
) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(found) = fs::openat(folder, name, flags, Mode::empty()) else { return Ok(None) };
    let facts = |stat: &Statx| {
        let time = (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
        (stat.stx_size, stat.stx_mode, stat.stx_uid, stat.stx_gid, time)
    };
    if facts(&stat_fd(&found)?) != facts(stat) || !has_same_data(&found, other)? {
        return Ok(None);
    }
    Ok(Some(found))
}

fn has_same_data(one: &OwnedFd, other: &OwnedFd) -> Result<bool, Errno> {
    let (mut buffer, mut second) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    let mut offset = 0;
    loop {
        let read = io::pread(one, buffer.as_mut_slice(), offset)?;
        let mut same = 0;
        while same < read {
            match io::pread(other, &mut second[same..read], offset + same as u64)? {
                0 => return Ok(false),
                more => same += more,
            }
        }
        if buffer[..read] != second[..read] {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
        offset += read as u64;
    }
}
