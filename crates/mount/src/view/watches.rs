//! Watches on folders.

use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags};

use super::folder::BranchDir;
use super::stat::stat_fd;
use crate::inodes::{InodeId, Inodes, WatchState};
use crate::roots::{Root, Roots};
use crate::volumes::Volumes;
use crate::watch::Watch;

/// The watched folders, if the system allows watches at all.
#[derive(Debug)]
pub(super) struct FolderWatches {
    watch: Option<Watch>,
    inodes: Arc<Inodes>,
    volumes: Arc<Volumes>,
}

impl FolderWatches {
    /// Creates the set of watches. With `watch`, sources that are whole file systems are watched as a whole.
    pub(super) fn new(
        watch: Option<Watch>,
        inodes: &Arc<Inodes>,
        volumes: &Arc<Volumes>,
        roots: &Roots,
    ) -> Self {
        let (inodes, volumes) = (Arc::clone(inodes), Arc::clone(volumes));
        let watches = Self { watch, inodes, volumes };
        watches.watch_whole_sources(roots);
        watches
    }

    /// Watches each folder from now on, since the file system that was watched as a whole may be another one.
    pub(super) fn forget_whole(&self) {
        self.watch.iter().for_each(Watch::forget_whole);
    }

    pub(super) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// Whether there may be changes that the index of a merged folder does not contain yet.
    pub(super) fn is_behind(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_behind)
    }

    /// Watches sources that are whole file systems as a whole, where possible. Folders of other sources are watched
    /// individually.
    fn watch_whole_sources(&self, roots: &Roots) {
        let Some(watch) = &self.watch else { return };
        for Root { fd, is_whole, .. } in roots.all().into_iter().flatten() {
            let Ok(stat) = stat_fd(&fd) else { continue };
            let again = || fs::openat(&fd, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            let is_local = self.volumes.of(&stat, again).is_ok_and(|volume| !volume.is_remote);
            if is_local && is_whole {
                let _ = watch.add_whole(&fd);
            }
        }
    }

    /// Whether changes in the folder are reported. Starts to watch the folder if no watch was attempted yet.
    pub(super) fn is_watched(&self, id: InodeId, dir: &BranchDir) -> bool {
        match self.inodes.flags(id).watched() {
            WatchState::Watched => true,
            WatchState::Unwatchable => false,
            WatchState::Untried => {
                let watched = self.try_watching(id, dir);
                self.set_watched(id, watched);
                watched
            }
        }
    }

    pub(super) fn set_watched(&self, id: InodeId, watched: bool) {
        self.inodes.flags(id).set_watched(if watched {
            WatchState::Watched
        } else {
            WatchState::Unwatchable
        });
    }

    pub(super) fn try_watching(&self, id: InodeId, dir: &BranchDir) -> bool {
        let Some(watch) = &self.watch else { return false };
        let volume = stat_fd(&dir.fd).ok().and_then(|stat| self.volumes.known(&stat));
        // Changes by other machines are not reported.
        volume.is_some_and(|volume| !volume.is_remote)
            && watch.add((id, dir.branch), &dir.fd).is_ok()
    }
}
