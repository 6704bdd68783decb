//! Changes of a folder on Windows, told while something else is done.

use std::cell::UnsafeCell;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{
    ERROR_IO_INCOMPLETE, ERROR_NOTIFY_ENUM_DIR, INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OVERLAPPED, FILE_LIST_DIRECTORY,
    FILE_NOTIFY_CHANGE_DIR_NAME, FILE_NOTIFY_CHANGE_FILE_NAME, FILE_SHARE_DELETE, FILE_SHARE_READ,
    FILE_SHARE_WRITE, OPEN_EXISTING, ReadDirectoryChangesW,
};
use windows_sys::Win32::System::IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED};

/// Words of room for the names of what changed. More changes than fit are told as "anything".
const ROOM_WORDS: usize = 1024;

/// A folder whose entries are watched: not what they contain, and not what lies below them.
#[derive(Debug)]
pub struct Changes {
    handle: OwnedHandle,
    /// On the heap, because the system writes to it until the handle is closed.
    pending: Box<Pending>,
}

#[derive(Debug)]
struct Pending {
    overlapped: UnsafeCell<OVERLAPPED>,
    room: UnsafeCell<[u32; ROOM_WORDS]>,
}

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// Entries of these names came, went, or were renamed.
    Names(Vec<Vec<u16>>),
    /// Anything may have: there were too many changes, or the folder itself is going.
    Anything,
}

// SAFETY: the raw pointers inside are the system's own, and it does not care for the thread.
unsafe impl Send for Changes {}

impl Changes {
    /// Begins to watch the folder at `path`, which is absolute and ends in NUL.
    ///
    /// # Errors
    /// Whatever the system reports; also a path without its NUL.
    pub fn new(path: &[u16]) -> io::Result<Self> {
        if path.last() != Some(&0) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the path ends in NUL.
        let handle = unsafe {
            CreateFileW(
                path.as_ptr(),
                FILE_LIST_DIRECTORY,
                FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                ptr::null(),
                OPEN_EXISTING,
                FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OVERLAPPED,
                ptr::null_mut(),
            )
        };
        if handle == INVALID_HANDLE_VALUE {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has made this handle, and it has no other owner.
        let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
        let pending = Box::new(Pending {
            overlapped: UnsafeCell::new(OVERLAPPED::default()),
            room: UnsafeCell::new([0; ROOM_WORDS]),
        });
        let changes = Self { handle, pending };
        changes.begin()?;
        Ok(changes)
    }

    /// What has changed since it was asked last; nothing is no call of the system's, but a look at
    /// memory.
    ///
    /// # Errors
    /// The folder can be watched no more: it is gone.
    pub fn take(&mut self) -> io::Result<Option<Changed>> {
        let mut bytes = 0;
        // SAFETY: the request is pending or done, and its memory is alive.
        let done = unsafe {
            GetOverlappedResult(
                self.handle.as_raw_handle(),
                self.pending.overlapped.get(),
                &raw mut bytes,
                0,
            )
        };
        let changed = if done != 0 {
            self.names(bytes as usize)
        } else {
            let error = io::Error::last_os_error();
            match error.raw_os_error().map(i32::cast_unsigned) {
                Some(ERROR_IO_INCOMPLETE) => return Ok(None),
                Some(ERROR_NOTIFY_ENUM_DIR) => Changed::Anything,
                _ => return Err(error),
            }
        };
        self.begin()?;
        Ok(Some(changed))
    }

    fn begin(&self) -> io::Result<()> {
        // SAFETY: nothing is pending, so nothing else writes there.
        unsafe { *self.pending.overlapped.get() = OVERLAPPED::default() };
        // SAFETY: the room is as large as said and aligned to 4 bytes. Both it and the request
        // stay where they are until the request is done, which `drop` waits for.
        let begun = unsafe {
            ReadDirectoryChangesW(
                self.handle.as_raw_handle(),
                self.pending.room.get().cast(),
                (ROOM_WORDS * size_of::<u32>()) as u32,
                0,
                FILE_NOTIFY_CHANGE_FILE_NAME | FILE_NOTIFY_CHANGE_DIR_NAME,
                ptr::null_mut(),
                self.pending.overlapped.get(),
                None,
            )
        };
        if begun != 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The names in `FILE_NOTIFY_INFORMATION`: distance to the next one, what happened, length of the
    /// name in bytes (two units of 16 bits each), the name. Wine does not align them.
    fn names(&self, bytes: usize) -> Changed {
        const LENGTH: usize = 4;
        const NAME: usize = 6;
        // SAFETY: the request is done, so nothing else writes there.
        let room = unsafe { &*self.pending.room.get() };
        let units: Vec<_> =
            room.iter().flat_map(|word| [*word as u16, (word >> 16) as u16]).collect();
        let number = |units: &[u16]| (usize::from(units[0]) | usize::from(units[1]) << 16) / 2;
        let mut rest = &units[..(bytes / size_of::<u16>()).min(units.len())];
        let mut names = Vec::new();
        while rest.len() > NAME {
            let length = number(&rest[LENGTH..]);
            names.push(rest[NAME..].iter().take(length).copied().collect());
            let next = number(rest);
            if next == 0 {
                break;
            }
            rest = rest.get(next..).unwrap_or_default();
        }
        if names.is_empty() { Changed::Anything } else { Changed::Names(names) }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let handle = self.handle.as_raw_handle();
        // SAFETY: the request is this handle's own.
        let cancelled = unsafe { CancelIoEx(handle, self.pending.overlapped.get()) };
        let mut bytes = 0;
        if cancelled != 0 {
            // SAFETY: the request is being cancelled, so the wait ends; its memory is alive until then.
            unsafe {
                GetOverlappedResult(handle, self.pending.overlapped.get(), &raw mut bytes, 1)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::windows::ffi::OsStrExt;
    use std::path::Path;
    use std::time::{Duration, Instant};

    fn watch(path: &Path) -> Changes {
        let path: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
        Changes::new(&path).unwrap()
    }

    /// Waits for the system to tell, for a while.
    fn wait(changes: &mut Changes) -> Changed {
        let start = Instant::now();
        loop {
            match changes.take().unwrap() {
                Some(changed) => return changed,
                None if start.elapsed() > Duration::from_secs(20) => panic!("nothing was told"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    #[test]
    fn a_new_entry_is_told_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut changes = watch(folder.path());
        assert_eq!(changes.take().unwrap(), None);
        std::fs::write(folder.path().join("new.exe"), "").unwrap();
        let name: Vec<u16> = "new.exe".encode_utf16().collect();
        assert_eq!(wait(&mut changes), Changed::Names(vec![name]));
        std::fs::remove_file(folder.path().join("new.exe")).unwrap();
        assert!(matches!(wait(&mut changes), Changed::Names(_)));
    }

    #[test]
    fn what_lies_below_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let sub = folder.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        let mut changes = watch(folder.path());
        std::fs::write(sub.join("below"), "").unwrap();
        std::fs::write(folder.path().join("here"), "").unwrap();
        let name: Vec<u16> = "here".encode_utf16().collect();
        assert_eq!(wait(&mut changes), Changed::Names(vec![name]));
    }

    #[test]
    fn watches_begin_and_end_by_the_hundred() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let all: Vec<_> = (0..100).map(|_| watch(folder.path())).collect();
            drop(all);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_cannot_be_watched() {
        let path: Vec<u16> = "C:\\none\0".encode_utf16().collect();
        assert!(Changes::new(&path).is_err());
    }
}
