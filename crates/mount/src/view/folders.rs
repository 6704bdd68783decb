//! The folders of the view, and the names in them.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;

use super::files::Files;
use super::folder::{BranchDir, Folder, Parts};
use super::merged_sources::MergedSources;
use super::stat::{handle_of, identity, shown_number, stat_fd, stat_name, take_newer_times};
use super::watches::FolderWatches;
use crate::branches::{Branches, MergedFolder, Opener, Part};
use crate::inodes::{ForgottenInode, Identity, InodeId, WatchState};
use crate::upper::{UPPER, Upper};

/// How often the parts of a folder are looked up while folders are dropped.
const FINDS_MAX: u32 = 4;

/// The folders that the kernel knows, of a single source or merged from several.
#[derive(Debug)]
pub(super) struct Folders {
    pub(super) files: Arc<Files>,
    pub(super) watches: FolderWatches,
    /// The sources, if there are several.
    pub(super) merged_sources: Option<MergedSources>,
    /// Whether the sources never change, so that nothing has to be watched.
    pub(super) is_frozen: bool,
}

impl Folders {
    /// Returns the sources, if there are several.
    pub(super) fn branches(&self) -> Option<&Branches> {
        self.merged_sources.as_ref().map(|merged_sources| &merged_sources.branches)
    }

    /// Returns the upper source, if it takes all changes.
    pub(super) fn upper(&self) -> Option<&Upper> {
        self.merged_sources.as_ref()?.upper.as_deref()
    }

    /// Returns the layers of a name, the file that is shown first; see [`MergedSources::layers`].
    pub(super) fn layers(&self, folder: &Folder, name: &CStr) -> Result<Vec<BranchDir>, Errno> {
        let upper = self.upper().ok_or(Errno::INVAL)?;
        self.merged_sources()?.layers(upper, &self.dirs(folder)?, name)
    }

    /// Returns the layers of a name without the upper source.
    pub(super) fn lower_layers(
        &self,
        folder: &Folder,
        name: &CStr,
    ) -> Result<Vec<BranchDir>, Errno> {
        let upper = self.upper().ok_or(Errno::INVAL)?;
        let mut dirs = self.dirs(folder)?;
        dirs.retain(|dir| dir.branch != UPPER);
        self.merged_sources()?.layers(upper, &dirs, name)
    }

    fn merged_sources(&self) -> Result<&MergedSources, Errno> {
        self.merged_sources.as_ref().ok_or(Errno::STALE)
    }

    /// Returns the folder, which is watched if possible, since the kernel caches its names.
    pub(super) fn folder(&self, id: InodeId) -> Result<Folder, Errno> {
        if let Some(branches) = self.branches() {
            let merged = self.merged(branches, id)?;
            let is_watched = self.is_frozen || merged.is_watched;
            return Ok(Folder { id, is_watched, parts: Parts::Merged(merged) });
        }
        let dir = BranchDir { branch: 0, fd: self.files.path_fd(id)? };
        let is_watched = self.is_frozen || self.watches.is_watched(id, &dir);
        Ok(Folder { id, is_watched, parts: Parts::One(dir) })
    }

    /// Returns the folder after a change in it, by which the folder may have got another part.
    pub(super) fn after_change(&self, folder: Folder) -> Folder {
        let id = folder.id;
        // Without the parts, nothing is known about who reports changes.
        self.folder(id).unwrap_or(Folder { is_watched: false, ..folder })
    }

    /// Returns the attributes of the file with this name, and the source that has the file.
    pub(super) fn find(&self, folder: &Folder, name: &CStr) -> Result<(BranchDir, Statx), Errno> {
        match &folder.parts {
            Parts::One(dir) => Ok((dir.clone(), stat_name(&dir.fd, name)?)),
            Parts::Merged(merged) if merged.is_merged() => {
                let merged_sources = self.merged_sources()?;
                if self.watches.is_behind() {
                    return merged_sources.look_up_again(merged, name).ok_or(Errno::NOENT);
                }
                merged_sources.find_merged(merged, name)
            }
            Parts::Merged(merged) => {
                let dir = self.merged_sources()?.open_part(merged, &merged.parts[0])?;
                let stat = stat_name(&dir.fd, name)?;
                Ok((dir, stat))
            }
        }
    }

