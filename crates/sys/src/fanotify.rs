//! Being told what changes in folders (fanotify), with the process that changed it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::handle::FileHandle;

/// What is told: names that come and go, and files that are changed or closed after writing.
const MASK: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_ATTRIB
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_EVENT_ON_CHILD
    | libc::FAN_ONDIR;

/// Bytes of the fixed part of an event.
const EVENT_BYTES: usize = 24;
/// Bytes of a record's header, of the file system's number, and of a handle's header.
const RECORD_BYTES: usize = 4;
const SYSTEM_BYTES: usize = 8;
const HANDLE_BYTES: usize = 8;

/// Which file system a folder is on: `f_fsid` of `statfs`.
pub type SystemId = [u8; SYSTEM_BYTES];

/// Folders that are watched.
#[derive(Debug)]
pub struct Watcher {
    descriptor: OwnedFd,
}

/// One thing that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told<'a> {
    /// So much happened that something was left out.
    Overflow,
    /// A change.
    Change {
        /// The process that made it; zero if we may not know.
        pid: i32,
        /// What it was.
        what: What,
        /// It happened to a folder.
        is_folder: bool,
        /// The folder's file system.
        system: SystemId,
        /// The folder.
        folder: FileHandle,
        /// The name in it; `.` is the folder itself.
        name: &'a [u8],
    },
}

/// What was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The name leads elsewhere now: made, or moved here.
    Came,
    /// The name is gone: removed, or moved away. If both, it may be there.
    Went,
    /// What the name leads to was changed: its attributes, or its data by a writer that has closed
    /// it.
    File,
}

