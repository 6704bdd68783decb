//! The policy in force, and the facts about files that its rules need.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::fs::{self, CWD, FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use rustix::process::Gid;
use thruway_fuse::Caller;
use thruway_resolve::stamp::{Stamp, now_ns};
use thruway_sys::printable;

use super::files::Files;
use super::folders::Folders;
use super::stat::{open_name, stat_fd};
use super::target::Target;
use crate::Log;
use crate::actor::{errno, groups_of};
use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};
use crate::policy::{Access, Content, Facts, Policy};
use crate::proc_path::ProcPath;

/// The maximum number of files whose content findings are cached. If there are more, all are dropped.
const KNOWN_MAX: usize = 1 << 16;

/// The policy in force, with cached findings about contents.
#[derive(Debug)]
pub(crate) struct PolicyEnforcer {
    policy: RwLock<Arc<Policy>>,
    known: Mutex<IdMap<ContentFindings>>,
    log: Log,
}

/// The findings about a file's content at the time of this stamp.
#[derive(Debug)]
struct ContentFindings {
    stamp: Stamp,
    /// A bit for each condition that was tested.
    tested: u64,
    /// A bit for each condition that held.
    held: u64,
}

impl PolicyEnforcer {
    pub(crate) fn new(policy: Policy, log: Log) -> Self {
        Self { policy: RwLock::new(Arc::new(policy)), known: Mutex::default(), log }
    }

    pub(super) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the policy. Findings are dropped, since their bits belong to other rules in the new policy.
    pub(super) fn set_policy(&self, policy: Policy) {
        let mut present = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        *present = Arc::new(policy);
        lock(&self.known).clear();
    }

    pub(super) fn note_refusal(&self, caller: &Caller, path: &[u8], access: Access, why: &str) {
        let doing = if access.writes { "changing" } else { "reading" };
        let command = std::fs::read(format!("/proc/{}/comm", caller.pid)).unwrap_or_default();
        self.log.note(format_args!(
            "refused {doing} {}: {why}, user {}, group {}, process {} ({})",
            printable::bytes(path),
            caller.uid,
            caller.gid,
            caller.pid,
            printable::bytes(command.trim_ascii_end())
        ));
    }
}

/// The facts about a caller and a file, tested up only when a rule needs them.
pub(super) struct LazyFileFacts<'a> {
    files: &'a Files,
    folders: &'a Folders,
    enforcer: &'a PolicyEnforcer,
    caller: &'a Caller,
    target: Target<'a>,
    /// The file, open with `O_PATH`, and its attributes; `None` if the file does not exist yet.
    file_and_stat: OnceCell<Option<(Arc<OwnedFd>, Statx)>>,
    /// The caller's supplementary groups; `None` if they are unknown.
    groups: OnceCell<Option<Vec<Gid>>>,
}

impl<'a> LazyFileFacts<'a> {
    pub(super) fn new(
        (files, folders): (&'a Files, &'a Folders),
        enforcer: &'a PolicyEnforcer,
        caller: &'a Caller,
        target: Target<'a>,
    ) -> Self {
        Self {
            files,
            folders,
            enforcer,
            caller,
            target,
            file_and_stat: OnceCell::new(),
            groups: OnceCell::new(),
        }
    }

    /// Returns the file and its attributes, if it is a regular file.
    fn file(&self) -> Result<Option<&(Arc<OwnedFd>, Statx)>, Errno> {
        if self.file_and_stat.get().is_none() {
            // The cell belongs to this thread, so it is still empty.
            let _ = self.file_and_stat.set(self.find_file()?);
        }
        let file_and_stat = self.file_and_stat.get().and_then(Option::as_ref);
        let is_regular = |stat: &Statx| {
            FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::RegularFile
        };
        Ok(file_and_stat.filter(|(_, stat)| is_regular(stat)))
    }

    fn find_file(&self) -> Result<Option<(Arc<OwnedFd>, Statx)>, Errno> {
        let fd = match self.target {
            Target::New(..) => return Ok(None),
            Target::Inode(id) => self.files.path_fd(id)?,
            Target::Name(folder, name) => {
                let found = self.folders.find(&self.folders.folder(folder)?, name);
                match found {
                    // The target is the new name of a rename.
                    Err(Errno::NOENT) => return Ok(None),
                    found => Arc::new(open_name(found?.0.fd.as_fd(), name)?),
                }
            }
        };
        let stat = stat_fd(&fd)?;
        Ok(Some((fd, stat)))
    }

    /// Reads the first `length` bytes of the file.
    fn read_start(fd: &OwnedFd, length: usize) -> Result<Vec<u8>, Errno> {
        let path = ProcPath::new(fd.as_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOATIME;
        let open = |flags| fs::openat(CWD, path.as_c_str(), flags, Mode::empty());
        // Only the owner and root may read without an update of the access time.
        let file = open(flags).or_else(|_| open(flags - OFlags::NOATIME))?;
        let mut start = Vec::new();
        let read = File::from(file).take(length as u64).read_to_end(&mut start);
        read.map_err(|error| errno(&error))?;
        Ok(start)
    }
}

impl Facts for LazyFileFacts<'_> {
    fn is_in_one_of(&self, gids: &[u32]) -> Result<bool, Errno> {
        let groups = self.groups.get_or_init(|| groups_of(self.caller.pid));
        // If the caller's groups are unknown, a group rule may match, so access is denied.
        let groups = groups.as_ref().ok_or(Errno::ACCESS)?;
        Ok(groups.iter().any(|group| gids.contains(&group.as_raw())))
    }

    fn size(&self) -> Result<Option<u64>, Errno> {
        Ok(self.file()?.map(|(_, stat)| stat.stx_size))
    }

    fn matches(&self, content: &Content) -> Result<bool, Errno> {
        let Some((fd, stat)) = self.file()? else { return Ok(false) };
        // Writes through a mapping change no time until the page is written back, so no finding about such a file is
        // cached.
        let id = self.files.known(stat).filter(|&id| !self.files.inodes.flags(id).is_mappable());
        let stamp = Stamp::of_statx(stat);
        if let Some(found) = id.and_then(|id| self.enforcer.recall(id, stamp, content.bit)) {
            return Ok(found);
        }
        let found = content.is_in(&Self::read_start(fd, content.within)?);
        if let Some(id) = id.filter(|_| !stamp.is_racy(now_ns())) {
            self.enforcer.remember(id, stamp, content.bit, found);
        }
        Ok(found)
    }
}

impl PolicyEnforcer {
    /// Returns whether the condition held, if it was tested on the file in its present state.
    fn recall(&self, id: InodeId, stamp: Stamp, bit: u64) -> Option<bool> {
        let known = lock(&self.known);
        let known = known.get(&id.0).filter(|known| known.stamp == stamp)?;
        (known.tested & bit != 0).then_some(known.held & bit != 0)
    }

    fn remember(&self, id: InodeId, stamp: Stamp, bit: u64, found: bool) {
        let mut all = lock(&self.known);
        if all.len() >= KNOWN_MAX {
            all.clear();
        }
        let known = all.entry(id.0).or_insert(ContentFindings { stamp, tested: 0, held: 0 });
        if known.stamp != stamp {
            *known = ContentFindings { stamp, tested: 0, held: 0 };
        }
        known.tested |= bit;
        known.held |= if found { bit } else { 0 };
    }

    pub(super) fn forget(&self, id: InodeId) {
        lock(&self.known).remove(&id.0);
    }
}
