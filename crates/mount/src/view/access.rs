//! Checks each request against the policy, and decides which names of a file the rules apply to.
//!
//! A request identifies an inode, not the name that the program used. If a file has a single name, the rules apply to
//! that name. For a file with several names, the kernel caches no names, so the caller's thread looks a name up before
//! each use, and the rules apply to the last lookup. If a file is used without a lookup, through a descriptor, the
//! rules apply to all known names.
//!
//! A rename or a link that gives a file a name under which other rules match fails with `EXDEV`. So all names that are
//! created through the mount are subject to the same rules, and no such operation evades a rule.

use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;

use rustix::fs::{RenameFlags, Statx};
use rustix::io::Errno;
use thruway_fuse::wire::setattr_flag;
use thruway_fuse::{Caller, Operation, Request};

use super::files::{Files, joined};
use super::folders::Folders;
use super::policy_check::{LazyFileFacts, PolicyEnforcer};
use super::stat::{is_folder, stat_fd};
use super::target::Target;
use super::walks::{NameGuard, Walks};
use crate::inodes::InodeId;
use crate::memory::{Count, Memory};
use crate::names::Name;
use crate::policy::{Access, AccessRequest, Policy, Verdict};

/// The file handle of opens whose reads are checked individually.
pub(super) const CHECKED: u64 = 1;

const READS: Access = Access { reads: true, writes: false };
const WRITES: Access = Access { reads: false, writes: true };

/// Checks what callers may do.
#[derive(Debug)]
pub(super) struct AccessControl {
    pub(super) memory: Arc<Memory>,
    pub(super) files: Arc<Files>,
    pub(super) folders: Arc<Folders>,
    /// Holds the policy, if there is one.
    pub(super) enforcer: Option<PolicyEnforcer>,
    pub(super) walks: Walks,
}

impl AccessControl {
    /// Whether there is a policy.
    pub(super) fn is_enforced(&self) -> bool {
        self.enforcer.is_some()
    }

    /// Replaces the policy, if there is one. Open files stay open.
    pub(super) fn set_policy(&self, policy: Policy) {
        if let Some(enforcer) = &self.enforcer {
            enforcer.set_policy(policy);
        }
    }

    /// Drops the state of an inode that the kernel has forgotten.
    pub(super) fn forget(&self, id: InodeId) {
        if let Some(enforcer) = &self.enforcer {
            enforcer.forget(id);
        }
    }

    /// Locks names for the duration of the operation.
    pub(super) fn hold_names(&self, operation: &Operation<'_>) -> Option<NameGuard<'_>> {
        self.enforcer.as_ref().and_then(|_| self.walks.hold_names(operation))
    }

    /// Notes the name by which the caller has looked up a file with several names.
    pub(super) fn note_walk(&self, caller: &Caller, id: InodeId, parent: InodeId, name: &CStr) {
        if self.is_enforced() {
            self.walks.note(caller, id, parent, name);
        }
    }

    /// Returns the number of rules.
    pub(super) fn rules(&self) -> Option<usize> {
        Some(self.enforcer.as_ref()?.policy().len())
    }

    /// Whether rules depend on the contents of files.
    pub(super) fn scans(&self) -> bool {
        self.enforcer.as_ref().is_some_and(|enforcer| enforcer.policy().scans())
    }

    /// Whether checking this operation may take as long as reading a file.
    pub(super) fn may_scan(&self, operation: &Operation<'_>) -> bool {
        let is_checked = matches!(
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
                | Operation::Ioctl { .. }
                | Operation::Unlink { .. }
                | Operation::Rename { .. }
                | Operation::Link { .. }
        );
        is_checked && self.scans()
    }

    /// Refuses a request that the policy does not allow. Opens are checked elsewhere, since they need the verdict.
    pub(super) fn check_request(&self, request: &Request<'_>) -> Result<(), Errno> {
        if self.enforcer.is_none() {
            return Ok(());
        }
        let (id, caller) = (InodeId(request.inode), &request.caller);
        let check = |target, access| self.check(caller, target, access).map(drop);
        match request.operation {
            Operation::MkNod { name, .. }
            | Operation::MkDir { name, .. }
            | Operation::SymLink { name, .. } => check(Target::New(id, name), WRITES),
            Operation::Unlink { name } | Operation::RmDir { name } => {
                check(Target::Name(id, name), WRITES)
            }
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.check_rename(caller, (id, name), (InodeId(new_parent), new_name), flags)
            }
            Operation::Link { source, name } => {
                self.check_link(caller, InodeId(source), (id, name))
            }
            Operation::SetAttr(with) if with.valid & setattr_flag::HANDLE == 0 => {
                check(Target::Inode(id), WRITES)?;
                let cuts = with.valid & setattr_flag::SIZE != 0 && with.size > 0;
                if cuts { self.check_partial_change(caller, id) } else { Ok(()) }
            }
            Operation::SetXattr { .. } | Operation::RemoveXattr { .. } => {
                check(Target::Inode(id), WRITES)
            }
            Operation::Ioctl { .. } if request.operation.is_change() => {
                check(Target::Inode(id), WRITES)
            }
            Operation::GetXattr { name, .. } if is_content(name.to_bytes()) => {
                check(Target::Inode(id), READS)
            }
            Operation::OpenDir(_) | Operation::ReadLink => check(Target::Inode(id), READS),
            _ if is_of_checked(&request.operation) => check(Target::Inode(id), READS),
            _ => Ok(()),
        }
    }

