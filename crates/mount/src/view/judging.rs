//! Asking the policy before something is done.

use std::cell::OnceCell;
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::fs::{self, CWD, FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use rustix::process::Gid;
use thruway_fuse::wire::setattr_flag;
use thruway_fuse::{Caller, Operation, Request};

use super::View;
use super::lookup::{FILE_TYPE, FOLDER, TICK_MAX, now, open_name, stat_place};
use crate::Log;
use crate::actor::{errno, groups_of};
use crate::id_map::IdMap;
use crate::inodes::{InodeId, lock};
use crate::memory::Count;
use crate::policy::{Access, Content, Evidence, Policy, Question, Verdict};
use crate::proc_path::ProcPath;

/// Files of which it is known what is in them; when there are more, all are forgotten.
const KNOWN_MAX: usize = 1 << 16;

/// The handle of files whose reads are judged one by one.
pub(super) const JUDGED: u64 = 1;

const READS: Access = Access { reads: true, writes: false };
const WRITES: Access = Access { reads: false, writes: true };

/// The policy in force, and what is known of contents.
#[derive(Debug)]
pub(crate) struct Judge {
    policy: RwLock<Arc<Policy>>,
    known: Mutex<IdMap<Known>>,
    log: Log,
}

/// What was found in a file that had these attributes.
#[derive(Debug)]
struct Known {
    stamp: Stamp,
    /// A bit for each content that was looked for.
    looked: u64,
    /// A bit for each that was there.
    found: u64,
}

/// What changes whenever a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
}

