//! The names of merged folders: which source each is taken from.

use std::ffi::{CStr, CString};
use std::sync::{Arc, RwLockReadGuard};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;

use super::entries::each_entry;
use super::folder::BranchDir;
use super::stat::{open_handle, stat_name};
use crate::branches::{Branches, Built, Merged, Part};
use crate::index::Entry;
use crate::inodes::InodeId;
use crate::volumes::Volumes;

/// How old the index may be if changes in one of its folders are not reported.
const UNWATCHED_AGE_MAX: Duration = Duration::from_secs(1);

/// The buffer for entries while names are read.
const RAW_BYTES: usize = 64 * 1024;

/// Several sources as one.
#[derive(Debug)]
pub(super) struct Merging {
    pub(super) branches: Branches,
    pub(super) volumes: Arc<Volumes>,
}

impl Merging {
    /// The open part of a merged folder.
    pub(super) fn open_part(&self, merged: &Merged, part: &Part) -> Result<BranchDir, Errno> {
        let fd = self.branches.part_fd(merged.id, part, |handle| {
            let volume = self.volumes.get(part.volume)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            open_handle(&volume, handle, flags)
        })?;
        Ok(BranchDir { branch: part.branch, fd })
    }

    pub(super) fn find_merged(
        &self,
        merged: &Merged,
        name: &CStr,
    ) -> Result<(BranchDir, Statx), Errno> {
        let entry = self.index(merged).index.find(name.to_bytes()).ok_or(Errno::NOENT)?;
        let part = merged.part(entry.branch).ok_or(Errno::STALE)?;
        let dir = self.open_part(merged, part)?;
        match stat_name(&dir.fd, name) {
            Ok(stat) => Ok((dir, stat)),
            Err(Errno::NOENT) => self.look_up_again(merged, name).ok_or(Errno::NOENT),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn all_merged_with(
        &self,
        merged: &Merged,
        name: &CStr,
    ) -> Result<Vec<BranchDir>, Errno> {
        let entry = self.index(merged).index.find(name.to_bytes()).ok_or(Errno::NOENT)?;
        let mut dirs = Vec::new();
        for part in merged.parts.iter().filter(|part| part.branch >= entry.branch) {
            let is_first = part.branch == entry.branch;
            match self.open_part(merged, part) {
                Ok(dir) if is_first || entry.more && stat_name(&dir.fd, name).is_ok() => {
                    dirs.push(dir);
                }
                Err(errno) if is_first => return Err(errno),
                _ => {}
            }
        }
        Ok(dirs)
    }

    /// The index of all parts. It is built if there is none, or if it is too old for a folder without reports of
    /// changes.
    pub(super) fn index<'a>(&self, merged: &'a Merged) -> RwLockReadGuard<'a, Built> {
        let is_good = |built: &Built| {
            built.at.is_some_and(|at| merged.is_watched || at.elapsed() < UNWATCHED_AGE_MAX)
        };
        {
            // Held until all are looked up: no other thread may use the index before.
            let mut stale_names = merged.stale_names();
            for name in stale_names.drain() {
                self.look_up_again(merged, &name);
            }
        }
        loop {
            let built = merged.read_index();
            if is_good(&built) {
                return built;
            }
            drop(built);
            let mut built = merged.write_index();
            if !is_good(&built) {
                self.build(merged, &mut built);
            }
        }
    }

    /// Reads all parts again, though changes in them are reported.
    pub(super) fn rebuild(&self, merged: &Merged) {
        self.build(merged, &mut merged.write_index());
    }

    fn build(&self, merged: &Merged, built: &mut Built) {
        built.index.begin();
        for part in &merged.parts {
            let read = self.open_part(merged, part).and_then(|dir| {
                each_entry(&dir.fd, 0, RAW_BYTES, |entry| {
                    let name = entry.file_name().to_bytes();
                    if !matches!(name, b"." | b"..") {
                        let kind = u8::try_from(entry.file_type().as_raw_mode() >> 12);
                        built.index.insert(name, part.branch, kind.unwrap_or(0), entry.ino());
                    }
                    Ok(true)
                })
            });
            match read {
                Ok(()) => self.branches.note_success(part.branch),
                // Only the names of this part are missing.
                Err(errno) => self.branches.note_failure(part.branch, errno),
            }
        }
        built.index.end();
        built.at = Some(Instant::now());
    }

    /// Looks the name up in all parts, and updates the index.
    pub(super) fn look_up_again(&self, merged: &Merged, name: &CStr) -> Option<(BranchDir, Statx)> {
        let mut found = None;
        let mut more = false;
        for part in &merged.parts {
            // A part that is gone has no names.
            let Ok(dir) = self.open_part(merged, part) else { continue };
            match (stat_name(&dir.fd, name), &found) {
                (Ok(stat), None) => found = Some((dir, stat)),
                (Ok(_), Some(_)) => more = true,
                (Err(_), _) => {}
            }
        }
        let mut built = merged.write_index();
        match &found {
            None => built.index.remove(name.to_bytes()),
            Some((dir, stat)) => {
                let kind = u8::try_from(stat.stx_mode >> 12).unwrap_or(0);
                let entry = Entry { branch: dir.branch, more, kind, number: stat.stx_ino };
                built.index.replace(name.to_bytes(), entry);
            }
        }
        found
    }

    /// Another program has changed what a branch has under the name.
    pub(super) fn mark_stale(&self, id: InodeId, name: &[u8]) {
        let merged = self.branches.get(id);
        if let (Some(merged), Ok(name)) = (merged.filter(|it| it.is_merged()), CString::new(name)) {
            merged.stale_names().insert(name);
        }
    }

    /// Whether a folder of this name, just added or removed, may be a part of a merged folder.
    pub(super) fn may_be_part(&self, id: InodeId, name: &[u8]) -> bool {
        // In a folder that is not known any more, it may be.
        let Some(merged) = self.branches.get(id) else { return !self.branches.is_empty() };
        let is_stale = CString::new(name).is_ok_and(|name| merged.stale_names().contains(&name));
        let built = merged.read_index();
        let may_be_in = built.at.is_none() || built.index.find(name).is_some();
        merged.is_merged() && (is_stale || may_be_in)
    }
}
