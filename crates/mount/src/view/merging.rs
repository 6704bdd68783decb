//! Names of merged folders: which source a name is taken from, and keeping that right.

use std::ffi::{CStr, CString};
use std::sync::{Arc, RwLockReadGuard};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Statx, Uid};
use rustix::io::Errno;

use super::View;
use super::folder::{Folder, Spot, branch_number};
use super::listing::each_entry;
use super::lookup::{stat_name, stat_place};
use crate::branches::{Branches, Built, Merged};
use crate::index::Entry;
use crate::inodes::InodeId;
use crate::plan::CreatePolicy;
use crate::proc_path::ProcPath;

/// How old the names of several sources may be if we are told nothing of one of them.
const UNTOLD_MAX: Duration = Duration::from_secs(1);

/// Room for the entries of a folder while its names are read.
const RAW_BYTES: usize = 64 * 1024;

impl View {
    pub(super) fn find_merged(&self, merged: &Merged, name: &CStr) -> Result<(Spot, Statx), Errno> {
        let entry = self.index(merged).index.find(name.to_bytes()).ok_or(Errno::NOENT)?;
        let part = merged.part(entry.branch).ok_or(Errno::STALE)?;
        let spot = self.spot(merged, part)?;
        match stat_name(&spot.place, name) {
            Ok(stat) => Ok((spot, stat)),
            Err(Errno::NOENT) => self.look_again(merged, name).ok_or(Errno::NOENT),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn all_merged_with(&self, merged: &Merged, name: &CStr) -> Result<Vec<Spot>, Errno> {
        let entry = self.index(merged).index.find(name.to_bytes()).ok_or(Errno::NOENT)?;
        let mut spots = Vec::new();
        for part in merged.parts.iter().filter(|part| part.branch >= entry.branch) {
            let is_first = part.branch == entry.branch;
            match self.spot(merged, part) {
                Ok(spot) if is_first || entry.more && stat_name(&spot.place, name).is_ok() => {
                    spots.push(spot);
                }
                Err(errno) if is_first => return Err(errno),
                _ => {}
            }
        }
        Ok(spots)
    }

    /// The names of all parts, read if that has not been done, or was too long ago for sources of which
    /// we are told nothing.
    pub(super) fn index<'a>(&self, merged: &'a Merged) -> RwLockReadGuard<'a, Built> {
        let is_good = |built: &Built| {
            built.at.is_some_and(|at| merged.is_watched || at.elapsed() < UNTOLD_MAX)
        };
        {
            // Held until all are looked up: nobody else may go by the index before.
            let mut doubts = merged.doubts();
            for name in doubts.drain() {
                self.look_again(merged, &name);
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

    fn build(&self, merged: &Merged, built: &mut Built) {
        built.index.begin();
        for part in &merged.parts {
            let read = self.spot(merged, part).and_then(|spot| {
                each_entry(&spot.place, 0, RAW_BYTES, |entry| {
                    let name = entry.file_name().to_bytes();
                    if !matches!(name, b"." | b"..") {
                        let kind = u8::try_from(entry.file_type().as_raw_mode() >> 12);
                        built.index.insert(name, part.branch, kind.unwrap_or(0), entry.ino());
                    }
                    Ok(true)
                })
            });
            let Some(branches) = &self.branches else { continue };
            match read {
                Ok(()) => branches.note_success(part.branch),
                // Its names are missing, and only those.
                Err(errno) => branches.note_failure(part.branch, errno),
            }
        }
        built.index.end();
        built.at = Some(Instant::now());
    }

    /// Looks in all parts for the name, and keeps what is found.
    pub(super) fn look_again(&self, merged: &Merged, name: &CStr) -> Option<(Spot, Statx)> {
        let mut found = None;
        let mut more = false;
        for part in &merged.parts {
            // A part that is gone has no names.
            let Ok(spot) = self.spot(merged, part) else { continue };
            match (stat_name(&spot.place, name), &found) {
                (Ok(stat), None) => found = Some((spot, stat)),
                (Ok(_), Some(_)) => more = true,
                (Err(_), _) => {}
            }
        }
        let mut built = merged.write_index();
        match &found {
            None => built.index.remove(name.to_bytes()),
            Some((spot, stat)) => {
                let kind = u8::try_from(stat.stx_mode >> 12).unwrap_or(0);
                let entry = Entry { branch: spot.branch, more, kind, number: stat.stx_ino };
                built.index.replace(name.to_bytes(), entry);
            }
        }
        found
    }

    /// Keeps the index right after a change through the mount. (What we do ourselves is not told.)
    pub(super) fn note_change(&self, folder: &Folder, name: &CStr) {
        if let Some(merged) = Self::merging(folder) {
            merged.doubts().insert(name.to_owned());
        }
    }

    /// Somebody else has changed what a branch has under the name.
    pub(super) fn doubt(&self, id: InodeId, name: &[u8]) {
        let merged = self.branches.as_ref().and_then(|branches| branches.get(id));
        if let (Some(merged), Ok(name)) = (merged.filter(|it| it.is_merged()), CString::new(name)) {
            merged.doubts().insert(name);
        }
    }

    /// Whether a folder of this name that came or went may be one of several parts.
    pub(super) fn may_be_part(&self, id: InodeId, name: &[u8]) -> bool {
        let Some(branches) = &self.branches else { return false };
        // What is below a folder that is not known any more may be.
        let Some(merged) = branches.get(id) else { return !branches.is_empty() };
        let is_doubted = CString::new(name).is_ok_and(|name| merged.doubts().contains(&name));
        let built = merged.read_index();
        let may_be_in = built.at.is_none() || built.index.find(name).is_some();
        merged.is_merged() && (is_doubted || may_be_in)
    }

    /// Makes something in the folder, in the source that the policy says. A source that is read-only
    /// is passed over.
    pub(super) fn make_in<T>(
        &self,
        folder: &Folder,
        mut make: impl FnMut(&Spot) -> Result<T, Errno>,
    ) -> Result<(Spot, T), Errno> {
        let mut last = Errno::ROFS;
        for branch in self.candidates(folder)? {
            let spot = match self.spot_in(folder, branch) {
                Err(Errno::XDEV) => self.copy_folder(folder.id, branch),
                spot => spot,
            };
            match spot.and_then(|spot| make(&spot).map(|made| (spot, made))) {
                Err(Errno::ROFS) => last = Errno::ROFS,
                made => return made,
            }
        }
        Err(last)
    }

    /// The branches that may get what is made in the folder, the best one first.
    fn candidates(&self, folder: &Folder) -> Result<Vec<u16>, Errno> {
        let Some(branches) = &self.branches else { return Ok(vec![0]) };
        let all = 0..branch_number(branches.roots().len());
        Ok(match branches.create() {
            CreatePolicy::Parent => {
                self.spots(folder)?.into_iter().map(|spot| spot.branch).collect()
            }
            CreatePolicy::First => all.collect(),
            CreatePolicy::MostFree => {
                let mut all: Vec<_> = all.collect();
                all.sort_by_cached_key(|&branch| std::cmp::Reverse(free_bytes(branches, branch)));
                all
            }
            CreatePolicy::None => Vec::new(),
        })
    }

    /// Makes the folder in a branch that does not have it, with the same owner, permissions and
    /// extended attributes.
    fn copy_folder(&self, id: InodeId, branch: u16) -> Result<Spot, Errno> {
        let branches = self.branches.as_ref().ok_or(Errno::XDEV)?;
        if id == InodeId::ROOT {
            let root = branches.roots().get(usize::from(branch)).ok_or(Errno::XDEV)?;
            return Ok(Spot { branch, place: Arc::clone(root) });
        }
        let known = self.names.as_ref().and_then(|names| names.get(id));
        let (parent, name) = known.ok_or(Errno::STALE)?;
        let above = self.copy_folder(parent, branch)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || fs::openat(&above.place, name.as_c_str(), flags, Mode::empty());
        let place = match open() {
            Err(Errno::NOENT) => {
                let source = self.place(id)?;
                let stat = stat_place(&source)?;
                let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777);
                fs::mkdirat(&above.place, name.as_c_str(), Mode::RWXU)?;
                let place = open()?;
                let (uid, gid) = (Uid::from_raw(stat.stx_uid), Gid::from_raw(stat.stx_gid));
                fs::chownat(&place, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
                super::extended::copy_all(&source, &place)?;
                let path = ProcPath::new(std::os::fd::AsFd::as_fd(&place));
                fs::chmodat(fs::CWD, path.as_c_str(), mode, AtFlags::empty())?;
                place
            }
            opened => opened?,
        };
        // The folder has one part more, and its parent's name leads to it.
        branches.drop_folder(id);
        if let Ok(parent) = self.folder(parent) {
            self.note_change(&parent, &name);
        }
        Ok(Spot { branch, place: Arc::new(place) })
    }
}

fn free_bytes(branches: &Branches, branch: u16) -> u64 {
    let root = branches.roots().get(usize::from(branch));
    let space = root.and_then(|root| fs::fstatvfs(root).ok());
    space.map_or(0, |space| space.f_bavail.saturating_mul(space.f_frsize))
}
