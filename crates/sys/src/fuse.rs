//! The FUSE device: clones of a connection, and backing files that the kernel reads and writes directly.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl, opcode};

const MAGIC: u8 = 229;
const CLONE: Opcode = opcode::read::<u32>(MAGIC, 0);
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(MAGIC, 1);
const BACKING_CLOSE: Opcode = opcode::write::<u32>(MAGIC, 2);

/// The kernel's `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    descriptor: i32,
    flags: u32,
    padding: u64,
}

/// Opens the device, which serves no requests until it is mounted.
///
/// # Errors
/// The device does not exist, or must not be opened.
pub fn open() -> io::Result<OwnedFd> {
    let device: File = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    Ok(device.into())
}

/// Opens another descriptor for the connection of `device`. Each descriptor has its own queue of requests that were
/// read and not yet answered.
///
/// # Errors
/// `device` is not mounted yet.
pub fn clone(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let other = open()?;
    let mut number = u32::try_from(device.as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: the opcode reads a single `u32`, which it is given.
    let updater = unsafe { Updater::<CLONE, u32>::new(&mut number) };
    // SAFETY: `other` is the FUSE device, and `updater` belongs to its opcode.
    unsafe { ioctl(&other, updater) }?;
    Ok(other)
}

/// Registers `file` as a backing file, which the kernel then reads and writes directly. Returns the id by which the
/// reply to an open refers to the backing file.
///
/// The kernel will act with the credentials that this thread has at the time of the call.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` in the initial user namespace or without passthrough, `ELOOP` if the file lies on
/// too many stacked file systems.
pub fn open_backing(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<i32> {
    let map = BackingMap { descriptor: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: `device` is the FUSE device, and the map is the structure of this opcode.
    Ok(unsafe { ioctl(device, OpenBacking(map)) }?)
}

/// Removes a backing file of [`open_backing`]. Files that are open keep using it.
///
/// # Errors
/// The kernel does not know the id.
pub fn close_backing(device: BorrowedFd<'_>, backing_id: i32) -> io::Result<()> {
    let number = u32::try_from(backing_id).map_err(io::Error::other)?;
    // SAFETY: the opcode reads a single `u32`, which it is given.
    let setter = unsafe { Setter::<BACKING_CLOSE, u32>::new(number) };
    // SAFETY: `device` is the FUSE device, and `setter` belongs to its opcode.
    Ok(unsafe { ioctl(device, setter) }?)
}

/// The request `FUSE_DEV_IOC_BACKING_OPEN`, the only one of the three whose result is the return value.
struct OpenBacking(BackingMap);

// SAFETY: the kernel reads a `BackingMap` and writes nothing.
unsafe impl Ioctl for OpenBacking {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        BACKING_OPEN
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(
        output: IoctlOutput,
        _map: *mut core::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use thruway_testing::skipped;

    #[test]
    fn a_device_that_is_not_mounted_cannot_be_cloned() {
        let Ok(device) = open() else {
            return skipped("/dev/fuse cannot be opened");
        };
        assert!(clone(device.as_fd()).is_err());
        assert!(open_backing(device.as_fd(), device.as_fd()).is_err());
        assert!(close_backing(device.as_fd(), -1).is_err());
    }
}