    /// Checks an access. Returns the verdict if the policy allows the access.
    pub(super) fn check(
        &self,
        caller: &Caller,
        target: Target<'_>,
        access: Access,
    ) -> Result<Verdict, Errno> {
        let Some(enforcer) = &self.enforcer else { return Ok(Verdict::Allow) };
        let policy = enforcer.policy();
        let facts = LazyFileFacts::new((&self.files, &self.folders), enforcer, caller, target);
        let mut verdict = Verdict::Allow;
        for path in self.paths_of(caller, target)? {
            for access in access.parts(policy.distinguishes_accesses()) {
                let request =
                    AccessRequest { path: &path, uid: caller.uid, gid: caller.gid, access };
                match decide(&policy, &request, &facts) {
                    Ok(Verdict::Allow | Verdict::ReadOnly) => {}
                    Ok(other) => verdict = other,
                    Err(refusal) => {
                        self.memory.count(Count::Refused);
                        if policy.logs {
                            enforcer.note_refusal(caller, &path, access, &refusal.to_string());
                        }
                        return Err(refusal.errno);
                    }
                }
            }
        }
        Ok(verdict)
    }

    /// Refuses to change a part of a file if the file's content is the reason why the caller may not read it, since the
    /// change could make the file readable. Replacing the whole content reveals nothing.
    pub(super) fn check_partial_change(&self, caller: &Caller, id: InodeId) -> Result<(), Errno> {
        let Some(enforcer) = &self.enforcer else { return Ok(()) };
        let (policy, target) = (enforcer.policy(), Target::Inode(id));
        let facts = LazyFileFacts::new((&self.files, &self.folders), enforcer, caller, target);
        for path in self.paths_of(caller, target)? {
            let request =
                AccessRequest { path: &path, uid: caller.uid, gid: caller.gid, access: READS };
            let is_refused = decide(&policy, &request, &facts).is_err();
            if is_refused && policy.could_allow(&request, &facts) {
                // The second check counts and logs the refusal.
                return self.check(caller, target, READS).map(drop);
            }
        }
        Ok(())
    }

    /// Whether the caller may read the inode. A refusal is not logged.
    pub(super) fn may_read(&self, caller: &Caller, id: InodeId) -> bool {
        let Some(enforcer) = &self.enforcer else { return true };
        let (policy, target) = (enforcer.policy(), Target::Inode(id));
        let facts = LazyFileFacts::new((&self.files, &self.folders), enforcer, caller, target);
        let is_allowed = |path: &Vec<u8>| {
            let request = AccessRequest { path, uid: caller.uid, gid: caller.gid, access: READS };
            decide(&policy, &request, &facts).is_ok()
        };
        self.paths_of(caller, target).is_ok_and(|paths| paths.iter().all(is_allowed))
    }

    /// Whether a lookup precedes each use of a name of this file.
    pub(super) fn is_checked_by_lookup(&self, stat: &Statx) -> bool {
        self.enforcer.is_some() && !is_folder(stat) && stat.stx_nlink > 1
    }

    /// Remembers a name of the inode. The name is empty for a file without a name.
    pub(super) fn note_found(&self, id: InodeId, parent: InodeId, name: &[u8], stat: &Statx) {
        if let Some(names) = &self.files.names
            && !matches!(name, b"." | b"..")
        {
            names.remember(id, parent, name, !self.is_checked_by_lookup(stat));
        }
    }

    /// Forgets a name that was removed from the inode through the mount.
    pub(super) fn note_gone(&self, id: InodeId, parent: InodeId, name: &CStr) {
        if let Some(names) = &self.files.names {
            names.forget_name(id, parent, name.to_bytes());
        }
    }

    /// Returns the paths of the target to which the rules apply, below the mount and without a leading slash.
    pub(super) fn paths_of(
        &self,
        caller: &Caller,
        target: Target<'_>,
    ) -> Result<Vec<Vec<u8>>, Errno> {
        let several = match (target, &self.files.names) {
            (Target::Inode(id), Some(names)) => names.several(id).map(|several| (id, several)),
            _ => None,
        };
        let Some((id, several)) = several else { return Ok(vec![self.files.path_of(target)?]) };
        if let Some(name) = self.walks.name_used(caller, id)
            && several.contains(&name)
        {
            return Ok(vec![self.files.path_by(&name)?]);
        }
        if Name::are_too_many(&several) {
            return Err(Errno::ACCESS);
        }
        several.iter().map(|name| self.files.path_by(name)).collect()
    }