/// What is done something with.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Inode(InodeId),
    /// What a name in the folder leads to.
    Name(InodeId, &'a CStr),
    /// A name in the folder that is about to be made.
    New(InodeId, &'a CStr),
}

impl Judge {
    pub(crate) fn new(policy: Policy, log: Log) -> Self {
        Self { policy: RwLock::new(Arc::new(policy)), known: Mutex::default(), log }
    }

    fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the policy. Contents have to be looked at again: another rule has their bit now.
    fn set_policy(&self, policy: Policy) {
        let mut present = self.policy.write().unwrap_or_else(PoisonError::into_inner);
        *present = Arc::new(policy);
        lock(&self.known).clear();
    }

    fn note_refusal(&self, caller: &Caller, path: &[u8], access: Access, why: &str) {
        let doing = if access.writes { "changing" } else { "reading" };
        let command = std::fs::read(format!("/proc/{}/comm", caller.pid)).unwrap_or_default();
        self.log.note(format_args!(
            "refused {doing} {}: {why}, user {}, group {}, process {} ({})",
            path.escape_ascii(),
            caller.uid,
            caller.gid,
            caller.pid,
            command.trim_ascii_end().escape_ascii()
        ));
    }
}

impl View {
    /// From now on this policy is asked. Files that are open stay as they are.
    pub(crate) fn set_policy(&self, policy: Policy) {
        if let Some(judge) = &self.judge {
            judge.set_policy(policy);
            // Names may be hidden or shown that were not. An older kernel forgets them by itself soon.
            let _ = self.tell_everything();
        }
    }

    /// How many rules there are.
    pub(super) fn rules(&self) -> Option<usize> {
        Some(self.judge.as_ref()?.policy().len())
    }

    /// Whether an answer to this may take as long as reading what is in a file.
    pub(super) fn may_scan(&self, operation: &Operation<'_>) -> bool {
        let is_judged = matches!(
            operation,
            Operation::Open(_)
                | Operation::Read(_)
                | Operation::SetAttr(_)
                | Operation::SetXattr { .. }
                | Operation::RemoveXattr { .. }
                | Operation::Unlink { .. }
                | Operation::Rename { .. }
                | Operation::Link { .. }
        );
        is_judged && self.judge.as_ref().is_some_and(|judge| judge.policy().scans())
    }

    /// Refuses what the policy does not allow. Opens are judged where they are answered.
    pub(super) fn judge_request(&self, request: &Request<'_>) -> Result<(), Errno> {
        let (id, caller) = (InodeId(request.inode), &request.caller);
        let judge = |subject, access| self.judge(caller, subject, access).map(drop);
        match request.operation {
            Operation::MkNod { name, .. }
            | Operation::MkDir { name, .. }
            | Operation::SymLink { name, .. } => judge(Subject::New(id, name), WRITES),
            Operation::Unlink { name } | Operation::RmDir { name } => {
                judge(Subject::Name(id, name), WRITES)
            }
            Operation::Rename { name, new_parent, new_name, .. } => {
                self.judge_rename(caller, (id, name), (InodeId(new_parent), new_name))
            }
            Operation::Link { source, name } => {
                // As for a rename: else a rule about one name could be avoided through another.
                judge(Subject::Inode(InodeId(source)), WRITES)?;
                judge(Subject::New(id, name), WRITES)
            }
            Operation::SetAttr(with) if with.valid & setattr_flag::HANDLE == 0 => {
                judge(Subject::Inode(id), WRITES)
            }
            Operation::TmpFile(_) | Operation::SetXattr { .. } | Operation::RemoveXattr { .. } => {
                judge(Subject::Inode(id), WRITES)
            }
            Operation::OpenDir(_) => judge(Subject::Inode(id), READS),
            Operation::Read(with) if with.handle == JUDGED => judge(Subject::Inode(id), READS),
            _ => Ok(()),
        }
    }

    fn judge_rename(
        &self,
        caller: &Caller,
        (parent, name): (InodeId, &CStr),
        (new_parent, new_name): (InodeId, &CStr),
    ) -> Result<(), Errno> {
        let Some(judge) = &self.judge else { return Ok(()) };
        let (old, new) = (Subject::Name(parent, name), Subject::Name(new_parent, new_name));
        self.judge(caller, old, WRITES)?;
        self.judge(caller, new, WRITES)?;
        // A folder takes everything below along, to where other rules hold. Whoever hears that it is
        // another file system copies file by file, and each is judged.
        let policy = judge.policy();
        let paths = [self.path_of(old)?, self.path_of(new)?];
        let is_folder = |stat: &Statx| u32::from(stat.stx_mode) & FILE_TYPE == FOLDER;
        let matters = paths.iter().any(|path| policy.looks_below(path));
        if matters && self.find(&self.folder(parent)?, name).is_ok_and(|found| is_folder(&found.1))
        {
            return Err(Errno::XDEV);
        }
        Ok(())
    }

    /// Refuses what the policy does not allow, else says which verdict allows it.
    pub(super) fn judge(
        &self,
        caller: &Caller,
        subject: Subject<'_>,
        access: Access,
    ) -> Result<Verdict, Errno> {
        let Some(judge) = &self.judge else { return Ok(Verdict::Allow) };
        let path = self.path_of(subject)?;
        let question = Question { path: &path, uid: caller.uid, gid: caller.gid, access };
        let policy = judge.policy();
        let exhibit = Exhibit::new(self, judge, caller, subject);
        let (errno, why) = match policy.judge(&question, &exhibit) {
            Ok(judgement) => match judgement.refusal(access) {
                None => return Ok(judgement.verdict),
                Some(errno) => (errno, format!("rule {}", judgement.rule)),
            },
            Err(errno) => (errno, format!("it cannot be judged ({errno})")),
        };
        self.memory.count(Count::Refused);
        if policy.logs {
            judge.note_refusal(caller, &path, access, &why);
        }
        Err(errno)
    }

    /// Says which names in the folder nobody sees.
    pub(super) fn hiding(&self, folder: InodeId) -> Result<impl Fn(&CStr) -> bool, Errno> {
        let judge = self.judge.as_ref().map(|judge| judge.policy());
        let path = if judge.is_some() { self.path_of(Subject::Inode(folder))? } else { Vec::new() };
        Ok(move |name: &CStr| {
            judge.as_ref().is_some_and(|policy| policy.hides(&joined(&path, name)))
        })
    }

    /// The path below the mount, without a slash at its start.
    fn path_of(&self, subject: Subject<'_>) -> Result<Vec<u8>, Errno> {
        match subject {
            Subject::Inode(id) => {
                let known = self.names.as_ref().and_then(|names| names.path(id));
                // After the death of a worker nothing is known of names; the source may say.
                known.or_else(|| self.path_in_source(id)).ok_or(Errno::STALE)
            }
            Subject::Name(folder, name) | Subject::New(folder, name) => {
                Ok(joined(&self.path_of(Subject::Inode(folder))?, name))
            }
        }
    }

    fn path_in_source(&self, id: InodeId) -> Option<Vec<u8>> {
        let path = |place: &OwnedFd| {
            let path = fs::readlinkat(CWD, ProcPath::new(place.as_fd()).as_c_str(), Vec::new());
            path.ok().map(std::ffi::CString::into_bytes)
        };
        let root = path(self.root_of(self.inodes.get(id).ok()?.branch).ok()?)?;
        let below = path(&*self.place(id).ok()?)?;
        let below = below.strip_prefix(root.as_slice())?;
        below.strip_prefix(b"/").map(<[u8]>::to_vec)
    }
}

fn joined(folder: &[u8], name: &CStr) -> Vec<u8> {
    if folder.is_empty() {
        return name.to_bytes().to_vec();
    }
    [folder, name.to_bytes()].join(&b'/')
}

/// A caller and a file that are judged, looked at as far as that is necessary.
struct Exhibit<'a> {
    view: &'a View,
    judge: &'a Judge,
    caller: &'a Caller,
    subject: Subject<'a>,
    /// The file, open with `O_PATH`, and its attributes; `None` if there is none yet.
    seen: OnceCell<Option<(Arc<OwnedFd>, Statx)>>,
    /// The caller's supplementary groups; `None` if nobody tells.
    groups: OnceCell<Option<Vec<Gid>>>,
}

