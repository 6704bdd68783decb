//! The file systems of the sources.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use thruway_sys::handle::FileHandle;

use crate::mounts::{MountTable, TableEntry};
use crate::proc_path::ProcPath;
use crate::sources;

/// A file system.
#[derive(Debug)]
pub(crate) struct Volume {
    device: (u32, u32),
    /// A folder on the file system, or a mounted file, through which file handles are opened: open without `O_PATH`
    /// where that is possible. `None` after the file system was unmounted.
    anchor: RwLock<Option<Arc<OwnedFd>>>,
    /// The mount that leads to the file system. `None` for a private copy of a mount that is not followed.
    mount: RwLock<Option<LeadingMount>>,
    has_handles: bool,
    is_remote: bool,
}

/// The mount that leads to a file system, as in the kernel's table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LeadingMount {
    id: u64,
    device: Vec<u8>,
    /// A private copy keeps the options that the mount had when it was copied.
    options: Vec<u8>,
}

impl LeadingMount {
    fn of(entry: &TableEntry) -> Self {
        Self { id: entry.id, device: entry.device.clone(), options: entry.options.clone() }
    }
}

/// The facts about a file system that callers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VolumeInfo {
    pub(crate) index: u16,
    /// Whether files can be opened by handle.
    pub(crate) has_handles: bool,
    /// Whether other machines change the file system, which the kernel does not report.
    pub(crate) is_remote: bool,
}

/// The maximum number of file systems below a mount.
const VOLUMES_MAX: usize = 1 << 16;

/// All file systems seen so far, starting with the file system of the first source.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    all: RwLock<Vec<Arc<Volume>>>,
    any_remote: AtomicBool,
    /// Whether sources are followed as file systems are mounted and unmounted, so that no file system is kept from
    /// being unmounted.
    follows: bool,
}

/// File systems whose contents other machines change, by their number in `statfs`.
const REMOTE: [u64; 14] = [
    0x6969,      // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x517b,      // SMB
    0x0102_1997, // 9P
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x6b41_4653, // kAFS
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
    0x0bd0_0bd0, // Lustre
    0x6573_5546, // FUSE: what is behind it is unknown
    0x7375_7245, // Coda
    0x786f_4256, // VirtualBox's shared folders
];

impl Volumes {
    pub(crate) fn new(follows: bool) -> Self {
        Self { follows, ..Self::default() }
    }

    /// Returns the ids of the mounts that lead to the file systems.
    pub(crate) fn mounts(&self) -> Vec<u64> {
        self.all().iter().filter_map(|volume| Some(volume.mount()?.id)).collect()
    }

    /// Releases the file systems that were unmounted, and holds the others in the way that the table of mounts
    /// requires.
    pub(crate) fn follow(&self, table: &MountTable) {
        self.all().iter().for_each(|volume| volume.follow(table));
    }

    /// Returns the file system of `stat`. If it is new, `folder` opens a folder on it.
    pub(crate) fn of(
        &self,
        stat: &Statx,
        folder: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<VolumeInfo, Errno> {
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        if let Some(met) = self.find(device) {
            return Ok(met);
        }
        let volume = Arc::new(Volume::new(device, folder()?, self.follows)?);
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() == VOLUMES_MAX {
            return Err(Errno::NFILE);
        }
        if info_of(&all, device).is_none() {
            self.any_remote.fetch_or(volume.is_remote, Relaxed);
            all.push(volume);
        }
        info_of(&all, device).ok_or(Errno::NFILE)
    }

    /// Reserves an index for a file system that is currently not mounted. Inodes contain these indexes, so a worker
    /// that takes over must assign the same indexes as the previous worker.
    pub(crate) fn reserve(&self, device: (u32, u32)) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() < VOLUMES_MAX && !all.iter().any(|volume| volume.device == device) {
            let (anchor, mount) = Default::default();
            let volume = Volume { device, anchor, mount, has_handles: false, is_remote: false };
            all.push(Arc::new(volume));
        }
    }

    pub(crate) fn get(&self, index: u16) -> Result<Arc<Volume>, Errno> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.get(usize::from(index)).cloned().ok_or(Errno::STALE)
    }

    /// Returns all file systems.
    pub(crate) fn all(&self) -> Vec<Arc<Volume>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether other machines change any of the file systems.
    pub(crate) fn any_remote(&self) -> bool {
        self.any_remote.load(Relaxed)
    }

    /// Returns the file system of `stat`, if it was seen before.
    pub(crate) fn known(&self, stat: &Statx) -> Option<VolumeInfo> {
        self.find((stat.stx_dev_major, stat.stx_dev_minor))
    }

    fn find(&self, device: (u32, u32)) -> Option<VolumeInfo> {
        info_of(&self.all.read().unwrap_or_else(PoisonError::into_inner), device)
    }
}

