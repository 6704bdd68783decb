//! Flags of files as `chattr` and `xfs_io` set them: of ext2 (`FS_IOC_GETFLAGS`) and of XFS (`FS_IOC_FSGETXATTR`).
//!
//! Most file systems have both. The latter add the project id and hints for the allocation of blocks.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// The kernel's `struct fsxattr`, as bytes.
pub type ExtendedFlags = [u8; 28];

/// The number of `FS_IOC_GETFLAGS`, whose size the kernel declares as that of a `long`.
pub const GET_FLAGS: Opcode = opcode::read::<usize>(b'f', 1);
/// The number of `FS_IOC_SETFLAGS`.
pub const SET_FLAGS: Opcode = opcode::write::<usize>(b'f', 2);
/// The number of `FS_IOC_FSGETXATTR`.
pub const GET_EXTENDED_FLAGS: Opcode = opcode::read::<ExtendedFlags>(b'X', 31);
/// The number of `FS_IOC_FSSETXATTR`.
pub const SET_EXTENDED_FLAGS: Opcode = opcode::write::<ExtendedFlags>(b'X', 32);

/// Returns the flags (`FS_*_FL`) of an open file or folder.
///
/// # Errors
/// `ENOTTY` if the file system has none.
pub fn flags(file: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(ioctl_getflags(file)?.bits())
}

/// Sets the flags of an open file or folder.
///
/// # Errors
/// `EPERM` if this thread must not set them, `EOPNOTSUPP` or `ENOTTY` if the file system has no such flag.
pub fn set_flags(file: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    Ok(ioctl_setflags(file, IFlags::from_bits_retain(flags))?)
}

/// Returns the extended flags of an open file or folder.
///
/// # Errors
/// `ENOTTY` if the file system has none.
pub fn extended_flags(file: BorrowedFd<'_>) -> io::Result<ExtendedFlags> {
    // SAFETY: the kernel writes a `struct fsxattr`, for which the type has room; any bytes are a valid value.
    let getter = unsafe { Getter::<GET_EXTENDED_FLAGS, ExtendedFlags>::new() };
    // SAFETY: file systems without this operation refuse its number, and `getter` belongs to the number.
    Ok(unsafe { ioctl(file, getter) }?)
}

/// Sets the extended flags of an open file or folder.
///
/// # Errors
/// As for [`set_flags`].
pub fn set_extended_flags(file: BorrowedFd<'_>, flags: ExtendedFlags) -> io::Result<()> {
    // SAFETY: the kernel reads a `struct fsxattr`, which is as long as the type.
    let setter = unsafe { Setter::<SET_EXTENDED_FLAGS, ExtendedFlags>::new(flags) };
    // SAFETY: file systems without this operation refuse its number, and `setter` belongs to the number.
    Ok(unsafe { ioctl(file, setter) }?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use thruway_testing::skipped;

    /// `FS_NODUMP_FL`.
    const NO_DUMP: u32 = 0x40;
    /// `FS_XFLAG_NODUMP`, in the first field of the structure.
    const EXTENDED_NO_DUMP: u8 = 0x80;

    #[test]
    fn both_kinds_of_flags_are_set_and_read() {
        let file = tempfile::tempfile_in(".").unwrap();
        let Ok(before) = flags(file.as_fd()) else {
            return skipped("this file system has no flags");
        };
        set_flags(file.as_fd(), before | NO_DUMP).unwrap();
        assert_eq!(flags(file.as_fd()).unwrap(), before | NO_DUMP);
        let Ok(mut extended) = extended_flags(file.as_fd()) else {
            return skipped("this file system has no extended flags");
        };
        assert_ne!(extended[0] & EXTENDED_NO_DUMP, 0);
        extended[0] &= !EXTENDED_NO_DUMP;
        set_extended_flags(file.as_fd(), extended).unwrap();
        assert_eq!(flags(file.as_fd()).unwrap(), before);
    }
}
