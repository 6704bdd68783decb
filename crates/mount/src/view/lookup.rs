//! From a name to an inode, and from an inode to a descriptor.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use thruway_fuse::wire::EntryOut;
use thruway_fuse::{Answer, Caller};
use thruway_sys::handle::FileHandle;

use super::View;
use super::folder::{Folder, Spot};
use crate::actor::errno;
use crate::inodes::{Identity, Inode, InodeId};
use crate::proc_path::ProcPath;
use crate::volumes::{Met, Volume};

/// What is asked of every file: with it comes the birth, which tells apart files that got the same
/// number one after the other.
const STAT: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Ticks of the clock that stamps births are at most this long, nanoseconds.
pub(super) const TICK_MAX: u64 = 20_000_000;

/// The bits of a mode that say what a file is, and what they are for a folder.
pub(super) const FILE_TYPE: u32 = 0o170_000;
pub(super) const FOLDER: u32 = 0o040_000;

/// Who is known to have changed a file last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// We have, just now.
    Us,
    Unknown,
}

/// What opens an inode that was just found or made in a folder.
#[derive(Clone, Copy)]
pub(super) enum Found<'a> {
    /// Its name there.
    Name(&'a Spot, &'a CStr),
    /// Itself, and its name there.
    Made(&'a Spot, BorrowedFd<'a>, &'a CStr),
    /// Itself; it has no name.
    Nameless(&'a Spot, BorrowedFd<'a>),
}

