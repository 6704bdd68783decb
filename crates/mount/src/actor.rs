//! Acts as the caller of a request, so that new files belong to the caller.
//!
//! Linux keeps credentials per thread, so a thread takes the caller's credentials for a single system call. The umask
//! is per thread, too. A file system with access lists must see the caller's umask, which applies only in folders
//! without a default list.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, CWD, Mode, chmodat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, umask};
use rustix::thread::{
    CapabilitySet, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use thruway_fuse::Caller;

use crate::owners::NewOwnership;
use crate::proc_path::ProcPath;

const SETGID: u32 = 0o2000;

/// The group that owns nothing.
const NO_GROUP: u32 = 65_534;

/// Capabilities by which a caller other than root may create files that the caller's user may not.
const OVERRIDING: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::MKNOD);

/// The credentials of a thread that serves requests.
#[derive(Debug)]
pub(crate) struct Actor {
    own: (u32, u32),
    /// Whether the thread can take the credentials of callers.
    can_switch: bool,
    can_set_groups: bool,
    /// Whether the thread gave up `CAP_FSETID` and can take it back for a moment.
    can_keep_setid: bool,
    umask: u32,
}

impl Actor {
    /// Creates the actor for the calling thread, which gives up `CAP_FSETID`: from now on its writes clear setuid and
    /// setgid, as the writes of an ordinary user do.
    pub(crate) fn new() -> Result<Self, Errno> {
        thruway_sys::threads::unshare_umask().map_err(|error| errno(&error))?;
        let capabilities = capabilities(None)?;
        let switching = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let mut actor = Self {
            own: (geteuid().as_raw(), getegid().as_raw()),
            can_switch: capabilities.effective.contains(switching),
            can_set_groups: true,
            // The parent thread may have given up the capability for now, so the permitted set is what counts.
            can_keep_setid: capabilities.permitted.contains(CapabilitySet::FSETID),
            umask: 0,
        };
        umask(Mode::empty());
        if actor.can_switch && set_thread_groups(&[]) == Err(Errno::PERM) {
            // A user namespace may forbid setgroups(2). Then the thread keeps the groups of the namespace's creator.
            actor.can_set_groups = false;
        }
        give_up_quotas()?;
        actor.give_up_setid()?;
        Ok(actor)
    }

    /// Runs `make`, which creates a file with `mode`, as the caller and with the caller's umask.
    pub(crate) fn make_as<T>(
        &mut self,
        caller: &Caller,
        mode: u32,
        umask_bits: u32,
        mut make: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.set_umask(umask_bits);
        if (caller.uid, caller.gid) == self.own {
            // Without `CAP_FSETID`, a setgid folder of another group would clear the bit.
            return if mode & SETGID == 0 { make() } else { self.keeping_setid(make) };
        }
        if !self.can_switch {
            // The file would belong to this process instead of the caller.
            return Err(Errno::PERM);
        }
        let folder_group = caller.folder_group.map(Gid::from_raw);
        let made = self.as_caller(caller, folder_group.as_slice(), &mut make);
        if !matches!(made, Err(Errno::ACCESS | Errno::PERM)) {
            return made;
        }
        // The kernel has already permitted the operation, so the caller has another group with the right, as in an
        // access list, or a capability.
        let Some(groups) = groups_of(caller.pid) else { return made };
        let made = self.as_caller(caller, &groups, &mut make);
        let rights = rights_of(caller.pid).intersection(OVERRIDING);
        if !matches!(made, Err(Errno::ACCESS | Errno::PERM)) || rights.is_empty() {
            return made;
        }
        self.as_caller(caller, &groups, &mut || {
            use_capabilities(rights)?;
            make()
        })
    }

    /// Runs `make`, which creates a file, as the owner of the new file. The source's permissions do not matter: the
    /// kernel has permitted the operation by the owners that the view shows.
    pub(crate) fn make_for<T>(
        &mut self,
        new: &NewOwnership,
        mut make: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.set_umask(new.umask);
        let owner = &new.owner;
        if (owner.uid, owner.gid) == self.own {
            return if new.mode & SETGID == 0 { make() } else { self.keeping_setid(make) };
        }
        if !self.can_switch {
            return Err(Errno::PERM);
        }
        let folder_group = owner.folder_group.map(Gid::from_raw);
        self.as_caller(owner, folder_group.as_slice(), &mut || {
            use_capabilities(OVERRIDING)?;
            make()
        })
    }

    /// Whether the thread can take the credentials of other users.
    pub(crate) fn can_switch(&self) -> bool {
        self.can_switch
    }

    /// Runs `look` as this user, without any group, so that no more is permitted than to the user alone.
    pub(crate) fn as_user<T>(
        &self,
        user: u32,
        mut look: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if !self.can_switch || user == self.own.0 {
            return look();
        }
        let caller = Caller { uid: user, gid: NO_GROUP, ..Caller::default() };
        self.as_caller(&caller, &[], &mut look)
    }

    fn set_umask(&mut self, bits: u32) {
        if self.umask != bits & 0o777 {
            self.umask = bits & 0o777;
            umask(Mode::from_raw_mode(self.umask));
        }
    }

    fn as_caller<T>(
        &self,
        caller: &Caller,
        groups: &[Gid],
        make: &mut impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let groups = if self.can_set_groups { groups } else { &[] };
        let became = self.become_caller(caller, groups);
        let made = became.and_then(|()| make());
        self.become_self(!groups.is_empty())?;
        made
    }

