//! Whether this process may read a file, so that code is run only where Ruby could have read it.
//!
//! The mode of a file says so in most cases, without a call. Where it does not (another user's file that is
//! not readable for all, an access list), the kernel is asked. It knows of groups and capabilities.

use rustix::fs::{self, Access, AtFlags, CWD, FileType, RawMode, Stat};

/// Every class of users may read.
const READ_BY_ALL: RawMode = 0o444;
/// Every class of users may search a folder.
const SEARCH_BY_ALL: RawMode = 0o111;

/// Whether it is a regular file.
pub(crate) fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Whether the mode alone says that `user` may read, if there is no access list. Groups and
/// capabilities are not known here: root counts as any other user.
pub(crate) fn is_certain(stat: &Stat, user: u32) -> bool {
    let by_owner = stat.st_uid == user && stat.st_mode & 0o400 != 0;
    let by_others = stat.st_uid != user && stat.st_mode & 0o044 == 0o044;
    by_owner || by_others
}

/// Whether the mode lets every user read.
pub(crate) fn is_open(stat: &Stat) -> bool {
    stat.st_mode & READ_BY_ALL == READ_BY_ALL
}

/// Whether the mode lets every user search the folder.
pub(crate) fn is_open_folder(stat: &Stat) -> bool {
    stat.st_mode & SEARCH_BY_ALL == SEARCH_BY_ALL
}

/// Whether the kernel lets this process read the file.
pub(crate) fn may_read(path: &[u8]) -> bool {
    fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).is_ok()
}

/// Whether the kernel lets this process look up names in the folder.
pub(crate) fn may_search(path: &[u8]) -> bool {
    fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Whether the mode may not say all: there is an access list, or it cannot be known.
#[cfg(target_os = "linux")]
pub(crate) fn has_access_list(path: &[u8]) -> bool {
    use rustix::io::Errno;
    let list = fs::lgetxattr(path, "system.posix_acl_access", &mut [0_u8; 0][..]);
    !matches!(list, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Other systems keep access lists elsewhere, so it cannot be known: the kernel is asked about each file.
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
