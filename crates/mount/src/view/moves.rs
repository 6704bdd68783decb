//! Names under a policy: by which of its names a file is judged, and which names it may get.
//!
//! A request names an inode, not the name that was used. A file with one name is judged by that. Of one with
//! several the kernel keeps no name, so that each use of one is preceded by a look-up of it, by the same thread:
//! that name counts. For a use without a look-up (through a descriptor) all known names count.
//!
//! A rename or a link gives no file a name under which other rules hold: it is as if that were on another file
//! system. So all names that are made through the mount are judged alike, and no file that a rule refuses comes
//! to a place where it does not.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::fs::{self, CWD, RenameFlags, Statx};
use rustix::io::Errno;
use thruway_fuse::{Caller, Operation};

use super::View;
use super::judging::{Exhibit, READS, Subject, WRITES};
use super::lookup::{FILE_TYPE, FOLDER, stat_place};
use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};
use crate::names::Name;
use crate::policy::{Policy, Question};
use crate::proc_path::ProcPath;

/// Threads whose last look-up of a file with several names is known; when there are more, all are forgotten.
const WALKS_MAX: usize = 1 << 12;

/// What is known of names while a policy is in force.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Which name of a file with several each thread has looked up last.
    walks: Mutex<IdMap<Walk>>,
    /// Held for reading while a name is looked up and remembered, for writing while one is judged and given.
    naming: RwLock<()>,
}

#[derive(Debug)]
struct Walk {
    uid: u32,
    id: InodeId,
    name: Name,
}

/// Keeps names as they are, or other threads from looking at them.
#[expect(dead_code, reason = "the guards are held, not used")]
pub(super) enum NamesHeld<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Alone(RwLockWriteGuard<'a, ()>),
}

