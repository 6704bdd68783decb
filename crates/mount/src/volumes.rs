//! The file systems of the sources.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{self, Mode, OFlags, Statx};
use rustix::io::Errno;
use thruway_sys::handle::FileHandle;

/// One file system.
#[derive(Debug)]
pub(crate) struct Volume {
    device: (u32, u32),
    /// A folder on it, open without `O_PATH`: file handles are opened through it.
    anchor: OwnedFd,
    has_handles: bool,
    is_remote: bool,
}

/// What callers need of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VolumeInfo {
    pub(crate) index: u16,
    /// Files can be opened by handle.
    pub(crate) has_handles: bool,
    /// Other machines change it, and the kernel does not report that.
    pub(crate) is_remote: bool,
}

/// Most file systems below one mount.
const VOLUMES_MAX: usize = 1 << 16;

/// All file systems that were seen so far; the first is that of the first source.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    all: RwLock<Vec<Arc<Volume>>>,
    any_remote: AtomicBool,
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
    /// The file system of `stat`; if it is new, `folder` gives a folder on it.
    pub(crate) fn of(
        &self,
        stat: &Statx,
        folder: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<VolumeInfo, Errno> {
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        if let Some(met) = self.find(device) {
            return Ok(met);
        }
        let volume = Arc::new(Volume::new(device, folder()?)?);
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() == VOLUMES_MAX {
            return Err(Errno::NFILE);
        }
        if !all.iter().any(|other| other.device == device) {
            self.any_remote.fetch_or(volume.is_remote, Relaxed);
            all.push(volume);
        }
        info_of(&all, device).ok_or(Errno::NFILE)
    }

    pub(crate) fn get(&self, index: u16) -> Result<Arc<Volume>, Errno> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.get(usize::from(index)).cloned().ok_or(Errno::STALE)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Volume>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether other machines change any of them.
    pub(crate) fn any_remote(&self) -> bool {
        self.any_remote.load(Relaxed)
    }

    /// The file system of `stat`, if it was seen before.
    pub(crate) fn known(&self, stat: &Statx) -> Option<VolumeInfo> {
        self.find((stat.stx_dev_major, stat.stx_dev_minor))
    }

    fn find(&self, device: (u32, u32)) -> Option<VolumeInfo> {
        info_of(&self.all.read().unwrap_or_else(PoisonError::into_inner), device)
    }
}

fn info_of(all: &[Arc<Volume>], device: (u32, u32)) -> Option<VolumeInfo> {
    let index = all.iter().position(|volume| volume.device == device)?;
    let volume = &all[index];
    Some(VolumeInfo {
        index: u16::try_from(index).ok()?,
        has_handles: volume.has_handles,
        is_remote: volume.is_remote,
    })
}

impl Volume {
    /// `folder` may be open with `O_PATH` only.
    fn new(device: (u32, u32), folder: OwnedFd) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let anchor = fs::openat(&folder, c".", flags, Mode::empty())?;
        let has_handles = FileHandle::of(anchor.as_fd(), c"")
            .and_then(|handle| handle.open(anchor.as_fd(), 0))
            .is_ok();
        let kind = fs::fstatfs(&anchor)?.f_type;
        let is_remote = u64::try_from(kind).is_ok_and(|kind| REMOTE.contains(&kind));
        Ok(Self { device, anchor, has_handles, is_remote })
    }

    pub(crate) fn anchor(&self) -> BorrowedFd<'_> {
        self.anchor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, StatxFlags};
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