impl Watcher {
    /// Watches nothing yet. Root gets queues and marks without limits.
    ///
    /// # Errors
    /// The kernel is older than 5.13 (5.9 for root).
    pub fn new() -> io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_DFID_NAME;
        open(flags | libc::FAN_UNLIMITED_QUEUE | libc::FAN_UNLIMITED_MARKS).or_else(|_| open(flags))
    }

    /// Watches the folder, which may be open with `O_PATH`.
    ///
    /// # Errors
    /// The file system cannot be watched, or there are too many watches.
    pub fn watch(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.mark(libc::FAN_MARK_ADD, folder)
    }

    /// Watches all folders of the file system that this one is on, for root.
    ///
    /// # Errors
    /// The file system cannot be watched, or it is not for this user to do.
    pub fn watch_whole(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.mark(libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM, folder)
    }

    /// Ends [`watch`](Self::watch).
    ///
    /// # Errors
    /// It was not watched.
    pub fn unwatch(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.mark(libc::FAN_MARK_REMOVE, folder)
    }

    fn mark(&self, action: u32, folder: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the descriptors are open, and the name ends with a zero byte.
        let status = unsafe {
            libc::fanotify_mark(
                self.descriptor.as_raw_fd(),
                action | libc::FAN_MARK_ONLYDIR,
                MASK,
                folder.as_raw_fd(),
                c".".as_ptr(),
            )
        };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Reads what was told since the last time, as far as it fits; nothing if there is nothing.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Events<'a>> {
        match rustix::io::read(&self.descriptor, &mut *buffer) {
            Ok(length) => Ok(Events { rest: &buffer[..length] }),
            Err(rustix::io::Errno::AGAIN) => Ok(Events { rest: &[] }),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn open(flags: u32) -> io::Result<Watcher> {
    // SAFETY: the call takes two numbers.
    let descriptor = unsafe { libc::fanotify_init(flags, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for us, and it has no other owner.
    Ok(Watcher { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
}

/// The file system's number, as it stands in what is told.
///
/// # Errors
/// Whatever `fstatfs` reports.
pub fn system_id(folder: BorrowedFd<'_>) -> io::Result<SystemId> {
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, and the structure is valid for writes.
    let status = unsafe { libc::fstatfs(folder.as_raw_fd(), stat.as_mut_ptr()) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled the structure.
    let stat = unsafe { stat.assume_init() };
    // SAFETY: the number is two integers, whose fields are private.
    Ok(unsafe { std::mem::transmute::<libc::fsid_t, SystemId>(stat.f_fsid) })
}

/// What one read gave.
#[derive(Debug, Clone)]
pub struct Events<'a> {
    rest: &'a [u8],
}

impl Events<'_> {
    /// Whether there is nothing left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Told<'a>;

    fn next(&mut self) -> Option<Told<'a>> {
        loop {
            let length = number::<4>(self.rest, 0).map(u32::from_ne_bytes)? as usize;
            let (event, rest) = self.rest.split_at_checked(length.max(EVENT_BYTES))?;
            self.rest = rest;
            if let Some(told) = parse(event) {
                return Some(told);
            }
        }
    }
}

/// `struct fanotify_event_metadata` and the records behind it (fanotify(7)).
fn parse(event: &[u8]) -> Option<Told<'_>> {
    let mask = u64::from_ne_bytes(number(event, 8)?);
    if mask & libc::FAN_Q_OVERFLOW != 0 {
        return Some(Told::Overflow);
    }
    let is_folder = mask & libc::FAN_ONDIR != 0;
    let pid = i32::from_ne_bytes(number(event, 20)?);
    let mut records = event.get(EVENT_BYTES..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(number(records, 2)?));
        let (record, rest) = records.split_at_checked(length.max(RECORD_BYTES))?;
        records = rest;
        if record[0] != libc::FAN_EVENT_INFO_TYPE_DFID_NAME {
            continue;
        }
        let system = number(record, RECORD_BYTES)?;
        let handle = record.get(RECORD_BYTES + SYSTEM_BYTES..)?;
        let bytes = u32::from_ne_bytes(number(handle, 0)?) as usize;
        let kind = i32::from_ne_bytes(number(handle, 4)?);
        let (handle, name) = handle.get(HANDLE_BYTES..)?.split_at_checked(bytes)?;
        let name = name.split(|&byte| byte == 0).next()?;
        let folder = FileHandle::from_parts(kind, handle)?;
        return Some(Told::Change { pid, what: what(mask), is_folder, system, folder, name });
    }
}

fn what(mask: u64) -> What {
    if mask & (libc::FAN_DELETE | libc::FAN_MOVED_FROM) != 0 {
        return What::Went;
    }
    if mask & (libc::FAN_CREATE | libc::FAN_MOVED_TO) != 0 { What::Came } else { What::File }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;
    use thruway_testing::skipped;

    #[test]
    fn changes_are_told_with_process_and_place() {
        let folder = tempfile::tempdir().unwrap();
        let base = File::open(folder.path()).unwrap();
        let Ok(watcher) = Watcher::new() else {
            return skipped("no fanotify for this user");
        };
        watcher.watch(base.as_fd()).unwrap();
        let path = folder.path().join("name");
        fs::write(&path, "text").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(&path).unwrap();
        let mut buffer = [0; 4096];
        let events = watcher.read(&mut buffer).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let own_folder = FileHandle::of(base.as_fd(), c"").unwrap();
        let mut names = 0;
        for event in events {
            let Told::Change { pid, what, system, folder, name, .. } = event else {
                panic!("{event:?}")
            };
            assert_eq!(system, system_id(base.as_fd()).unwrap());
            assert_eq!((pid, folder, name), (own, own_folder, b"name".as_slice()));
            names += usize::from(what != What::File);
        }
        assert!(names >= 1);
        watcher.unwatch(base.as_fd()).unwrap();
        fs::write(&path, "text").unwrap();
        assert!(watcher.read(&mut buffer).unwrap().is_empty());
    }

    #[test]
    fn a_queue_that_was_full_is_told() {
        let mut event = [0; EVENT_BYTES];
        event[..4].copy_from_slice(&(EVENT_BYTES as u32).to_ne_bytes());
        event[8..16].copy_from_slice(&libc::FAN_Q_OVERFLOW.to_ne_bytes());
        assert_eq!(Events { rest: &event }.collect::<Vec<_>>(), [Told::Overflow]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut bytes = [0xff; 64];
        for length in 0..64 {
            bytes[0] = u8::try_from(length).unwrap();
            bytes[1..4].fill(0);
            assert!(Events { rest: &bytes[..length] }.count() <= 1);
        }
    }
}