fn info_of(all: &[Arc<Volume>], device: (u32, u32)) -> Option<VolumeInfo> {
    // The device number of an unmounted file system may be reused.
    let is_it = |volume: &Arc<Volume>| volume.device == device && volume.anchor().is_ok();
    let index = all.iter().position(is_it)?;
    let volume = &all[index];
    Some(VolumeInfo {
        index: u16::try_from(index).ok()?,
        has_handles: volume.has_handles,
        is_remote: volume.is_remote,
    })
}

impl Volume {
    /// Creates the entry of a file system. `folder` may be open with `O_PATH`, and may be a mounted file.
    fn new(device: (u32, u32), folder: OwnedFd, follows: bool) -> Result<Self, Errno> {
        let (mut folder, mut mount) = (folder, None);
        if follows && let Ok(table) = MountTable::read() {
            let number = sources::mount_number(&folder)?;
            mount = table.get(number).map(LeadingMount::of);
            folder = sources::hold(folder, &table);
        }
        let anchor = open_anchor(&folder)?;
        let has_handles = FileHandle::of(anchor.as_fd(), c"")
            .and_then(|handle| handle.open(anchor.as_fd(), 0))
            .is_ok();
        let kind = fs::fstatfs(&anchor)?.f_type;
        let is_remote = u64::try_from(kind).is_ok_and(|kind| REMOTE.contains(&kind));
        let anchor = RwLock::new(Some(Arc::new(anchor)));
        Ok(Self { device, anchor, mount: RwLock::new(mount), has_handles, is_remote })
    }

    /// Returns a folder on the file system, if it is still mounted.
    pub(crate) fn anchor(&self) -> Result<Arc<OwnedFd>, Errno> {
        let anchor = self.anchor.read().unwrap_or_else(PoisonError::into_inner);
        anchor.clone().ok_or(Errno::STALE)
    }

    fn mount(&self) -> Option<LeadingMount> {
        self.mount.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn follow(&self, table: &MountTable) {
        let Some(LeadingMount { id: number, device, options }) = self.mount() else { return };
        let entry = table.get(number).filter(|entry| entry.device == device);
        let is_mounted = entry.is_some();
        if entry.is_some_and(|entry| entry.options == options)
            && self.is_held_by_copy(number) != table.has_children(number)
        {
            return;
        }
        // The same file system may be mounted elsewhere as well.
        let same_system = table.entries().iter().filter(|entry| entry.device == device);
        let other =
            same_system.filter(|entry| !is_mounted || entry.id == number).find_map(|entry| {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let folder = fs::openat(fs::CWD, &entry.target, flags, Mode::empty()).ok()?;
                let stat =
                    fs::statx(&folder, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).ok()?;
                if (stat.stx_dev_major, stat.stx_dev_minor) != self.device {
                    return None;
                }
                let id = sources::mount_number(&folder).ok()?;
                // Until the next change, a mount that is newer than the table counts with the options of the mount
                // below it.
                let options = table.get(id).unwrap_or(entry).options.clone();
                let mount = LeadingMount { id, device: device.clone(), options };
                Some((mount, open_anchor(&sources::hold(folder, table)).ok()?))
            });
        if is_mounted && other.is_none() {
            return;
        }
        let (mount, anchor) = match other {
            Some((mount, anchor)) => (Some(mount), Some(Arc::new(anchor))),
            None => (None, None),
        };
        *self.mount.write().unwrap_or_else(PoisonError::into_inner) = mount;
        *self.anchor.write().unwrap_or_else(PoisonError::into_inner) = anchor;
    }

    /// Whether the mount with this id is held through a private copy.
    fn is_held_by_copy(&self, number: u64) -> bool {
        self.anchor().and_then(|anchor| sources::mount_number(&anchor)) != Ok(number)
    }
}

fn open_anchor(place: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let kind = FileType::from_raw_mode(fs::fstat(place)?.st_mode);
    let opened = match kind {
        FileType::Directory => return fs::openat(place, c".", flags, Mode::empty()),
        FileType::RegularFile => {
            fs::openat(fs::CWD, ProcPath::new(place.as_fd()).as_c_str(), flags, Mode::empty())
        }
        // To open a device or a FIFO may have an effect.
        _ => Err(Errno::ACCESS),
    };
    // Without handles, files are opened by their names.
    opened.or_else(|_| place.try_clone().map_err(|_| Errno::MFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_file_system_is_added_once() {
        let volumes = Volumes::default();
        let folder = tempfile::tempdir().unwrap();
        let base: OwnedFd = File::open(folder.path()).unwrap().into();
        let stat = fs::statx(&base, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).unwrap();
        assert_eq!(volumes.known(&stat), None);
        let met = volumes.of(&stat, || Ok(base)).unwrap();
        assert_eq!((met.index, met.is_remote), (0, false));
        assert_eq!(volumes.of(&stat, || Err(Errno::IO)), Ok(met));
        assert_eq!(volumes.get(1).unwrap_err(), Errno::STALE);
    }
}
