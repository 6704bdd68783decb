//! File handles, which identify a file within a file system without a name.
//!
//! A handle keeps identifying the same file when the file is renamed, and never identifies another file: file systems
//! include a generation, so a reused inode number gives another handle.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The maximum size of a handle in bytes. File systems on disks need 8 to 24; NFS can need more than this.
pub const BYTES_MAX: usize = 32;

/// A handle of a file in some file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    kind: i32,
    length: u8,
    bytes: [u8; BYTES_MAX],
}

/// The kernel's `struct file_handle` with room for [`BYTES_MAX`].
#[repr(C)]
struct KernelHandle {
    length: u32,
    kind: i32,
    bytes: [u8; BYTES_MAX],
}

impl FileHandle {
    /// Returns the handle of `name` in the folder, without following a symbolic link. An empty name stands for the
    /// folder (or file) itself.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file system has no handles, `EOVERFLOW` if they are longer than [`BYTES_MAX`].
    pub fn of(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<Self> {
        let room = u32::try_from(BYTES_MAX).map_err(io::Error::other)?;
        let mut handle = KernelHandle { length: room, kind: 0, bytes: [0; BYTES_MAX] };
        let mut mount_id = 0i32;
        let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
        // SAFETY: the name ends in NUL. The handle and the mount id are writable, and the handle's length field states
        // its capacity.
        let status = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                folder.as_raw_fd(),
                name.as_ptr(),
                &raw mut handle,
                &raw mut mount_id,
                flags,
            )
        };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        let length = u8::try_from(handle.length).map_err(io::Error::other)?;
        Ok(Self { kind: handle.kind, length, bytes: handle.bytes })
    }

    /// Opens the file. `anchor` is any open file or folder (not `O_PATH`) of the same file system.
    ///
    /// # Errors
    /// `ESTALE` if the file is gone, `EPERM` without `CAP_DAC_READ_SEARCH`.
    pub fn open(&self, anchor: BorrowedFd<'_>, flags: i32) -> io::Result<OwnedFd> {
        let mut handle =
            KernelHandle { length: u32::from(self.length), kind: self.kind, bytes: self.bytes };
        // SAFETY: the handle is initialised, and its length field is correct.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                anchor.as_raw_fd(),
                &raw mut handle,
                flags | libc::O_CLOEXEC,
            )
        };
        let descriptor = RawFd::try_from(descriptor).map_err(io::Error::other)?;
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened this descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// Returns the type and the bytes of the handle, for storage.
    #[must_use]
    pub fn parts(&self) -> (i32, &[u8]) {
        (self.kind, &self.bytes[..usize::from(self.length)])
    }

    /// Restores a handle from its [`parts`](Self::parts). Returns `None` if there are more than [`BYTES_MAX`] bytes.
    #[must_use]
    pub fn from_parts(kind: i32, parts: &[u8]) -> Option<Self> {
        let mut bytes = [0; BYTES_MAX];
        bytes.get_mut(..parts.len())?.copy_from_slice(parts);
        Some(Self { kind, length: u8::try_from(parts.len()).ok()?, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use thruway_testing::skipped;

    #[test]
    fn a_handle_outlives_a_rename_and_not_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "text").unwrap();
        let base = File::open(folder.path()).unwrap();
        let Ok(handle) = FileHandle::of(base.as_fd(), c"a") else {
            return skipped("this file system has no handles");
        };
        let (kind, bytes) = handle.parts();
        assert_eq!(FileHandle::from_parts(kind, bytes), Some(handle));
        fs::rename(path("a"), path("b")).unwrap();
        assert_eq!(FileHandle::of(base.as_fd(), c"b").unwrap(), handle);
        match handle.open(base.as_fd(), libc::O_PATH) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return skipped("opening by handle needs CAP_DAC_READ_SEARCH");
            }
            opened => drop(opened.unwrap()),
        }
        fs::remove_file(path("b")).unwrap();
        let error = handle.open(base.as_fd(), libc::O_PATH).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    }

    #[test]
    fn a_handle_that_is_too_long_is_refused() {
        assert_eq!(FileHandle::from_parts(1, &[0; BYTES_MAX + 1]), None);
    }
}
