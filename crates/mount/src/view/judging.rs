//! Asking the policy before something is done.

use std::cell::OnceCell;
use std::ffi::CStr;
use std::fmt;
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
use super::lookup::{TICK_MAX, now, open_name, stat_place};
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

pub(super) const READS: Access = Access { reads: true, writes: false };
pub(super) const WRITES: Access = Access { reads: false, writes: true };

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
    /// A name in the folder that is about to be made; empty for a file without a name.
    New(InodeId, &'a CStr),
}

impl Judge {
    pub(crate) fn new(policy: Policy, log: Log) -> Self {
        Self { policy: RwLock::new(Arc::new(policy)), known: Mutex::default(), log }
    }

    pub(super) fn policy(&self) -> Arc<Policy> {
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

    /// Whether contents matter to a rule.
    pub(super) fn scans(&self) -> bool {
        self.judge.as_ref().is_some_and(|judge| judge.policy().scans())
    }

    /// Whether an answer to this may take as long as reading what is in a file.
    pub(super) fn may_scan(&self, operation: &Operation<'_>) -> bool {
        let is_judged = matches!(
            operation,
            Operation::Open(_)
                | Operation::Read(_)
                | Operation::LSeek(_)
                | Operation::CopyFileRange { .. }
                | Operation::ReadLink
                | Operation::GetXattr { .. }
                | Operation::ListXattr { .. }
                | Operation::SetAttr(_)
                | Operation::SetXattr { .. }
                | Operation::RemoveXattr { .. }
                | Operation::Unlink { .. }
                | Operation::Rename { .. }
                | Operation::Link { .. }
        );
        is_judged && self.scans()
    }

    /// Refuses what the policy does not allow. Opens are judged where they are answered.
    pub(super) fn judge_request(&self, request: &Request<'_>) -> Result<(), Errno> {
        if self.judge.is_none() {
            return Ok(());
        }
        let (id, caller) = (InodeId(request.inode), &request.caller);
        let judge = |subject, access| self.judge(caller, subject, access).map(drop);
        match request.operation {
            Operation::MkNod { name, .. }
            | Operation::MkDir { name, .. }
            | Operation::SymLink { name, .. } => judge(Subject::New(id, name), WRITES),
            Operation::Unlink { name } | Operation::RmDir { name } => {
                judge(Subject::Name(id, name), WRITES)
            }
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.judge_rename(caller, (id, name), (InodeId(new_parent), new_name), flags)
            }
            Operation::Link { source, name } => {
                self.judge_link(caller, InodeId(source), (id, name))
            }
            Operation::SetAttr(with) if with.valid & setattr_flag::HANDLE == 0 => {
                judge(Subject::Inode(id), WRITES)?;
                let cuts = with.valid & setattr_flag::SIZE != 0 && with.size > 0;
                if cuts { self.judge_partial_change(caller, id) } else { Ok(()) }
            }
            Operation::SetXattr { .. } | Operation::RemoveXattr { .. } => {
                judge(Subject::Inode(id), WRITES)
            }
            Operation::GetXattr { name, .. } if is_content(name.to_bytes()) => {
                judge(Subject::Inode(id), READS)
            }
            Operation::OpenDir(_) | Operation::ReadLink => judge(Subject::Inode(id), READS),
            _ if is_of_judged(&request.operation) => judge(Subject::Inode(id), READS),
            _ => Ok(()),
        }
    }

    /// Refuses what the policy does not allow, else says which verdict allows it.
    pub(super) fn judge(
        &self,
        caller: &Caller,
        subject: Subject<'_>,
        access: Access,
    ) -> Result<Verdict, Errno> {
        let Some(judge) = &self.judge else { return Ok(Verdict::Allow) };
        let policy = judge.policy();
        let exhibit = Exhibit::new(self, judge, caller, subject);
        let mut verdict = Verdict::Allow;
        for path in self.paths_of(caller, subject)? {
            for access in access.parts(policy.tells_accesses()) {
                let question = Question { path: &path, uid: caller.uid, gid: caller.gid, access };
                match answer(&policy, &question, &exhibit) {
                    Ok(Verdict::Allow | Verdict::ReadOnly) => {}
                    Ok(other) => verdict = other,
                    Err(refusal) => {
                        self.memory.count(Count::Refused);
                        if policy.logs {
                            judge.note_refusal(caller, &path, access, &refusal.to_string());
                        }
                        return Err(refusal.errno);
                    }
                }
            }
        }
        Ok(verdict)
    }

