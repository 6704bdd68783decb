//! The names of merged folders, each with the source that provides the file.

use std::ffi::{CStr, CString};
use std::sync::{Arc, RwLockReadGuard};
use std::time::{Duration, Instant};

use rustix::fs::{self, FileType, Mode, OFlags, RawDirEntry, Statx};
use rustix::io::Errno;

use super::entries::each_entry;
use super::folder::BranchDir;
use super::stat::{is_folder, open_handle, stat_name};
use crate::branches::{Branches, BuiltIndex, MergedFolder, Part};
use crate::index::{Entry, WHITEOUT};
use crate::inodes::InodeId;
use crate::memory::{Count, Memory};
use crate::upper::Upper;
use crate::volumes::Volumes;

/// The maximum age of the index of a folder whose changes are not reported.
const UNWATCHED_AGE_MAX: Duration = Duration::from_secs(1);

/// The size of the buffer for entries while names are read.
const RAW_BYTES: usize = 64 * 1024;

/// The sources of a view with several sources.
#[derive(Debug)]
pub(super) struct MergedSources {
    pub(super) branches: Branches,
    pub(super) volumes: Arc<Volumes>,
    pub(super) memory: Arc<Memory>,
    /// The upper source, if names may be hidden by whiteouts.
    pub(super) upper: Option<Arc<Upper>>,
}

impl MergedSources {
    /// Opens a part of a merged folder.
    pub(super) fn open_part(&self, merged: &MergedFolder, part: &Part) -> Result<BranchDir, Errno> {
        let fd = self.branches.part_fd(merged.id, part, |handle| {
            let volume = self.volumes.get(part.identity.volume)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            open_handle(&volume, handle, flags)
        })?;
        Ok(BranchDir { branch: part.branch, fd })
    }

    pub(super) fn find_merged(
        &self,
        merged: &MergedFolder,
        name: &CStr,
    ) -> Result<(BranchDir, Statx), Errno> {
        let entry = self.index(merged).index.find(name.to_bytes()).ok_or(Errno::NOENT)?;
        if entry.kind == WHITEOUT {
            return Err(Errno::NOENT);
        }
        let part = merged.part(entry.branch).ok_or(Errno::STALE)?;
        let dir = self.open_part(merged, part)?;
        match stat_name(&dir.fd, name) {
            Ok(stat) if self.is_whiteout(&dir, name, &stat) => Err(Errno::NOENT),
            Ok(stat) => Ok((dir, stat)),
            Err(Errno::NOENT) => self.look_up_again(merged, name).ok_or(Errno::NOENT),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn all_merged_with(
        &self,
        merged: &MergedFolder,
        name: &CStr,
    ) -> Result<Vec<BranchDir>, Errno> {
        let entry = self.index(merged).index.find(name.to_bytes()).ok_or(Errno::NOENT)?;
        let mut dirs = Vec::new();
        for part in merged.parts.iter().skip_while(|part| part.branch != entry.branch) {
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

    /// Returns the index of all parts. The index is built if it does not exist, or if it is too old for a folder whose
    /// changes are not reported.
    pub(super) fn index<'a>(&self, merged: &'a MergedFolder) -> RwLockReadGuard<'a, BuiltIndex> {
        let is_good = |built: &BuiltIndex| {
            built.at.is_some_and(|at| merged.is_watched || at.elapsed() < UNWATCHED_AGE_MAX)
        };
        {
            // The lock is held until all names are looked up, so that no other thread uses the index before.
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

    /// Reads all parts again, even if their changes are reported.
    pub(super) fn rebuild(&self, merged: &MergedFolder) {
        self.build(merged, &mut merged.write_index());
    }

    fn build(&self, merged: &MergedFolder, built: &mut BuiltIndex) {
        self.memory.count(Count::FolderReads);
        merged.begin_build(built);
        for part in &merged.parts {
            let read = self.open_part(merged, part).and_then(|dir| {
                each_entry(&dir.fd, 0, RAW_BYTES, |entry| {
                    let name = entry.file_name().to_bytes();
                    if !matches!(name, b"." | b"..") {
                        let kind = match self.is_listed_whiteout(&dir, entry) {
                            true => WHITEOUT,
                            false => {
                                u8::try_from(entry.file_type().as_raw_mode() >> 12).unwrap_or(0)
                            }
                        };
                        built.index.insert(name, part.branch, kind, entry.ino());
                    }
                    Ok(true)
                })
            });
            match read {
                Ok(()) => self.branches.note_success(part.branch),
                // Only the names of this part are missing.
                Err(errno) => {
                    merged.note_partial();
                    self.branches.note_failure(part.branch, errno);
                }
            }
        }
        built.index.end();
        built.at = Some(Instant::now());
    }

    /// Looks the name up in all parts again, and updates the index.
    pub(super) fn look_up_again(
        &self,
        merged: &MergedFolder,
        name: &CStr,
    ) -> Option<(BranchDir, Statx)> {
        let mut found = None;
        let mut more = false;
        for part in &merged.parts {
            // A part that was removed has no names.
            let Ok(dir) = self.open_part(merged, part) else { continue };
            match (stat_name(&dir.fd, name), &found) {
                (Ok(stat), _) if self.is_whiteout(&dir, name, &stat) => break,
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

    /// Returns the layers of a name: the file that is shown, and for a folder those with which it is merged. Empty if
    /// the name does not exist.
    pub(super) fn layers(
        &self,
        upper: &Upper,
        parts: &[BranchDir],
        name: &CStr,
    ) -> Result<Vec<BranchDir>, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut layers = Vec::new();
        for part in parts {
            let stat = match stat_name(&part.fd, name) {
                Err(Errno::NOENT) => continue,
                stat => stat?,
            };
            let is_part = is_folder(&stat) || layers.is_empty();
            if !is_part || self.is_whiteout(part, name, &stat) {
                break;
            }
            let fd = Arc::new(fs::openat(&part.fd, name, flags, Mode::empty())?);
            let hides = !is_folder(&stat) || upper.is_opaque(&fd);
            if is_folder(&stat) {
                upper.check_complete(&fd)?;
            }
            layers.push(BranchDir { branch: part.branch, fd });
            if hides {
                break;
            }
        }
        Ok(layers)
    }

    /// Whether the file is a whiteout, which hides its name.
    fn is_whiteout(&self, dir: &BranchDir, name: &CStr, stat: &Statx) -> bool {
        self.upper.as_ref().is_some_and(|upper| upper.is_whiteout(&dir.fd, name, stat))
    }

    /// Whether an entry of a listing is a whiteout. Only devices and empty files can be.
    fn is_listed_whiteout(&self, dir: &BranchDir, entry: &RawDirEntry<'_>) -> bool {
        let Some(upper) = &self.upper else { return false };
        let may_be = match entry.file_type() {
            FileType::CharacterDevice | FileType::Unknown => true,
            FileType::RegularFile => upper.holds_marked_whiteouts(&dir.fd),
            _ => false,
        };
        may_be
            && stat_name(&dir.fd, entry.file_name())
                .is_ok_and(|stat| upper.is_whiteout(&dir.fd, entry.file_name(), &stat))
    }

    /// Marks a name as stale after another program has changed the file that a branch has under the name.
    pub(super) fn mark_stale(&self, id: InodeId, name: &[u8]) {
        if let Ok(name) = CString::new(name) {
            self.branches.mark_stale(id, &name);
        }
    }
}