impl<'a> Exhibit<'a> {
    fn new(view: &'a View, judge: &'a Judge, caller: &'a Caller, subject: Subject<'a>) -> Self {
        Self { view, judge, caller, subject, seen: OnceCell::new(), groups: OnceCell::new() }
    }

    /// The file and its attributes, if it is a regular one.
    fn file(&self) -> Result<Option<&(Arc<OwnedFd>, Statx)>, Errno> {
        if self.seen.get().is_none() {
            // Nobody else looks at this one.
            let _ = self.seen.set(self.look()?);
        }
        let seen = self.seen.get().and_then(Option::as_ref);
        let is_regular = |stat: &Statx| {
            FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::RegularFile
        };
        Ok(seen.filter(|(_, stat)| is_regular(stat)))
    }

    fn look(&self) -> Result<Option<(Arc<OwnedFd>, Statx)>, Errno> {
        let place = match self.subject {
            Subject::New(..) => return Ok(None),
            Subject::Inode(id) => self.view.place(id)?,
            Subject::Name(folder, name) => {
                let found = self.view.find(&self.view.folder(folder)?, name);
                match found {
                    // A rename to a new name.
                    Err(Errno::NOENT) => return Ok(None),
                    found => Arc::new(open_name(found?.0.place.as_fd(), name)?),
                }
            }
        };
        let stat = stat_place(&place)?;
        Ok(Some((place, stat)))
    }

    /// Reads as much of the file as the content is about.
    fn start(place: &OwnedFd, length: usize) -> Result<Vec<u8>, Errno> {
        let path = ProcPath::new(place.as_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOATIME;
        let open = |flags| fs::openat(CWD, path.as_c_str(), flags, Mode::empty());
        // Only its owner and root may read without a trace.
        let file = open(flags).or_else(|_| open(flags - OFlags::NOATIME))?;
        let mut start = Vec::new();
        let read = File::from(file).take(length as u64).read_to_end(&mut start);
        read.map_err(|error| errno(&error))?;
        Ok(start)
    }
}

impl Evidence for Exhibit<'_> {
    fn is_in_one_of(&self, gids: &[u32]) -> Result<bool, Errno> {
        let groups = self.groups.get_or_init(|| groups_of(self.caller.pid));
        // Who may be in the group that a rule refuses is not let by.
        let groups = groups.as_ref().ok_or(Errno::ACCESS)?;
        Ok(groups.iter().any(|group| gids.contains(&group.as_raw())))
    }

    fn size(&self) -> Result<Option<u64>, Errno> {
        Ok(self.file()?.map(|(_, stat)| stat.stx_size))
    }

    fn fits(&self, content: &Content) -> Result<bool, Errno> {
        let Some((place, stat)) = self.file()? else { return Ok(false) };
        let (id, stamp) = (self.view.known(stat), Stamp::new(stat));
        if let Some(found) = id.and_then(|id| self.judge.recall(id, stamp, content.bit)) {
            return Ok(found);
        }
        let found = content.is_in(&Self::start(place, content.within)?);
        if let Some(id) = id.filter(|_| stamp.is_settled()) {
            self.judge.remember(id, stamp, content.bit, found);
        }
        Ok(found)
    }
}

impl Judge {
    /// Whether the content was found, if it was looked for in the file as it is now.
    fn recall(&self, id: InodeId, stamp: Stamp, bit: u64) -> Option<bool> {
        let known = lock(&self.known);
        let known = known.get(&id.0).filter(|known| known.stamp == stamp)?;
        (known.looked & bit != 0).then_some(known.found & bit != 0)
    }

    fn remember(&self, id: InodeId, stamp: Stamp, bit: u64, found: bool) {
        let mut all = lock(&self.known);
        if all.len() >= KNOWN_MAX {
            all.clear();
        }
        let known = all.entry(id.0).or_insert(Known { stamp, looked: 0, found: 0 });
        if known.stamp != stamp {
            *known = Known { stamp, looked: 0, found: 0 };
        }
        known.looked |= bit;
        known.found |= if found { bit } else { 0 };
    }

    pub(super) fn forget(&self, id: InodeId) {
        lock(&self.known).remove(&id.0);
    }
}

impl Stamp {
    fn new(stat: &Statx) -> Self {
        let (mtime, ctime) = (&stat.stx_mtime, &stat.stx_ctime);
        Self {
            size: stat.stx_size,
            mtime: (mtime.tv_sec, mtime.tv_nsec),
            ctime: (ctime.tv_sec, ctime.tv_nsec),
        }
    }

    /// Whether the next change will have another stamp.
    fn is_settled(&self) -> bool {
        let (seconds, nanoseconds) = self.ctime;
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let changed = seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(nanoseconds));
        now() > changed.saturating_add(TICK_MAX)
    }
}