    /// Returns the sources that may have the name. The first of them provides the file.
    pub(super) fn all_with(&self, folder: &Folder, name: &CStr) -> Result<Vec<BranchDir>, Errno> {
        match &folder.parts {
            Parts::One(dir) => Ok(vec![dir.clone()]),
            Parts::Merged(_) if self.upper().is_some() => {
                let layers = self.layers(folder, name)?;
                let mut dirs = self.dirs(folder)?;
                dirs.retain(|dir| layers.iter().any(|layer| layer.branch == dir.branch));
                Ok(dirs)
            }
            Parts::Merged(merged) if merged.is_merged() => {
                let merged_sources = self.merged_sources()?;
                if self.watches.is_behind() {
                    merged_sources.look_up_again(merged, name);
                }
                merged_sources.all_merged_with(merged, name)
            }
            Parts::Merged(merged) => {
                Ok(vec![self.merged_sources()?.open_part(merged, &merged.parts[0])?])
            }
        }
    }

    /// Returns the folder's part in this source.
    pub(super) fn dir_in(&self, folder: &Folder, branch: u16) -> Result<BranchDir, Errno> {
        match &folder.parts {
            Parts::One(dir) => Ok(dir.clone()),
            Parts::Merged(merged) => {
                let part = merged.part(branch).ok_or(Errno::XDEV)?;
                self.merged_sources()?.open_part(merged, part)
            }
        }
    }

    /// Returns the folder's parts, one for each source that has the folder.
    pub(super) fn dirs(&self, folder: &Folder) -> Result<Vec<BranchDir>, Errno> {
        match &folder.parts {
            Parts::One(dir) => Ok(vec![dir.clone()]),
            Parts::Merged(merged) => {
                let merged_sources = self.merged_sources()?;
                merged.parts.iter().map(|part| merged_sources.open_part(merged, part)).collect()
            }
        }
    }

    /// Returns the inode's descriptors: one for each part of a merged folder, otherwise a single one.
    pub(super) fn fds_of(&self, id: InodeId) -> Result<Vec<Arc<OwnedFd>>, Errno> {
        let is_folder = self.files.inodes.get(id)?.identity.is_folder();
        if self.branches().is_none() || !is_folder {
            return Ok(vec![self.files.path_fd(id)?]);
        }
        let dirs = self.dirs(&self.folder(id)?)?;
        Ok(dirs.into_iter().map(|dir| dir.fd).collect())
    }

    /// Returns the descriptors of the inode that a change concerns. Sources that must not be changed are left out of a
    /// merged folder, unless the first one is among them, which the view shows.
    pub(super) fn fds_to_change(&self, id: InodeId) -> Result<Vec<Arc<OwnedFd>>, Errno> {
        let inode = self.files.inodes.get(id)?;
        let is_folder = inode.identity.is_folder();
        let roots = &self.files.roots;
        if self.branches().is_none() || !is_folder {
            roots.check_writable(inode.branch)?;
            return Ok(vec![self.files.path_fd(id)?]);
        }
        let mut dirs = self.dirs(&self.folder(id)?)?;
        dirs.iter().take(1).try_for_each(|dir| roots.check_writable(dir.branch))?;
        dirs.retain(|dir| roots.check_writable(dir.branch).is_ok());
        Ok(dirs.into_iter().map(|dir| dir.fd).collect())
    }

    /// Completes the attributes of a folder with the newest times of all its parts. Returns whether all changes of
    /// these times are reported.
    pub(super) fn complete(&self, id: InodeId, stat: &mut Statx) -> bool {
        let Ok(folder) = self.folder(id) else { return false };
        if self.upper().is_some() {
            self.keep_number(&folder, stat);
            return folder.is_watched;
        }
        if let (Some(merged), Ok(merged_sources)) = (folder.merged(), self.merged_sources()) {
            let parts = merged.parts.iter().flat_map(|part| merged_sources.open_part(merged, part));
            parts.flat_map(|dir| stat_fd(&dir.fd)).for_each(|part| take_newer_times(stat, &part));
        }
        folder.is_watched
    }

    /// Sets the inode number of a merged folder to that of its part in the lowest source. So the number stays the same
    /// when the folder is copied to the upper source.
    fn keep_number(&self, folder: &Folder, stat: &mut Statx) {
        let Some(merged) = folder.merged() else { return };
        let (Some(last), Ok(sources)) = (merged.parts.last(), self.merged_sources()) else {
            return;
        };
        if merged.parts.len() < 2 {
            return;
        }
        let lowest = sources.open_part(merged, last).and_then(|dir| stat_fd(&dir.fd));
        let volumes = &self.files.volumes;
        if let (Ok(lowest), Some(first)) = (lowest, volumes.known(stat))
            && let Some(volume) = volumes.known(&lowest)
        {
            // The number that is shown depends on the first part's file system.
            stat.stx_ino = shown_number(volume, &lowest);
            stat.stx_ino = shown_number(first, stat);
        }
    }

