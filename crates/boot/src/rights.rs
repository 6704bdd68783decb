//! Checks that this process may read a file. Code from the pack runs only where Ruby could have read the
//! source.
//!
//! In most cases the file's mode, which is already known, decides. If another user owns the file and not all
//! users may read it, or if the file has an access list, a system call asks the kernel, which also considers
//! groups and capabilities.

use rustix::fs::{self, Access, AtFlags, CWD, FileType, RawMode};

use crate::disk::Status;

/// The mode bits with which every class of users may read a file.
const READ_BY_ALL: RawMode = 0o444;
/// The mode bits with which every class of users may search a folder.
const SEARCH_BY_ALL: RawMode = 0o111;

/// Whether a stat describes a regular file.
pub(crate) fn is_regular(stat: &Status) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Whether the mode alone proves that `user` may read the file, given that there is no access list. Groups
/// and capabilities are not considered, and root counts as an ordinary user.
pub(crate) fn is_certain(stat: &Status, user: u32) -> bool {
    let by_owner = stat.st_uid == user && stat.st_mode & 0o400 != 0;
    let by_others = stat.st_uid != user && stat.st_mode & 0o044 == 0o044;
    by_owner || by_others
}

/// Whether every user may read the file, by its mode.
pub(crate) fn is_open(stat: &Status) -> bool {
    stat.st_mode & READ_BY_ALL == READ_BY_ALL
}

/// Whether every user may search the folder, by its mode.
pub(crate) fn is_open_folder(stat: &Status) -> bool {
    stat.st_mode & SEARCH_BY_ALL == SEARCH_BY_ALL
}

/// Whether the kernel lets this process read the file.
pub(crate) fn may_read(path: &[u8]) -> bool {
    fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).is_ok()
}

/// Whether the kernel lets this process search the folder.
pub(crate) fn may_search(path: &[u8]) -> bool {
    fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Whether the file has an access list or may have one, so that its mode does not decide alone.
#[cfg(target_os = "linux")]
pub(crate) fn has_access_list(path: &[u8]) -> bool {
    use rustix::io::Errno;
    let list = fs::lgetxattr(path, "system.posix_acl_access", &mut [0_u8; 0][..]);
    !matches!(list, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Always true: other systems store access lists in other places, so the kernel is asked about each file.
#[cfg(not(target_os = "linux"))]
pub(crate) fn has_access_list(_path: &[u8]) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;

    #[test]
    fn only_what_the_mode_grants_is_certain() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut stat = fs::stat(file.path()).unwrap();
        (stat.st_uid, stat.st_mode) = (7, 0o100_640);
        assert!(is_certain(&stat, 7) && !is_certain(&stat, 8) && !is_certain(&stat, 0));
        stat.st_mode = 0o100_644;
        assert!(is_certain(&stat, 8) && is_open(&stat));
        stat.st_mode = 0o100_044;
        assert!(!is_certain(&stat, 7) && !is_open(&stat));
        assert!(is_regular(&stat));
        stat.st_mode = 0o040_755;
        assert!(!is_regular(&stat));
    }

    #[test]
    fn the_kernel_knows_what_the_mode_does_not_say() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().as_os_str().as_encoded_bytes();
        assert!(may_read(path) && !has_access_list(path));
        fs::chmod(file.path(), Mode::empty()).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(may_read(path), is_root || std::fs::File::open(file.path()).is_ok());
        assert!(has_access_list(b"/nowhere/at/all"));
    }
}
