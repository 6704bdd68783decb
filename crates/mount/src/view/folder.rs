//! A folder that names are looked up in: one folder of a source, or several merged.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags, Statx};
use rustix::io::Errno;

use super::View;
use super::lookup::{FOLDER, handle_of, open_handle, stat_name, stat_place};
use crate::branches::{Branches, Merged, Opener, Part};
use crate::inodes::InodeId;

/// A folder that names are looked up in.
pub(super) struct Folder {
    pub(super) id: InodeId,
    /// We are told what others change in it.
    pub(super) is_watched: bool,
    parts: Parts,
}

enum Parts {
    One(Spot),
    Merged(Arc<Merged>),
}

/// A folder of one source.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) branch: u16,
    pub(super) place: Arc<OwnedFd>,
}

impl View {
    /// The folder, watched if it can be: the kernel will hold names of it.
    pub(super) fn folder(&self, id: InodeId) -> Result<Folder, Errno> {
        if let Some(branches) = &self.branches {
            let merged = self.merged(branches, id)?;
            let is_watched = self.behaviour.frozen || merged.is_watched;
            return Ok(Folder { id, is_watched, parts: Parts::Merged(merged) });
        }
        let spot = Spot { branch: 0, place: self.place(id)? };
        let is_watched = self.behaviour.frozen || self.is_watched(id, &spot);
        Ok(Folder { id, is_watched, parts: Parts::One(spot) })
    }

    /// What the name leads to, and in which source.
    pub(super) fn find(&self, folder: &Folder, name: &CStr) -> Result<(Spot, Statx), Errno> {
        match &folder.parts {
            Parts::One(spot) => Ok((spot.clone(), stat_name(&spot.place, name)?)),
            Parts::Merged(merged) if merged.is_merged() => self.find_merged(merged, name),
            Parts::Merged(merged) => {
                let spot = self.spot(merged, &merged.parts[0])?;
                let stat = stat_name(&spot.place, name)?;
                Ok((spot, stat))
            }
        }
    }

    /// The sources in which the name may be, the one that it is taken from first.
    pub(super) fn all_with(&self, folder: &Folder, name: &CStr) -> Result<Vec<Spot>, Errno> {
        match &folder.parts {
            Parts::One(spot) => Ok(vec![spot.clone()]),
            Parts::Merged(merged) if merged.is_merged() => self.all_merged_with(merged, name),
            Parts::Merged(merged) => Ok(vec![self.spot(merged, &merged.parts[0])?]),
        }
    }

    /// The folder's part in this source.
    pub(super) fn spot_in(&self, folder: &Folder, branch: u16) -> Result<Spot, Errno> {
        match &folder.parts {
            Parts::One(spot) => Ok(spot.clone()),
            Parts::Merged(merged) => {
                let part = merged.part(branch).ok_or(Errno::XDEV)?;
                self.spot(merged, part)
            }
        }
    }

    /// The folder in each source that has it.
    pub(super) fn spots(&self, folder: &Folder) -> Result<Vec<Spot>, Errno> {
        match &folder.parts {
            Parts::One(spot) => Ok(vec![spot.clone()]),
            Parts::Merged(merged) => {
                merged.parts.iter().map(|part| self.spot(merged, part)).collect()
            }
        }
    }

    /// The folder if its names are merged from several sources.
    pub(super) fn merging(folder: &Folder) -> Option<&Arc<Merged>> {
        match &folder.parts {
            Parts::Merged(merged) if merged.is_merged() => Some(merged),
            _ => None,
        }
    }

    /// The places of an inode: several if it is a merged folder.
    pub(super) fn places_of(&self, id: InodeId) -> Result<Vec<Arc<OwnedFd>>, Errno> {
        let is_folder = u32::from(self.inodes.get(id)?.identity.kind) << 12 == FOLDER;
        if self.branches.is_none() || !is_folder {
            return Ok(vec![self.place(id)?]);
        }
        let spots = self.spots(&self.folder(id)?)?;
        Ok(spots.into_iter().map(|spot| spot.place).collect())
    }

    /// The open part of a merged folder.
    pub(super) fn spot(&self, merged: &Merged, part: &Part) -> Result<Spot, Errno> {
        let branches = self.branches.as_ref().ok_or(Errno::STALE)?;
        let place = branches.place(merged.id, part, |handle| {
            let volume = self.volumes.get(part.volume)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            open_handle(&volume, handle, flags)
        })?;
        Ok(Spot { branch: part.branch, place })
    }

    /// The merged folder; its parts are looked for if that has not been done.
    fn merged(&self, branches: &Branches, id: InodeId) -> Result<Arc<Merged>, Errno> {
        if let Some(merged) = branches.get(id) {
            return Ok(merged);
        }
        let places = if id == InodeId::ROOT {
            let roots = branches.roots().iter().cloned();
            roots.enumerate().map(|(branch, place)| (branch_number(branch), place)).collect()
        } else {
            self.part_places(id).or_else(|_| self.only_place(id))?
        };
        let parts: Vec<_> = places
            .iter()
            .filter_map(|(branch, place)| {
                let part = self.new_part(id, *branch, place);
                part.inspect_err(|&errno| branches.note_failure(*branch, errno)).ok()
            })
            .collect();
        if parts.is_empty() {
            return Err(Errno::STALE);
        }
        // Watched before anyone reads names, so that no change is missed.
        let is_watched = places.iter().fold(true, |all, (branch, place)| {
            let spot = Spot { branch: *branch, place: Arc::clone(place) };
            self.try_watching(id, &spot) && all
        });
        self.set_watched(id, is_watched);
        Ok(branches.keep(Merged::new(id, parts, is_watched)))
    }

    /// The folders of the branches that have this one's name in its parent.
    fn part_places(&self, id: InodeId) -> Result<Vec<(u16, Arc<OwnedFd>)>, Errno> {
        let known = self.names.as_ref().and_then(|names| names.get(id));
        let (parent, name) = known.ok_or(Errno::STALE)?;
        let parent = self.folder(parent)?;
        let mut places = Vec::new();
        for spot in self.all_with(&parent, &name)? {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match fs::openat(&spot.place, name.as_c_str(), flags, Mode::empty()) {
                Ok(place) => places.push((spot.branch, Arc::new(place))),
                // What the branch has there is no folder: it is hidden.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => {
                    self.branches.iter().for_each(|all| all.note_failure(spot.branch, errno));
                }
            }
        }
        if places.is_empty() { Err(Errno::STALE) } else { Ok(places) }
    }

    /// A folder that was removed, while somebody is in it or has it open.
    fn only_place(&self, id: InodeId) -> Result<Vec<(u16, Arc<OwnedFd>)>, Errno> {
        Ok(vec![(self.inodes.get(id)?.branch, self.place(id)?)])
    }

    fn new_part(&self, id: InodeId, branch: u16, place: &Arc<OwnedFd>) -> Result<Part, Errno> {
        let stat = stat_place(place)?;
        let again = || fs::openat(place, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let volume = self.volumes.of(&stat, again)?;
        let held = || Opener::Held(Arc::clone(place));
        let opener = if id == InodeId::ROOT || !volume.has_handles {
            held()
        } else {
            handle_of(place.as_fd()).map_or_else(|_| held(), Opener::Handle)
        };
        Ok(Part { branch, volume: volume.index, opener })
    }
}

pub(super) fn branch_number(branch: usize) -> u16 {
    // `supervisor` lets in as many sources as there are numbers.
    u16::try_from(branch).unwrap_or(u16::MAX)
}