    /// Returns the merged folder, whose parts are looked up if they are not known.
    fn merged(&self, branches: &Branches, id: InodeId) -> Result<Arc<MergedFolder>, Errno> {
        for _ in 1..FINDS_MAX {
            if let Ok(merged) = self.find_merged(branches, id)? {
                return Ok(merged);
            }
        }
        // For this request alone.
        self.find_merged(branches, id).map(|found| found.unwrap_or_else(Arc::new))
    }

    /// Returns the merged folder, or as an error one whose parts may have changed while they were looked up.
    fn find_merged(
        &self,
        branches: &Branches,
        id: InodeId,
    ) -> Result<Result<Arc<MergedFolder>, MergedFolder>, Errno> {
        if let Some(merged) = branches.get(id) {
            return Ok(Ok(merged));
        }
        let drops = branches.drops();
        let (fds, is_complete) = if id == InodeId::ROOT {
            (branches.roots().present(), true)
        } else {
            match self.part_fds(id).or_else(|_| self.part_fds_by_path(branches, id)) {
                Ok(fds) => (fds, true),
                Err(_) => (self.only_fd(id)?, false),
            }
        };
        let parts: Vec<_> = fds
            .iter()
            .filter_map(|(branch, fd)| {
                let part = self.new_part(id, *branch, fd);
                part.inspect_err(|&errno| branches.note_failure(*branch, errno)).ok()
            })
            .collect();
        let Some(first) = parts.first().cloned() else {
            return Err(if id == InodeId::ROOT { Errno::NODEV } else { Errno::STALE });
        };
        self.supersede_others(branches, id, &parts);
        // The watch precedes the reading of names, so that no change is missed. Changes in a folder are reported for
        // one inode.
        let is_watched = self.may_be_watched(id)
            && fds.iter().fold(true, |all, (branch, fd)| {
                let dir = BranchDir { branch: *branch, fd: Arc::clone(fd) };
                self.watches.try_watching(id, &dir) && all
            });
        let is_layered = self.upper().is_some();
        if !is_complete {
            // Once its name is looked up again, the folder may have more parts.
            return Ok(Ok(Arc::new(MergedFolder::new(id, parts, false, is_layered))));
        }
        self.watches.set_watched(id, is_watched);
        let merged = MergedFolder::new(id, parts, is_watched, is_layered);
        Ok(branches.keep(merged, drops, || {
            if let Some((_, fd)) = fds.iter().find(|(branch, _)| *branch == first.branch) {
                self.files.follow_folder(id, &first, fd);
            }
        }))
    }

    /// Lets the inode that had this place before have the folder there, whose first part has this identity. When the
    /// disk of the first part goes away or comes back, the folder stays the same inode. Otherwise, the kernel could not
    /// rename what is below: it knows the names there as those of another folder.
    pub(super) fn continue_folder(&self, parent: InodeId, name: &CStr, identity: &Identity) {
        let Some(branches) = self.branches() else { return };
        self.supersede_below(branches, parent, identity);
        let Some(id) = self.files.folder_at(parent, name) else { return };
        let goes_on = match self.files.inodes.find_known(identity) {
            None => true,
            Some(known) => known != id && self.is_at_its_place(id),
        };
        if goes_on {
            branches.drop_folder(id);
            // If the folder cannot be read, it gets another inode.
            let _ = self.folder(id);
        }
    }

    /// Returns the inode, open with `O_PATH`. Of a merged folder, that is the first part, which may be another one than
    /// before.
    pub(super) fn path_fd(&self, id: InodeId) -> Result<Arc<OwnedFd>, Errno> {
        if self.branches().is_some() && self.files.inodes.get(id)?.identity.is_folder() {
            // A folder that was removed has no parts.
            let _ = self.folder(id);
        }
        self.files.path_fd(id)
    }

    /// Returns the folder in each branch that has this folder's path, for a folder whose name is not known: the worker
    /// that knew it has died.
    fn part_fds_by_path(
        &self,
        branches: &Branches,
        id: InodeId,
    ) -> Result<Vec<(u16, Arc<OwnedFd>)>, Errno> {
        let path = self.files.path_in_source(id).ok_or(Errno::STALE)?;
        if let Some(upper) = self.upper() {
            return self.layers_by_path(upper, &path);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let open = |(branch, root): (u16, Arc<OwnedFd>)| {
            let folder = fs::openat2(root, path.as_slice(), flags, Mode::empty(), within).ok()?;
            Some((branch, Arc::new(folder)))
        };
        let fds: Vec<_> = branches.roots().present().into_iter().filter_map(open).collect();
        if fds.is_empty() { Err(Errno::STALE) } else { Ok(fds) }
    }

    /// Returns the layers of the folder with this path below the root.
    fn layers_by_path(
        &self,
        upper: &Upper,
        path: &[u8],
    ) -> Result<Vec<(u16, Arc<OwnedFd>)>, Errno> {
        let merged_sources = self.merged_sources()?;
        let roots = merged_sources.branches.roots().present().into_iter();
        let mut dirs: Vec<_> = roots.map(|(branch, fd)| BranchDir { branch, fd }).collect();
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let name = CString::new(name).map_err(|_| Errno::INVAL)?;
            dirs = merged_sources.layers(upper, &dirs, &name)?;
        }
        let fds: Vec<_> = dirs.into_iter().map(|dir| (dir.branch, dir.fd)).collect();
        if fds.is_empty() { Err(Errno::STALE) } else { Ok(fds) }
    }

