//! Permission checks on open files.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Checks whether the effective user may execute `file`, which may be open with `O_PATH`.
///
/// Uses `faccessat2` (Linux 5.8) with an empty path; rustix accepts only a path.
///
/// # Errors
/// `EACCES` if the user may not execute the file, and any other error of the system.
pub fn may_execute(file: BorrowedFd<'_>) -> io::Result<()> {
    let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
    // SAFETY: the path is a constant that ends in NUL, and the descriptor is open while borrowed.
    let result = unsafe {
        libc::syscall(libc::SYS_faccessat2, file.as_raw_fd(), c"".as_ptr(), libc::X_OK, flags)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, Permissions, set_permissions};
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_mode_of_the_file_decides() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let file = File::create(&path).unwrap();
        let denied = may_execute(file.as_fd()).unwrap_err();
        assert_eq!(denied.raw_os_error(), Some(libc::EACCES));
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert!(may_execute(file.as_fd()).is_ok());
    }
}