    /// Returns a predicate for hidden names in the folder.
    pub(super) fn hiding(&self, folder: InodeId) -> Result<impl Fn(&CStr) -> bool, Errno> {
        let policy = self.enforcer.as_ref().map(PolicyEnforcer::policy);
        let path =
            if policy.is_some() { self.files.path_of(Target::Inode(folder))? } else { Vec::new() };
        Ok(move |name: &CStr| {
            policy.as_ref().is_some_and(|policy| policy.hides(&joined(&path, name.to_bytes())))
        })
    }

    pub(super) fn check_rename(
        &self,
        caller: &Caller,
        (parent, name): (InodeId, &CStr),
        (new_parent, new_name): (InodeId, &CStr),
        flags: u32,
    ) -> Result<(), Errno> {
        let Some(enforcer) = &self.enforcer else { return Ok(()) };
        let (old, new) = (Target::Name(parent, name), Target::Name(new_parent, new_name));
        self.check(caller, old, WRITES)?;
        self.check(caller, new, WRITES)?;
        let policy = enforcer.policy();
        let (old_path, new_path) = (self.files.path_of(old)?, self.files.path_of(new)?);
        if policy.is_same(&old_path, &new_path) {
            return Ok(());
        }
        let stat = self.folders.find(&self.folders.folder(parent)?, name)?.1;
        if flags & RenameFlags::EXCHANGE.bits() != 0 {
            let other = self.folders.find(&self.folders.folder(new_parent)?, new_name)?.1;
            let are_files = !is_folder(&stat) && !is_folder(&other);
            let is_well = are_files && policy.is_same_for_file(&old_path, &new_path);
            return if is_well { Ok(()) } else { Err(Errno::XDEV) };
        }
        // Renaming a folder moves everything below. On EXDEV, programs copy the folder file by file, and each file is
        // checked.
        let is_well = !is_folder(&stat)
            && (policy.is_same_for_file(&old_path, &new_path)
                || stat.stx_nlink == 1
                    && self.is_stricter_for_others(&policy, caller, &old_path, (new, &new_path)));
        if is_well { Ok(()) } else { Err(Errno::XDEV) }
    }

    pub(super) fn check_link(
        &self,
        caller: &Caller,
        source: InodeId,
        (parent, name): (InodeId, &CStr),
    ) -> Result<(), Errno> {
        let Some(enforcer) = &self.enforcer else { return Ok(()) };
        let (old, new) = (Target::Inode(source), Target::New(parent, name));
        self.check(caller, old, WRITES)?;
        self.check(caller, new, WRITES)?;
        let policy = enforcer.policy();
        let new_path = self.files.path_of(new)?;
        for old_path in self.paths_of(caller, old)? {
            let is_well = policy.is_same_for_file(&old_path, &new_path)
                || stat_fd(&*self.files.path_fd(source)?)?.stx_nlink == 0
                    && self.is_stricter_for_others(&policy, caller, &old_path, (new, &new_path));
            if !is_well {
                return Err(Errno::XDEV);
            }
        }
        Ok(())
    }

    /// Whether a file may get a new name although other rules match there: no caller gains rights by them, and this
    /// caller, which may have the file open, loses none. So programs can write a new file beside the old one and rename
    /// it over the old one.
    fn is_stricter_for_others(
        &self,
        policy: &Policy,
        caller: &Caller,
        old_path: &[u8],
        (new, new_path): (Target<'_>, &[u8]),
    ) -> bool {
        let Some(enforcer) = &self.enforcer else { return true };
        let (uid, gid) = (caller.uid, caller.gid);
        let request = AccessRequest { path: new_path, uid, gid, access: READS };
        policy.is_stricter(old_path, new_path)
            && !policy.may_refuse(
                &request,
                &LazyFileFacts::new((&self.files, &self.folders), enforcer, caller, new),
            )
    }
}

/// A refusal: the number of the rule, or `usize::MAX` if the check itself failed.
struct Refusal {
    errno: Errno,
    rule: usize,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            usize::MAX => write!(formatter, "the check failed ({})", self.errno),
            rule => write!(formatter, "rule {rule}"),
        }
    }
}

fn decide(
    policy: &Policy,
    request: &AccessRequest<'_>,
    facts: &LazyFileFacts<'_>,
) -> Result<Verdict, Refusal> {
    let decision =
        policy.decide(request, facts).map_err(|errno| Refusal { errno, rule: usize::MAX })?;
    match decision.refusal(request.access) {
        None => Ok(decision.verdict),
        Some(errno) => Err(Refusal { errno, rule: decision.rule }),
    }
}

/// Whether the extended attribute is content, which needs permission to read. The other attributes are access lists and
/// labels, which the kernel itself reads.
pub(super) fn is_content(xattr: &[u8]) -> bool {
    !xattr.starts_with(b"system.posix_acl_") && !xattr.starts_with(b"security.")
}

/// Whether the operation reads from a file whose reads are checked individually.
fn is_of_checked(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Read(with) => with.handle == CHECKED,
        Operation::LSeek(with) => with.handle == CHECKED,
        Operation::CopyFileRange { with, .. } => with.handle == CHECKED,
        _ => false,
    }
}
