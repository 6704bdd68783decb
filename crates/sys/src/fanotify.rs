//! Watches folders for changes (fanotify), and reports the process that made each change.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::handle::FileHandle;

/// The watched events: names that appear and disappear, and files whose attributes change or whose writer closes them.
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
/// Bytes of a record's header, of the file system's id, and of a handle's header.
const RECORD_BYTES: usize = 4;
const SYSTEM_BYTES: usize = 8;
const HANDLE_BYTES: usize = 8;

/// The id of a folder's file system: `f_fsid` of `statfs`.
pub type SystemId = [u8; SYSTEM_BYTES];

/// A fanotify group and its watched folders.
#[derive(Debug)]
pub struct Watcher {
    descriptor: OwnedFd,
}

/// An event of a watched folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The kernel's queue overflowed, so events were lost.
    Overflow,
    /// An entry changed.
    Change {
        /// The process that made the change; zero if the kernel hides the process from this user.
        pid: i32,
        /// The kind of the change.
        kind: ChangeKind,
        /// Whether the changed entry is a folder.
        is_folder: bool,
        /// The folder's file system.
        system: SystemId,
        /// The folder.
        folder: FileHandle,
        /// The name of the entry; `.` is the folder itself.
        name: &'a [u8],
    },
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The name now refers to another file: it was created, or moved here.
    Appeared,
    /// The name was removed or moved away. If events of both kinds were merged, the name may exist.
    Disappeared,
    /// The attributes of the file changed, or a writer closed the file.
    Modified,
}

impl Watcher {
    /// Creates a group that watches no folder. For root, the kernel limits neither the queue nor the number of watches.
    pub fn new() -> io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_DFID_NAME;
        open(flags | libc::FAN_UNLIMITED_QUEUE | libc::FAN_UNLIMITED_MARKS).or_else(|_| open(flags))
    }

    /// Watches a folder, which may be open with `O_PATH`.
    ///
    /// # Errors
    /// The file system does not support watches, or the limit of watches is reached.
    pub fn watch(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.mark(libc::FAN_MARK_ADD, folder)
    }

    /// Watches all folders of the file system that contains `folder`. Only root may do so.
    ///
    /// # Errors
    /// The file system does not support watches, or the user lacks the right.
    pub fn watch_whole(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.mark(libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM, folder)
    }

    /// Removes a folder from the watched ones.
    ///
    /// # Errors
    /// The folder is not watched.
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

    /// Reads the events since the last call, as many as fit into the buffer. Does not wait; the result may be empty.
    ///
    /// # Errors
    /// Any error of `read`.
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
    // SAFETY: the call takes plain numbers.
    let descriptor = unsafe { libc::fanotify_init(flags, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor, and nothing else owns it.
    Ok(Watcher { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
}

/// Returns the id of a folder's file system, as it appears in events.
///
/// # Errors
/// Any error of `fstatfs`.
pub fn system_id(folder: BorrowedFd<'_>) -> io::Result<SystemId> {
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, and the structure is valid for writes.
    let status = unsafe { libc::fstatfs(folder.as_raw_fd(), stat.as_mut_ptr()) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled the structure.
    let stat = unsafe { stat.assume_init() };
    // SAFETY: the id consists of two integers, whose fields are private in libc.
    Ok(unsafe { std::mem::transmute::<libc::fsid_t, SystemId>(stat.f_fsid) })
}

/// An iterator over the events of a read.
#[derive(Debug, Clone)]
pub struct Events<'a> {
    rest: &'a [u8],
}

impl Events<'_> {
    /// Whether no event is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            let length = number::<4>(self.rest, 0).map(u32::from_ne_bytes)? as usize;
            let (event, rest) = self.rest.split_at_checked(length.max(EVENT_BYTES))?;
            self.rest = rest;
            if let Some(event) = parse(event) {
                return Some(event);
            }
        }
    }
}

/// Parses a `struct fanotify_event_metadata` and the records behind it (fanotify(7)).
fn parse(event: &[u8]) -> Option<Event<'_>> {
    let mask = u64::from_ne_bytes(number(event, 8)?);
    if mask & libc::FAN_Q_OVERFLOW != 0 {
        return Some(Event::Overflow);
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
        let handle_kind = i32::from_ne_bytes(number(handle, 4)?);
        let (handle, name) = handle.get(HANDLE_BYTES..)?.split_at_checked(bytes)?;
        let name = name.split(|&byte| byte == 0).next()?;
        let folder = FileHandle::from_parts(handle_kind, handle)?;
        return Some(Event::Change { pid, kind: kind(mask), is_folder, system, folder, name });
    }
}

fn kind(mask: u64) -> ChangeKind {
    if mask & (libc::FAN_DELETE | libc::FAN_MOVED_FROM) != 0 {
        return ChangeKind::Disappeared;
    }
    if mask & (libc::FAN_CREATE | libc::FAN_MOVED_TO) != 0 {
        ChangeKind::Appeared
    } else {
        ChangeKind::Modified
    }
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
    fn changes_are_reported_with_process_and_place() {
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
            let Event::Change { pid, kind, system, folder, name, .. } = event else {
                panic!("{event:?}")
            };
            assert_eq!(system, system_id(base.as_fd()).unwrap());
            assert_eq!((pid, folder, name), (own, own_folder, b"name".as_slice()));
            names += usize::from(kind != ChangeKind::Modified);
        }
        assert!(names >= 1);
        watcher.unwatch(base.as_fd()).unwrap();
        fs::write(&path, "text").unwrap();
        assert!(watcher.read(&mut buffer).unwrap().is_empty());
    }

    #[test]
    fn a_queue_overflow_is_reported() {
        let mut event = [0; EVENT_BYTES];
        event[..4].copy_from_slice(&(EVENT_BYTES as u32).to_ne_bytes());
        event[8..16].copy_from_slice(&libc::FAN_Q_OVERFLOW.to_ne_bytes());
        assert_eq!(Events { rest: &event }.collect::<Vec<_>>(), [Event::Overflow]);
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