    /// Runs `write` in cases where the kernel leaves clearing setuid and setgid to the daemon. The bits are cleared
    /// unless the caller is root.
    pub(crate) fn writing_as<T>(
        &self,
        caller: &Caller,
        write: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if caller.uid == 0 { self.keeping_setid(write) } else { write() }
    }

    /// Runs `change` as the caller, with all of the caller's groups.
    pub(crate) fn in_groups_of<T>(
        &self,
        caller: &Caller,
        mut change: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match groups_of(caller.pid) {
            Some(groups) if self.can_switch => self.as_caller(caller, &groups, &mut change),
            _ => change(),
        }
    }

    /// Runs `change` with `CAP_FSETID`, so that the setuid and setgid bits stay.
    pub(crate) fn keeping_setid<T>(
        &self,
        change: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if self.can_keep_setid { keeping_setid(change) } else { change() }
    }

    fn become_caller(&self, caller: &Caller, groups: &[Gid]) -> Result<(), Errno> {
        if !groups.is_empty() {
            set_thread_groups(groups)?;
        }
        set_thread_res_gid(None, Gid::from_raw(caller.gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(caller.uid), None)
    }

    fn become_self(&self, had_groups: bool) -> Result<(), Errno> {
        // The user comes first, since that restores the capability to change groups.
        set_thread_res_uid(None, Uid::from_raw(self.own.0), None)?;
        set_thread_res_gid(None, Gid::from_raw(self.own.1), None)?;
        if had_groups {
            set_thread_groups(&[])?;
        }
        // Becoming root again has restored every permitted capability.
        self.give_up_setid()
    }

    fn give_up_setid(&self) -> Result<(), Errno> {
        if self.can_keep_setid { set_setid(false) } else { Ok(()) }
    }
}

/// Sets the mode of a file with these permissions, for a copy of another file. Threads that serve requests have no
/// `CAP_FSETID`, without which the kernel clears setgid of a file whose group is not the thread's.
pub(crate) fn set_mode_of_copy(file: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    let path = ProcPath::new(file);
    let change = || chmodat(CWD, path.as_c_str(), mode, AtFlags::empty());
    let may_keep = || {
        let sets = capabilities(None)?;
        Ok(sets.permitted.contains(CapabilitySet::FSETID)
            && !sets.effective.contains(CapabilitySet::FSETID))
    };
    if mode.contains(Mode::SGID) && may_keep()? { keeping_setid(change) } else { change() }
}

fn keeping_setid<T>(change: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    set_setid(true)?;
    let changed = change();
    set_setid(false)?;
    changed
}

/// Makes `CAP_FSETID` of this thread effective, or ineffective.
fn set_setid(on: bool) -> Result<(), Errno> {
    let mut sets = capabilities(None)?;
    sets.effective.set(CapabilitySet::FSETID, on);
    set_capabilities(None, sets)
}

/// Makes these capabilities effective, since switching to another user has cleared all.
fn use_capabilities(rights: CapabilitySet) -> Result<(), Errno> {
    let mut sets = capabilities(None)?;
    sets.effective = sets.permitted.intersection(rights);
    set_capabilities(None, sets)
}

/// Permanently gives up `CAP_SYS_RESOURCE`, with which writes would bypass the quotas of the source. The kernel writes
/// to a backing file with the credentials of the thread that opened the file.
fn give_up_quotas() -> Result<(), Errno> {
    let mut sets = capabilities(None)?;
    if !sets.permitted.contains(CapabilitySet::SYS_RESOURCE) {
        return Ok(());
    }
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    sets.permitted.remove(CapabilitySet::SYS_RESOURCE);
    sets.inheritable.remove(CapabilitySet::SYS_RESOURCE);
    set_capabilities(None, sets)
}

/// Returns the supplementary groups of a thread that waits for a reply. A request names at most one group.
pub(crate) fn groups_of(pid: u32) -> Option<Vec<Gid>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    groups.split_whitespace().map(|group| group.parse().ok().map(Gid::from_raw)).collect()
}

/// Returns the capabilities of a thread that waits for a reply. Capabilities in another user namespace do not count,
/// since any process may have all of them in its own namespace.
fn rights_of(pid: u32) -> CapabilitySet {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    let own = namespace("self");
    if own.is_none() || namespace(&pid.to_string()) != own {
        return CapabilitySet::empty();
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    CapabilitySet::from_bits_truncate(bits.unwrap_or(0))
}

/// Returns the errno of a system error.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serving_thread_cannot_bypass_quotas() {
        let sets = std::thread::spawn(|| {
            Actor::new().unwrap();
            capabilities(None).unwrap()
        });
        let sets = sets.join().unwrap();
        assert!(!(sets.effective | sets.permitted).contains(CapabilitySet::SYS_RESOURCE));
    }

    #[test]
    fn the_groups_of_a_thread_are_read_from_proc() {
        let mut own = rustix::process::getgroups().unwrap();
        let mut said = groups_of(std::process::id()).unwrap();
        own.sort_unstable_by_key(|group| group.as_raw());
        said.sort_unstable_by_key(|group| group.as_raw());
        assert_eq!(own, said);
        assert_eq!(groups_of(0), None);
    }
}