    /// Refuses to change a part of a file whose rest the caller may not read for what it holds: with
    /// other data in it, it might. Whoever replaces all of it learns nothing.
    pub(super) fn judge_partial_change(&self, caller: &Caller, id: InodeId) -> Result<(), Errno> {
        let Some(judge) = &self.judge else { return Ok(()) };
        let (policy, subject) = (judge.policy(), Subject::Inode(id));
        let exhibit = Exhibit::new(self, judge, caller, subject);
        for path in self.paths_of(caller, subject)? {
            let question =
                Question { path: &path, uid: caller.uid, gid: caller.gid, access: READS };
            let is_refused = answer(&policy, &question, &exhibit).is_err();
            if is_refused && policy.could_allow(&question, &exhibit) {
                // The question once more, for the count and the log.
                return self.judge(caller, subject, READS).map(drop);
            }
        }
        Ok(())
    }

    /// Whether the caller may read what is in the inode, asked without a word in the log.
    pub(super) fn may_read(&self, caller: &Caller, id: InodeId) -> bool {
        let Some(judge) = &self.judge else { return true };
        let (policy, subject) = (judge.policy(), Subject::Inode(id));
        let exhibit = Exhibit::new(self, judge, caller, subject);
        let is_allowed = |path: &Vec<u8>| {
            let question = Question { path, uid: caller.uid, gid: caller.gid, access: READS };
            answer(&policy, &question, &exhibit).is_ok()
        };
        self.paths_of(caller, subject).is_ok_and(|paths| paths.iter().all(is_allowed))
    }
}

/// Why something is refused: by which rule, or by none, since it cannot be judged.
struct Refusal {
    errno: Errno,
    rule: usize,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            usize::MAX => write!(formatter, "it cannot be judged ({})", self.errno),
            rule => write!(formatter, "rule {rule}"),
        }
    }
}

fn answer(
    policy: &Policy,
    question: &Question<'_>,
    exhibit: &Exhibit<'_>,
) -> Result<Verdict, Refusal> {
    let judgement =
        policy.judge(question, exhibit).map_err(|errno| Refusal { errno, rule: usize::MAX })?;
    match judgement.refusal(question.access) {
        None => Ok(judgement.verdict),
        Some(errno) => Err(Refusal { errno, rule: judgement.rule }),
    }
}

/// Whether the extended attribute says what a file holds, and not who may use it: natively it can be had
/// by whoever may read the file. The kernel itself asks for the others.
pub(super) fn is_content(xattr: &[u8]) -> bool {
    !xattr.starts_with(b"system.posix_acl_") && !xattr.starts_with(b"security.")
}

/// Whether it reads from an open file whose reads are judged one by one.
fn is_of_judged(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Read(with) => with.handle == JUDGED,
        Operation::LSeek(with) => with.handle == JUDGED,
        Operation::CopyFileRange { with, .. } => with.handle == JUDGED,
        _ => false,
    }
}

/// A caller and a file that are judged, looked at as far as that is necessary.
pub(super) struct Exhibit<'a> {
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
    pub(super) fn new(
        view: &'a View,
        judge: &'a Judge,
        caller: &'a Caller,
        subject: Subject<'a>,
    ) -> Self {
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
        // What is written through a map changes no time until the page is written out, so what was seen in such
        // a file says nothing of what is in it now.
        let id = self.view.known(stat).filter(|&id| !self.view.inodes.is_mappable(id));
        let stamp = Stamp::new(stat);
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
