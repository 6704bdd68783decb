//! From a name to an inode, and from an inode to a descriptor.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use thruway_fuse::Answer;
use thruway_fuse::wire::EntryOut;
use thruway_sys::handle::FileHandle;

use super::View;
use super::attributes::attributes;
use crate::actor::errno;
use crate::inodes::{Identity, Inode, InodeId};
use crate::volumes::Met;

/// What is asked of every file: with it comes the birth, which tells apart files that got the same
/// number one after the other.
const STAT: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Ticks of the clock that stamps births are at most this long, nanoseconds.
const TICK_MAX: u64 = 20_000_000;

/// What opens an inode that was just found or made.
#[derive(Clone, Copy)]
pub(super) enum Found<'a> {
    /// Its name in a folder.
    Name(BorrowedFd<'a>, &'a CStr),
    /// Itself.
    File(BorrowedFd<'a>),
}

impl View {
    pub(super) fn lookup(
        &self,
        parent: InodeId,
        name: &CStr,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.place(parent)?;
        match stat_name(&folder, name) {
            Ok(stat) => {
                let found = Found::Name(folder.as_fd(), name);
                answer.put(&self.entry(parent, found, &stat)?);
                Ok(())
            }
            Err(Errno::NOENT) if !self.behaviour.timeouts.negative.is_zero() => {
                answer.put(&self.no_entry());
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    /// Adds a lookup of the inode and says what the kernel may know of it.
    pub(super) fn entry(
        &self,
        parent: InodeId,
        found: Found<'_>,
        stat: &Statx,
    ) -> Result<EntryOut, Errno> {
        let volume = self.volumes.of(stat, || found.anchor())?;
        let id = self.intern(parent, found, volume, stat)?;
        let timeouts = self.timeouts(volume, stat);
        Ok(EntryOut {
            inode: id.0,
            generation: 0,
            entry_timeout: timeouts.entry.as_secs(),
            attribute_timeout: timeouts.attributes.as_secs(),
            entry_timeout_nanoseconds: timeouts.entry.subsec_nanos(),
            attribute_timeout_nanoseconds: timeouts.attributes.subsec_nanos(),
            attributes: attributes(volume, stat),
        })
    }

    /// Says that there is no such name, and how long that holds.
    fn no_entry(&self) -> EntryOut {
        let negative = self.behaviour.timeouts.negative;
        EntryOut {
            entry_timeout: negative.as_secs(),
            entry_timeout_nanoseconds: negative.subsec_nanos(),
            ..EntryOut::default()
        }
    }

    /// Adds a lookup of the inode and gives its number.
    fn intern(
        &self,
        parent: InodeId,
        found: Found<'_>,
        volume: Met,
        stat: &Statx,
    ) -> Result<InodeId, Errno> {
        let handle = || if volume.has_handles { found.handle().map(Some) } else { Ok(None) };
        let is_open = matches!(found, Found::File(_));
        self.inodes.intern(&identity(volume.index, stat), parent, is_open, handle, |_| ())
    }

    /// Puts the root into the table, unless a worker before us has.
    pub(super) fn intern_root(&self) -> Result<(), Errno> {
        let stat = stat_place(&self.root)?;
        let again = || fs::openat(&self.root, c".", OFlags::PATH, Mode::empty());
        let volume = self.volumes.of(&stat, again)?;
        if self.inodes.get(InodeId::ROOT).is_err() {
            self.inodes.set_root(identity(volume.index, &stat));
        }
        Ok(())
    }

    /// Takes lookups back; what was held for the inode ends with the last one.
    pub(super) fn forget(&self, id: InodeId, lookups: u64) {
        if let Some(backing) = self.inodes.forget(id, lookups) {
            self.places.remove(id);
            self.readers.remove(id);
            self.writers.remove(id);
            self.close_backing(backing.id);
        }
    }

    /// The inode's place: open with `O_PATH`.
    pub(super) fn place(&self, id: InodeId) -> Result<Arc<OwnedFd>, Errno> {
        if id == InodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(place) = self.places.get(id) {
            return Ok(place);
        }
        let inode = self.inodes.get(id)?;
        let place = Arc::new(self.open_inode(&inode, OFlags::PATH | OFlags::NOFOLLOW)?);
        self.places.put(id, Arc::clone(&place));
        Ok(place)
    }

    /// Opens the inode again.
    pub(super) fn open_inode(&self, inode: &Inode, flags: OFlags) -> Result<OwnedFd, Errno> {
        let handle = inode.handle.ok_or(Errno::STALE)?;
        let volume = self.volumes.get(inode.identity.volume)?;
        let flags = i32::try_from(flags.bits()).map_err(|_| Errno::INVAL)?;
        let opened = handle.open(volume.anchor(), flags).map_err(|error| errno(&error))?;
        if !inode.checked {
            self.check(inode, &opened)?;
        }
        Ok(opened)
    }

    /// Between the `statx` of a name and the taking of its handle, the name may have been given to
    /// another file: then the handle is the other one's.
    fn check(&self, inode: &Inode, opened: &OwnedFd) -> Result<(), Errno> {
        let stat = stat_place(opened)?;
        if stat.stx_ino != inode.identity.number {
            return Err(Errno::STALE);
        }
        self.inodes.set_checked(inode.id);
        Ok(())
    }
}

impl Found<'_> {
    fn handle(self) -> Result<FileHandle, Errno> {
        match self {
            Self::Name(folder, name) => FileHandle::of(folder, name),
            Self::File(file) => FileHandle::of(file, c""),
        }
        .map_err(|error| errno(&error))
    }

    /// A folder of the file system that it lies on.
    fn anchor(self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self {
            Self::Name(folder, name) => fs::openat(folder, name, flags, Mode::empty()),
            // A file was made in a folder, and so that folder's file system is known.
            Self::File(_) => Err(Errno::XDEV),
        }
    }
}

/// `statx` of a name; a symbolic link is not followed, an automount not triggered.
pub(super) fn stat_name(folder: impl AsFd, name: &CStr) -> Result<Statx, Errno> {
    fs::statx(folder, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, STAT)
}

/// `statx` of what is open.
pub(super) fn stat_place(place: impl AsFd) -> Result<Statx, Errno> {
    fs::statx(place, c"", AtFlags::EMPTY_PATH, STAT)
}

/// What tells the file from all others.
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

/// Nanoseconds since 1970, or zero if the file system does not say.
fn birth(stat: &Statx) -> u64 {
    if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    let seconds = u64::try_from(stat.stx_btime.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(stat.stx_btime.tv_nsec))
}

/// Nanoseconds since 1970, by the clock that stamps births.
fn now() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
