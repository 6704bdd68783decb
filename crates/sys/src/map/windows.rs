//! Maps a whole file as read-only memory, on Windows.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::{self, NonNull};

use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, FILE_MAP_READ, MEMORY_MAPPED_VIEW_ADDRESS, MapViewOfFile, PAGE_READONLY,
    UnmapViewOfFile,
};

/// A read-only mapping of a whole file.
///
/// Windows refuses to shorten a mapped file, and to replace it by a rename that does not follow POSIX. So the bytes
/// stay as they are for as long as this value lives.
#[derive(Debug)]
pub struct ReadOnlyMap {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is read-only through this type, so threads may share it.
unsafe impl Send for ReadOnlyMap {}
// SAFETY: as above; a `&ReadOnlyMap` gives no way to write.
unsafe impl Sync for ReadOnlyMap {}

impl ReadOnlyMap {
    /// Maps `file` from the first byte to the last. An empty file gives an empty slice.
    ///
    /// # Errors
    /// Any error of the system: the file is a pipe or a folder, or memory is short.
    pub fn new(file: &File) -> io::Result<Self> {
        let length = usize::try_from(file.metadata()?.len())
            .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        if length == 0 {
            return Ok(Self { start: NonNull::dangling(), length });
        }
        let (high, low) = ((length as u64 >> 32) as u32, length as u32);
        // SAFETY: the file is open, and the other pointers may be null.
        let mapping = unsafe {
            CreateFileMappingW(
                file.as_raw_handle(),
                ptr::null(),
                PAGE_READONLY,
                high,
                low,
                ptr::null(),
            )
        };
        if mapping.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call made this handle, and it has no other owner. A view keeps its mapping alive.
        let mapping = unsafe { OwnedHandle::from_raw_handle(mapping) };
        // SAFETY: a view at an address of the system's choice aliases nothing.
        let view =
            unsafe { MapViewOfFile(mapping.as_raw_handle(), FILE_MAP_READ, 0, 0, length) }.Value;
        match NonNull::new(view.cast()) {
            Some(start) => Ok(Self { start, length }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Does nothing: Windows takes clean pages of a mapped file back by itself.
    pub fn release(&self, _from: usize) {}
}

impl Deref for ReadOnlyMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `length` bytes until `drop`, and never written to.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for ReadOnlyMap {
    fn drop(&mut self) {
        if self.length > 0 {
            let view = MEMORY_MAPPED_VIEW_ADDRESS { Value: self.start.as_ptr().cast() };
            // SAFETY: `new` created the view, and nothing borrows it.
            let unmapped = unsafe { UnmapViewOfFile(view) };
            debug_assert!(unmapped != 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_holds_the_bytes_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pack");
        std::fs::write(&path, b"from a name to its bytes").unwrap();
        let map = ReadOnlyMap::new(&File::open(&path).unwrap()).unwrap();
        assert_eq!(&*map, b"from a name to its bytes");
        std::fs::write(&path, b"").unwrap_err();
        drop(map);
        std::fs::write(&path, b"").unwrap();
        assert!(ReadOnlyMap::new(&File::open(&path).unwrap()).unwrap().is_empty());
    }
}