impl View {
    pub(super) fn lookup(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &CStr,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.folder(parent)?;
        if self.hiding(parent)?(name) {
            answer.put(&self.no_entry(&folder));
            return Ok(());
        }
        match self.find(&folder, name) {
            Ok((spot, stat)) => {
                let found = Found::Name(&spot, name);
                let entry = self.entry(&folder, found, &stat, Maker::Unknown)?;
                if self.is_judged_by_look_up(&stat) {
                    self.note_walk(caller, InodeId(entry.inode), parent, name);
                }
                answer.put(&entry);
                Ok(())
            }
            Err(Errno::NOENT) => {
                answer.put(&self.no_entry(&folder));
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    /// Adds a lookup of the inode and says what the kernel may know of it.
    pub(super) fn entry(
        &self,
        folder: &Folder,
        found: Found<'_>,
        stat: &Statx,
        maker: Maker,
    ) -> Result<EntryOut, Errno> {
        let volume = self.volumes.of(stat, || found.anchor())?;
        let id = self.intern(folder.id, found, volume, stat)?;
        let mut timeouts = self.timeouts(id, folder.is_watched, stat, maker);
        if self.is_judged_by_look_up(stat) {
            timeouts.entry = Duration::ZERO;
        }
        Ok(EntryOut {
            inode: id.0,
            generation: self.memory.generation(),
            entry_timeout: timeouts.entry.as_secs(),
            attribute_timeout: timeouts.attributes.as_secs(),
            entry_timeout_nanoseconds: timeouts.entry.subsec_nanos(),
            attribute_timeout_nanoseconds: timeouts.attributes.subsec_nanos(),
            attributes: self.attributes(volume, stat),
        })
    }

    /// Says that there is no such name, and how long that holds.
    fn no_entry(&self, folder: &Folder) -> EntryOut {
        let negative = self.name_timeout(folder);
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
        let is_open = !matches!(found, Found::Name(..));
        let identity = identity(volume.index, stat);
        let place = (parent, found.branch());
        let id = self.inodes.intern(&identity, place, is_open, handle, |id| {
            if !opens_reach_us(stat) {
                self.pin_found(id, found);
            }
        })?;
        self.note_found(id, parent, found.name().map_or(b"", CStr::to_bytes), stat);
        Ok(id)
    }

    /// The inode that `stat` was taken of, if the kernel knows it.
    pub(super) fn known(&self, stat: &Statx) -> Option<InodeId> {
        let volume = self.volumes.known(stat)?;
        self.inodes.find_known(&identity(volume.index, stat))
    }

    /// Keeps a file alive of whose opens we hear nothing, or that no name leads to.
    fn pin_found(&self, id: InodeId, found: Found<'_>) {
        // Without it the file is merely gone for those who have it open, once it is removed.
        if let Ok(place) = found.place() {
            self.pins.hold(id, Arc::new(place));
        }
    }

    /// Runs `change`, which may take this name away. If it is a folder's that the kernel knows, the
    /// folder is kept for whoever is in it or has it open. (A file is kept by its opens.)
    pub(super) fn keeping_folder<T>(
        &self,
        folder: BorrowedFd<'_>,
        name: &CStr,
        change: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let stat = stat_name(folder, name).ok();
        let is_folder = |stat: &Statx| u32::from(stat.stx_mode) & FILE_TYPE == FOLDER;
        let Some(stat) = stat.filter(is_folder) else { return change() };
        let place = open_name(folder, name)?;
        let changed = change()?;
        if let Some(id) = self.known(&stat) {
            self.pins.hold(id, Arc::new(place));
        }
        Ok(changed)
    }

    /// The root of a source.
    pub(super) fn root_of(&self, branch: u16) -> Result<&OwnedFd, Errno> {
        match &self.branches {
            None => Ok(&self.root),
            Some(all) => Ok(all.roots().get(usize::from(branch)).ok_or(Errno::STALE)?),
        }
    }

    /// Puts the root into the table, unless a worker before us has.
    pub(super) fn intern_root(&self) -> Result<Met, Errno> {
        let stat = stat_place(&self.root)?;
        let again = || fs::openat(&self.root, c".", OFlags::PATH, Mode::empty());
        let volume = self.volumes.of(&stat, again)?;
        if self.inodes.get(InodeId::ROOT).is_err() {
            self.inodes.set_root(identity(volume.index, &stat));
        }
        Ok(volume)
    }

    /// Takes lookups back; what was held for the inode ends with the last one.
    pub(super) fn forget(&self, id: InodeId, lookups: u64) {
        if let Some(forgotten) = self.inodes.forget(id, lookups) {
            self.unwatch(&forgotten);
            if let Some(branches) = &self.branches {
                branches.drop_folder(id);
            }
            self.places.remove(id);
            self.pins.release(id);
            if let Some(names) = &self.names {
                names.forget(id);
            }
            if let Some(judge) = &self.judge {
                judge.forget(id);
            }
            self.readers.remove(id);
            self.writers.remove(id);
            self.close_backing(forgotten.backing.id);
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
        if let Some(place) = self.pins.get(id) {
            return Ok(place);
        }
        let inode = self.inodes.get(id)?;
        let place = Arc::new(self.open_inode(&inode, OFlags::PATH | OFlags::NOFOLLOW)?);
        self.places.put(id, Arc::clone(&place));
        Ok(place)
    }

    /// Opens the inode again.
    pub(super) fn open_inode(&self, inode: &Inode, flags: OFlags) -> Result<OwnedFd, Errno> {
        let Some(handle) = inode.handle else {
            return self.open_without_handle(inode, flags);
        };
        let volume = self.volumes.get(inode.identity.volume)?;
        let opened = open_handle(&volume, &handle, flags)?;
        if !inode.checked {
            self.check(inode, &opened)?;
        }
        Ok(opened)
    }

    /// Opens the inode through what is open of it, or else by the name that it was found by.
    fn open_without_handle(&self, inode: &Inode, flags: OFlags) -> Result<OwnedFd, Errno> {
        if !flags.contains(OFlags::PATH) {
            let place = self.place(inode.id)?;
            let flags = (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC;
            return fs::openat(CWD, ProcPath::new(place.as_fd()).as_c_str(), flags, Mode::empty());
        }
        let path =
            self.names.as_ref().and_then(|names| names.path(inode.id)).ok_or(Errno::STALE)?;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::CLOEXEC;
        let root = self.root_of(inode.branch)?;
        let place =
            fs::openat2(root, path, flags, Mode::empty(), within).map_err(|_| Errno::STALE)?;
        // The name may lead to another file by now.
        let identity = identity(inode.identity.volume, &stat_place(&place)?);
        if identity.is_same_file(&inode.identity) { Ok(place) } else { Err(Errno::STALE) }
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

impl<'a> Found<'a> {
    fn branch(self) -> u16 {
        let (Self::Name(spot, _) | Self::Made(spot, ..) | Self::Nameless(spot, _)) = self;
        spot.branch
    }

    pub(super) fn name(self) -> Option<&'a CStr> {
        match self {
            Self::Name(_, name) | Self::Made(_, _, name) => Some(name),
            Self::Nameless(..) => None,
        }
    }

    fn handle(self) -> Result<FileHandle, Errno> {
        match self {
            Self::Name(spot, name) => {
                FileHandle::of(spot.place.as_fd(), name).map_err(|error| errno(&error))
            }
            Self::Made(_, file, _) | Self::Nameless(_, file) => handle_of(file),
        }
    }

    /// A folder of the file system that it lies on.
    fn anchor(self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self {
            Self::Name(spot, name) => fs::openat(&spot.place, name, flags, Mode::empty()),
            // A file was made in a folder, and so that folder's file system is known.
            Self::Made(..) | Self::Nameless(..) => Err(Errno::XDEV),
        }
    }

    /// Open with `O_PATH`, or as it is open already.
    fn place(self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Name(spot, name) => open_name(spot.place.as_fd(), name),
            Self::Made(_, file, _) | Self::Nameless(_, file) => {
                file.try_clone_to_owned().map_err(|error| errno(&error))
            }
        }
    }
}

pub(super) fn open_handle(
    volume: &Volume,
    handle: &FileHandle,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = i32::try_from(flags.bits()).map_err(|_| Errno::INVAL)?;
    handle.open(volume.anchor(), flags).map_err(|error| errno(&error))
}

/// The handle of what is open.
pub(super) fn handle_of(place: BorrowedFd<'_>) -> Result<FileHandle, Errno> {
    FileHandle::of(place, c"").map_err(|error| errno(&error))
}

pub(super) fn open_name(folder: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(folder, name, flags, Mode::empty())
}

/// Whether we are asked when somebody opens it: the kernel opens folders, FIFOs, sockets and device
/// nodes by itself. A link is not opened; a folder is kept when it is removed.
fn opens_reach_us(stat: &Statx) -> bool {
    let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
    let asked = matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink);
    asked && stat.stx_nlink > 0
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
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