    /// Returns the folder in each branch that has this folder's name in the parent.
    pub(super) fn part_fds(&self, id: InodeId) -> Result<Vec<(u16, Arc<OwnedFd>)>, Errno> {
        let known = self.files.names.as_ref().and_then(|names| names.get(id));
        let (parent, name) = known.ok_or(Errno::STALE)?;
        let parent = self.folder(parent)?;
        if self.upper().is_some() {
            let layers = self.layers(&parent, &name)?;
            let fds: Vec<_> = layers.into_iter().map(|dir| (dir.branch, dir.fd)).collect();
            return if fds.is_empty() { Err(Errno::STALE) } else { Ok(fds) };
        }
        let mut fds = Vec::new();
        for dir in self.all_with(&parent, &name)? {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match fs::openat(&dir.fd, name.as_c_str(), flags, Mode::empty()) {
                Ok(fd) => fds.push((dir.branch, Arc::new(fd))),
                // The branch has a file of that name, which the folder hides.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => {
                    self.merged_sources()?.branches.note_failure(dir.branch, errno);
                }
            }
        }
        if fds.is_empty() { Err(Errno::STALE) } else { Ok(fds) }
    }

    /// Returns the descriptor of a removed folder that programs still use.
    fn only_fd(&self, id: InodeId) -> Result<Vec<(u16, Arc<OwnedFd>)>, Errno> {
        Ok(vec![(self.files.inodes.get(id)?.branch, self.files.path_fd(id)?)])
    }

    pub(super) fn new_part(
        &self,
        id: InodeId,
        branch: u16,
        fd: &Arc<OwnedFd>,
    ) -> Result<Part, Errno> {
        let stat = stat_fd(fd)?;
        let again = || fs::openat(fd, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let volume = self.files.volumes.of(&stat, again)?;
        let held = || Opener::Held(Arc::clone(fd));
        let opener = if id == InodeId::ROOT || !volume.has_handles {
            held()
        } else {
            handle_of(fd.as_fd()).map_or_else(|_| held(), Opener::Handle)
        };
        Ok(Part { branch, identity: identity(volume.index, &stat), opener })
    }

    /// Marks a name as stale in the index after a change through the mount, for which there is no event.
    pub(super) fn note_change(&self, folder: InodeId, name: &CStr) {
        if let Some(branches) = self.branches() {
            branches.mark_stale(folder, name);
        }
    }

    /// Whether changes to the file are reported: by the folder in which the file was found, or by the root for itself.
    pub(super) fn is_parent_watched(&self, id: InodeId) -> bool {
        if id == InodeId::ROOT {
            return self.folder(id).is_ok_and(|root| root.is_watched);
        }
        let parent = self.files.inodes.get(id).map(|inode| inode.parent);
        parent.is_ok_and(|parent| {
            self.files.inodes.get(parent).is_ok()
                && self.files.inodes.flags(parent).watched() == WatchState::Watched
        })
    }

    /// Ends the watch of a folder that the kernel has forgotten.
    pub(super) fn unwatch(&self, forgotten: &ForgottenInode) {
        let id = forgotten.inode.id;
        let (Some(watch), WatchState::Watched) = (self.watches.watch(), forgotten.watched) else {
            return;
        };
        if let Some(merged) = self.branches().and_then(|branches| branches.get(id)) {
            let dirs = merged.parts.iter().flat_map(|part| {
                self.merged_sources().and_then(|all| all.open_part(&merged, part))
            });
            dirs.for_each(|dir| watch.remove(id, &dir.fd));
            return;
        }
        let fd = self.files.path_fds.get(id).map(Ok).unwrap_or_else(|| {
            self.files.open_inode(&forgotten.inode, OFlags::PATH | OFlags::NOFOLLOW).map(Into::into)
        });
        if let Ok(fd) = fd {
            watch.remove(id, &fd);
        }
    }
}
