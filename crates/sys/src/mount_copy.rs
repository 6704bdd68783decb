//! Private copies of a mount. A copy does not see later mounts, and vanishes when its descriptor is closed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::mount::{MountFlags, OpenTreeFlags, open_tree};

/// Copies the mount on the folder, without the mounts below it. The copy does not prevent the original from being
/// unmounted.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`; `ENOSYS` before Linux 5.12.
pub fn copy_one(folder: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    copy_as(folder, None, OpenTreeFlags::empty())
}

/// Copies the mount on the folder and the mounts below it. `access_times` sets when reads through the copy update
/// access times: `NOATIME`, `STRICTATIME` or `RELATIME`, optionally with `NODIRATIME`; `None` keeps the behaviour of
/// the original.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, or if the user namespace must not change access times; `ENOSYS` before Linux 5.12.
pub fn copy(folder: BorrowedFd<'_>, access_times: Option<MountFlags>) -> io::Result<OwnedFd> {
    copy_as(folder, access_times, OpenTreeFlags::AT_RECURSIVE)
}

fn copy_as(
    folder: BorrowedFd<'_>,
    access_times: Option<MountFlags>,
    depth: OpenTreeFlags,
) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | depth;
    let copy = open_tree(folder, c"", flags)?;
    let cleared = libc::MOUNT_ATTR__ATIME | libc::MOUNT_ATTR_NODIRATIME;
    let attributes = libc::mount_attr {
        attr_set: access_times.map_or(0, attributes),
        attr_clr: access_times.map_or(0, |_| cleared),
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    // SAFETY: the path ends in NUL, and the attributes have the stated size.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            copy.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(copy) }
}

fn attributes(times: MountFlags) -> u64 {
    [
        (MountFlags::NOATIME, libc::MOUNT_ATTR_NOATIME),
        (MountFlags::STRICTATIME, libc::MOUNT_ATTR_STRICTATIME),
        (MountFlags::NODIRATIME, libc::MOUNT_ATTR_NODIRATIME),
    ]
    .iter()
    .filter(|(flag, _)| times.contains(*flag))
    .fold(0, |all, (_, attribute)| all | attribute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{StatVfsMountFlags, fstatvfs};
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use thruway_testing::skipped;

    #[test]
    fn a_copy_of_one_mount_has_none_below_it() {
        let proc = File::open("/").unwrap();
        let Ok(one) = copy_one(proc.as_fd()) else {
            return skipped("copying a mount needs CAP_SYS_ADMIN");
        };
        let empty = rustix::fs::AtFlags::empty();
        let has = |name: &std::ffi::CStr| {
            rustix::fs::accessat(&one, name, rustix::fs::Access::EXISTS, empty).is_ok()
        };
        assert_eq!((has(c"proc"), has(c"proc/self")), (true, false));
    }

    #[test]
    fn a_copy_has_its_own_access_times_and_the_same_names() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "text").unwrap();
        let base = File::open(folder.path()).unwrap();
        let before = fstatvfs(&base).unwrap().f_flag;
        let ours = match copy(base.as_fd(), Some(MountFlags::NOATIME)) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                return skipped("copying a mount needs CAP_SYS_ADMIN");
            }
            copied => copied.unwrap(),
        };
        assert!(fstatvfs(&ours).unwrap().f_flag.contains(StatVfsMountFlags::NOATIME));
        assert!(
            rustix::fs::accessat(
                &ours,
                c"file",
                rustix::fs::Access::EXISTS,
                rustix::fs::AtFlags::empty()
            )
            .is_ok()
        );
        let strict = copy(ours.as_fd(), Some(MountFlags::STRICTATIME | MountFlags::NODIRATIME));
        let flags = fstatvfs(strict.unwrap()).unwrap().f_flag;
        assert!(!flags.contains(StatVfsMountFlags::NOATIME));
        assert!(flags.contains(StatVfsMountFlags::NODIRATIME));
        assert_eq!(fstatvfs(&base).unwrap().f_flag, before);
    }
}
