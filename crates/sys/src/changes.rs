//! Watches a folder for changes on Windows, without a thread that waits.

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

/// Words of the buffer for names of changed entries. If more changes arrive than fit, the result is
/// [`FolderChange::Anything`].
const ROOM_WORDS: usize = 1024;

/// A watch on the entries of a folder. The contents of files and the folders below are not watched.
#[derive(Debug)]
pub struct Changes {
    handle: OwnedHandle,
    /// A heap allocation, because the system writes to this memory until the handle is closed.
    pending: Box<PendingRequest>,
}

#[derive(Debug)]
struct PendingRequest {
    overlapped: UnsafeCell<OVERLAPPED>,
    room: UnsafeCell<[u32; ROOM_WORDS]>,
}

/// A change of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FolderChange {
    /// Entries with these names were created, removed or renamed.
    Names(Vec<Vec<u16>>),
    /// Any entry may have changed: there were too many changes, or the folder itself is being removed.
    Anything,
}

// SAFETY: the raw pointers belong to the system, which accepts calls from any thread.
unsafe impl Send for Changes {}

impl Changes {
    /// Starts to watch the folder at `path`, which must be absolute and end in NUL.
    ///
    /// # Errors
    /// Any error of the system, and `InvalidInput` for a path without a NUL.
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
        // SAFETY: the call created the handle, and nothing else owns it.
        let handle = unsafe { OwnedHandle::from_raw_handle(handle) };
        let pending = Box::new(PendingRequest {
            overlapped: UnsafeCell::new(OVERLAPPED::default()),
            room: UnsafeCell::new([0; ROOM_WORDS]),
        });
        let changes = Self { handle, pending };
        changes.begin()?;
        Ok(changes)
    }

    /// Returns the changes since the last call. Without changes, the call only reads memory.
    ///
    /// # Errors
    /// The folder can no longer be watched, because it is gone.
    pub fn take(&mut self) -> io::Result<Option<FolderChange>> {
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
                Some(ERROR_NOTIFY_ENUM_DIR) => FolderChange::Anything,
                _ => return Err(error),
            }
        };
        self.begin()?;
        Ok(Some(changed))
    }

    fn begin(&self) -> io::Result<()> {
        // SAFETY: no request is pending, so the system does not write to this memory.
        unsafe { *self.pending.overlapped.get() = OVERLAPPED::default() };
        // SAFETY: the buffer has the stated size and is aligned to 4 bytes. Both the buffer and the request stay in
        // place until the request is done, which `drop` waits for.
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

    /// Parses records of `FILE_NOTIFY_INFORMATION`: distance to the next record, action, length of the name in bytes
    /// (32 bits each), then the name. Wine does not align the records.
    fn names(&self, bytes: usize) -> FolderChange {
        const LENGTH: usize = 4;
        const NAME: usize = 6;
        // SAFETY: the request is done, so the system does not write to this memory.
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
        if names.is_empty() { FolderChange::Anything } else { FolderChange::Names(names) }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let handle = self.handle.as_raw_handle();
        // SAFETY: the request belongs to this handle.
        let cancelled = unsafe { CancelIoEx(handle, self.pending.overlapped.get()) };
        let mut bytes = 0;
        if cancelled != 0 {
            // SAFETY: the request is being cancelled, so the wait ends; the memory is alive until then.
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

    /// Waits a limited time for the system to report a change.
    fn wait(changes: &mut Changes) -> FolderChange {
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
    fn a_new_entry_is_reported_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut changes = watch(folder.path());
        assert_eq!(changes.take().unwrap(), None);
        std::fs::write(folder.path().join("new.exe"), "").unwrap();
        let name: Vec<u16> = "new.exe".encode_utf16().collect();
        assert_eq!(wait(&mut changes), FolderChange::Names(vec![name]));
        std::fs::remove_file(folder.path().join("new.exe")).unwrap();
        assert!(matches!(wait(&mut changes), FolderChange::Names(_)));
    }

    #[test]
    fn changes_in_a_subfolder_are_not_reported() {
        let folder = tempfile::tempdir().unwrap();
        let sub = folder.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        let mut changes = watch(folder.path());
        std::fs::write(sub.join("below"), "").unwrap();
        std::fs::write(folder.path().join("here"), "").unwrap();
        let name: Vec<u16> = "here".encode_utf16().collect();
        assert_eq!(wait(&mut changes), FolderChange::Names(vec![name]));
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