impl View {
    /// Holds names for as long as the operation takes. A look-up that were overtaken by a rename would else
    /// remember the old name.
    pub(super) fn hold_names(&self, operation: &Operation<'_>) -> Option<NamesHeld<'_>> {
        self.judge.as_ref()?;
        let naming = &self.moves.naming;
        match operation {
            Operation::Lookup { .. } | Operation::ReadDirPlus(_) => {
                let held = naming.read().unwrap_or_else(PoisonError::into_inner);
                Some(NamesHeld::Shared(held))
            }
            Operation::Rename { .. } | Operation::Link { .. } => {
                let held = naming.write().unwrap_or_else(PoisonError::into_inner);
                Some(NamesHeld::Alone(held))
            }
            _ => None,
        }
    }

    /// Remembers that the inode was found by this name; an empty one is that of a file without a name.
    pub(super) fn note_found(&self, id: InodeId, parent: InodeId, name: &[u8], stat: &Statx) {
        if let Some(names) = &self.names
            && !matches!(name, b"." | b"..")
        {
            names.remember(id, parent, name, !self.is_judged_by_look_up(stat));
        }
    }

    /// Whether each use of one of its names is preceded by a look-up of the name.
    pub(super) fn is_judged_by_look_up(&self, stat: &Statx) -> bool {
        self.judge.is_some() && !is_folder(stat) && stat.stx_nlink > 1
    }

    /// Remembers which name of a file with several the caller has looked up.
    pub(super) fn note_walk(&self, caller: &Caller, id: InodeId, parent: InodeId, name: &CStr) {
        // A thread that is in no namespace of ours has no number.
        if self.judge.is_none() || caller.pid == 0 {
            return;
        }
        let name = Name { parent, name: name.to_bytes().into() };
        let mut walks = lock(&self.moves.walks);
        if walks.len() >= WALKS_MAX {
            walks.clear();
        }
        walks.insert(u64::from(caller.pid), Walk { uid: caller.uid, id, name });
    }

    /// The paths that the subject is judged by, below the mount and without a slash at their start.
    pub(super) fn paths_of(
        &self,
        caller: &Caller,
        subject: Subject<'_>,
    ) -> Result<Vec<Vec<u8>>, Errno> {
        let several = match (subject, &self.names) {
            (Subject::Inode(id), Some(names)) => names.several(id).map(|several| (id, several)),
            _ => None,
        };
        let Some((id, several)) = several else { return Ok(vec![self.path_of(subject)?]) };
        if let Some(name) = self.name_used(caller, id)
            && several.contains(&name)
        {
            return Ok(vec![self.path_by(&name)?]);
        }
        if Name::are_too_many(&several) {
            return Err(Errno::ACCESS);
        }
        several.iter().map(|name| self.path_by(name)).collect()
    }

    /// The name of the inode that this thread has looked up last.
    fn name_used(&self, caller: &Caller, id: InodeId) -> Option<Name> {
        let walks = lock(&self.moves.walks);
        let walk = walks.get(&u64::from(caller.pid))?;
        (walk.id == id && walk.uid == caller.uid).then(|| walk.name.clone())
    }

    fn path_by(&self, name: &Name) -> Result<Vec<u8>, Errno> {
        Ok(joined(&self.path_of(Subject::Inode(name.parent))?, &name.name))
    }

    /// The path below the mount, without a slash at its start; of several the one that was used last.
    pub(super) fn path_of(&self, subject: Subject<'_>) -> Result<Vec<u8>, Errno> {
        match subject {
            Subject::Inode(id) => {
                let known = self.names.as_ref().and_then(|names| names.path(id));
                // After the death of a worker nothing is known of names; the source may say.
                known.or_else(|| self.path_in_source(id)).ok_or(Errno::STALE)
            }
            Subject::Name(folder, name) | Subject::New(folder, name) => {
                Ok(joined(&self.path_of(Subject::Inode(folder))?, name.to_bytes()))
            }
        }
    }

    fn path_in_source(&self, id: InodeId) -> Option<Vec<u8>> {
        let path = |place: &OwnedFd| {
            let path = fs::readlinkat(CWD, ProcPath::new(place.as_fd()).as_c_str(), Vec::new());
            path.ok().map(std::ffi::CString::into_bytes)
        };
        let place = self.place(id).ok()?;
        let stat = stat_place(&*place).ok()?;
        if stat.stx_nlink == 0 || stat.stx_nlink > 1 && !is_folder(&stat) {
            // It says a name that is gone, or any of several.
            return None;
        }
        let root = path(self.root_of(self.inodes.get(id).ok()?.branch).ok()?)?;
        let below = path(&place)?;
        let below = below.strip_prefix(root.as_slice())?;
        below.strip_prefix(b"/").map(<[u8]>::to_vec)
    }

    /// Says which names in the folder nobody sees.
    pub(super) fn hiding(&self, folder: InodeId) -> Result<impl Fn(&CStr) -> bool, Errno> {
        let judge = self.judge.as_ref().map(|judge| judge.policy());
        let path = if judge.is_some() { self.path_of(Subject::Inode(folder))? } else { Vec::new() };
        Ok(move |name: &CStr| {
            judge.as_ref().is_some_and(|policy| policy.hides(&joined(&path, name.to_bytes())))
        })
    }

    pub(super) fn judge_rename(
        &self,
        caller: &Caller,
        (parent, name): (InodeId, &CStr),
        (new_parent, new_name): (InodeId, &CStr),
        flags: u32,
    ) -> Result<(), Errno> {
        let Some(judge) = &self.judge else { return Ok(()) };
        let (old, new) = (Subject::Name(parent, name), Subject::Name(new_parent, new_name));
        self.judge(caller, old, WRITES)?;
        self.judge(caller, new, WRITES)?;
        let policy = judge.policy();
        let (old_path, new_path) = (self.path_of(old)?, self.path_of(new)?);
        if policy.is_same(&old_path, &new_path) {
            return Ok(());
        }
        let stat = self.find(&self.folder(parent)?, name)?.1;
        if flags & RenameFlags::EXCHANGE.bits() != 0 {
            let other = self.find(&self.folder(new_parent)?, new_name)?.1;
            let are_files = !is_folder(&stat) && !is_folder(&other);
            let is_well = are_files && policy.is_same_for_file(&old_path, &new_path);
            return if is_well { Ok(()) } else { Err(Errno::XDEV) };
        }
        // A folder takes everything below along. Whoever hears that it is another file system copies file by
        // file, and each is judged.
        let is_well = !is_folder(&stat)
            && (policy.is_same_for_file(&old_path, &new_path)
                || stat.stx_nlink == 1
                    && self.is_stricter_for_others(&policy, caller, &old_path, (new, &new_path)));
        if is_well { Ok(()) } else { Err(Errno::XDEV) }
    }

    pub(super) fn judge_link(
        &self,
        caller: &Caller,
        source: InodeId,
        (parent, name): (InodeId, &CStr),
    ) -> Result<(), Errno> {
        let Some(judge) = &self.judge else { return Ok(()) };
        let (old, new) = (Subject::Inode(source), Subject::New(parent, name));
        self.judge(caller, old, WRITES)?;
        self.judge(caller, new, WRITES)?;
        let policy = judge.policy();
        let new_path = self.path_of(new)?;
        for old_path in self.paths_of(caller, old)? {
            let is_well = policy.is_same_for_file(&old_path, &new_path)
                || stat_place(&*self.place(source)?)?.stx_nlink == 0
                    && self.is_stricter_for_others(&policy, caller, &old_path, (new, &new_path));
            if !is_well {
                return Err(Errno::XDEV);
            }
        }
        Ok(())
    }

    /// Whether a file with this name alone may get the other one: nobody may do more with it there, and the caller,
    /// who may have it open, is refused nothing there. So a file that was made ready beside another one is
    /// renamed over it by those whom no rule about it refuses.
    fn is_stricter_for_others(
        &self,
        policy: &Policy,
        caller: &Caller,
        old_path: &[u8],
        (new, new_path): (Subject<'_>, &[u8]),
    ) -> bool {
        let Some(judge) = &self.judge else { return true };
        let (uid, gid) = (caller.uid, caller.gid);
        let question = Question { path: new_path, uid, gid, access: READS };
        policy.is_stricter(old_path, new_path)
            && !policy.may_refuse(&question, &Exhibit::new(self, judge, caller, new))
    }
}

fn is_folder(stat: &Statx) -> bool {
    u32::from(stat.stx_mode) & FILE_TYPE == FOLDER
}

pub(super) fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() {
        return name.to_vec();
    }
    [folder, name].join(&b'/')
}
