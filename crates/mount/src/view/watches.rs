//! Watches on folders.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags, StatxAttributes};

use super::folder::BranchDir;
use super::stat::stat_fd;
use crate::inodes::{InodeId, Inodes, Watched};
use crate::mounts;
use crate::volumes::Volumes;
use crate::watch::Watch;

/// The folders that are watched, if the system allows any watch.
#[derive(Debug)]
pub(super) struct FolderWatches {
    watch: Option<Watch>,
    inodes: Arc<Inodes>,
    volumes: Arc<Volumes>,
}

impl FolderWatches {
    /// With `watch`, sources that are whole file systems are watched as a whole.
    pub(super) fn new(
        watch: Option<Watch>,
        inodes: &Arc<Inodes>,
        volumes: &Arc<Volumes>,
        roots: &[Arc<OwnedFd>],
    ) -> Self {
        let (inodes, volumes) = (Arc::clone(inodes), Arc::clone(volumes));
        let mut watches = Self { watch, inodes, volumes };
        watches.watch_whole_sources(roots);
        watches
    }

    pub(super) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// Whether changes may have been made that the index of a merged folder does not show yet.
    pub(super) fn is_behind(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_behind)
    }

    /// Watches sources that are whole file systems as a whole, where possible; else each folder is watched.
    fn watch_whole_sources(&mut self, roots: &[Arc<OwnedFd>]) {
        let Some(watch) = &mut self.watch else { return };
        for root in roots {
            let Ok(stat) = stat_fd(root) else { continue };
            let again = || fs::openat(root, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            let is_local = self.volumes.of(&stat, again).is_ok_and(|volume| !volume.is_remote);
            let is_top = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
            if is_local && is_top && mounts::is_whole(stat.stx_mnt_id) {
                let _ = watch.add_whole(root);
            }
        }
    }

    /// Whether changes in the folder are reported; if possible, it is watched from now on.
    pub(super) fn is_watched(&self, id: InodeId, dir: &BranchDir) -> bool {
        match self.inodes.flags(id).watched() {
            Watched::Yes => true,
            Watched::No => false,
            Watched::Untried => {
                let watched = self.try_watching(id, dir);
                self.set_watched(id, watched);
                watched
            }
        }
    }

    pub(super) fn set_watched(&self, id: InodeId, watched: bool) {
        self.inodes.flags(id).set_watched(if watched { Watched::Yes } else { Watched::No });
    }

    pub(super) fn try_watching(&self, id: InodeId, dir: &BranchDir) -> bool {
        let Some(watch) = &self.watch else { return false };
        let volume = stat_fd(&dir.fd).ok().and_then(|stat| self.volumes.known(&stat));
        // Changes by other machines are not reported.
        volume.is_some_and(|volume| !volume.is_remote)
            && watch.add((id, dir.branch), &dir.fd).is_ok()
    }
}
