//! Attributes of files, and the properties that distinguish a file from all others.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use thruway_sys::handle::FileHandle;

use crate::actor::errno;
use crate::inodes::Identity;
use crate::volumes::{Volume, VolumeInfo};

/// The fields of every `statx`. The time of birth distinguishes files that had the same number in succession.
const STAT: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// The longest tick of the clock of file times, in nanoseconds.
pub(super) const TICK_MAX: u64 = 20_000_000;

/// The file-type bits of a mode, and their values for a regular file, a folder and a symbolic link.
pub(super) const FILE_TYPE: u32 = 0o170_000;
pub(super) const REGULAR: u32 = 0o100_000;
pub(super) const FOLDER: u32 = 0o040_000;
pub(super) const LINK: u32 = 0o120_000;

pub(super) fn open_handle(
    volume: &Volume,
    handle: &FileHandle,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = i32::try_from(flags.bits()).map_err(|_| Errno::INVAL)?;
    handle.open(volume.anchor()?.as_fd(), flags).map_err(|error| errno(&error))
}

/// Returns the handle of an open file.
pub(super) fn handle_of(fd: BorrowedFd<'_>) -> Result<FileHandle, Errno> {
    FileHandle::of(fd, c"").map_err(|error| errno(&error))
}

pub(super) fn open_name(folder: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(folder, name, flags, Mode::empty())
}

/// Whether an open of the file is a request. The kernel opens FIFOs, sockets and device nodes by itself. It also opens
/// folders by itself, but removed folders are kept anyway, and symbolic links are never opened.
pub(super) fn opens_reach_us(stat: &Statx) -> bool {
    let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
    let asked = matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink);
    asked && stat.stx_nlink > 0
}

/// Calls `statx` on a name, without following a link or triggering an automount.
pub(super) fn stat_name(folder: impl AsFd, name: &CStr) -> Result<Statx, Errno> {
    fs::statx(folder, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, STAT)
}

/// Calls `statx` on an open file.
pub(super) fn stat_fd(fd: impl AsFd) -> Result<Statx, Errno> {
    fs::statx(fd, c"", AtFlags::EMPTY_PATH, STAT)
}

/// Returns the properties that distinguish the file from all others.
pub(super) fn identity(volume: u16, stat: &Statx) -> Identity {
    let birth = birth(stat);
    Identity {
        volume,
        number: stat.stx_ino,
        birth,
        kind: u8::try_from(stat.stx_mode >> 12).unwrap_or(0),
        young: birth == 0 || now().saturating_sub(birth) < TICK_MAX,
    }
}

/// Returns the time of birth in nanoseconds since 1970, or zero if the file system does not store it.
fn birth(stat: &Statx) -> u64 {
    if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    let seconds = u64::try_from(stat.stx_btime.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(stat.stx_btime.tv_nsec))
}

/// Returns the nanoseconds since 1970 by the clock of file times.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Takes the newer times of another part of a merged folder, since a change in any part is a change of the folder.
pub(super) fn take_newer_times(stat: &mut Statx, part: &Statx) {
    let newer = |own: &mut StatxTimestamp, other: StatxTimestamp| {
        if (other.tv_sec, other.tv_nsec) > (own.tv_sec, own.tv_nsec) {
            *own = other;
        }
    };
    newer(&mut stat.stx_mtime, part.stx_mtime);
    newer(&mut stat.stx_ctime, part.stx_ctime);
}

/// Returns the inode number that users see. On the first file system, the number is the file's own. On other file
/// systems, the top bits differ, since the whole mount is a single device.
pub(super) fn shown_number(volume: VolumeInfo, stat: &Statx) -> u64 {
    stat.stx_ino ^ u64::from(volume.index).rotate_right(16)
}

pub(super) fn is_folder(stat: &Statx) -> bool {
    u32::from(stat.stx_mode) & FILE_TYPE == FOLDER
}
