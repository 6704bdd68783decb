//! Acting as the caller: what a request makes belongs to its caller.
//!
//! Linux keeps credentials per thread, so a thread takes those of the caller for one system call. The umask is per
//! thread, too. A file system with access lists must see it, as it counts only in folders without a default list.

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, umask};
use rustix::thread::{
    CapabilitySet, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use thruway_fuse::Caller;

const SETGID: u32 = 0o2000;

/// Capabilities by which a caller that is not root may make files that its user may not.
const OVERRIDING: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::MKNOD);

/// The credentials of a thread that serves requests.
#[derive(Debug)]
pub(crate) struct Actor {
    own: (u32, u32),
    /// The thread can take the credentials of callers.
    can_switch: bool,
    can_set_groups: bool,
    /// The thread has given up `CAP_FSETID`, and can take it back for a moment.
    can_keep_setid: bool,
    umask: u32,
}

impl Actor {
    /// For the calling thread. From now on it has no `CAP_FSETID`: its writes clear setuid and setgid, as those of an
    /// ordinary user do.
    pub(crate) fn new() -> Result<Self, Errno> {
        thruway_sys::threads::unshare_umask().map_err(|error| errno(&error))?;
        let capabilities = capabilities(None)?;
        let switching = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let mut actor = Self {
            own: (geteuid().as_raw(), getegid().as_raw()),
            can_switch: capabilities.effective.contains(switching),
            can_set_groups: true,
            // The thread that started this one may have given it up for now: so look at the permitted set.
            can_keep_setid: capabilities.permitted.contains(CapabilitySet::FSETID),
            umask: 0,
        };
        umask(Mode::empty());
        if actor.can_switch && set_thread_groups(&[]) == Err(Errno::PERM) {
            // A user namespace may forbid that: then the groups stay those of its creator.
            actor.can_set_groups = false;
        }
        give_up_quotas()?;
        actor.give_up_setid()?;
        Ok(actor)
    }

    /// Runs `make`, which makes something with `mode`, as the caller and with the caller's umask.
    pub(crate) fn make_as<T>(
        &mut self,
        caller: &Caller,
        mode: u32,
        umask_bits: u32,
        mut make: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if self.umask != umask_bits & 0o777 {
            self.umask = umask_bits & 0o777;
            umask(Mode::from_raw_mode(self.umask));
        }
        if (caller.uid, caller.gid) == self.own {
            // Else a setgid folder of another group would clear the bit.
            return if mode & SETGID == 0 { make() } else { self.keeping_setid(make) };
        }
        if !self.can_switch {
            // The file would belong to this process, and not to the caller.
            return Err(Errno::PERM);
        }
        let folder_group = caller.folder_group.map(Gid::from_raw);
        let made = self.as_caller(caller, folder_group.as_slice(), &mut make);
        if !matches!(made, Err(Errno::ACCESS | Errno::PERM)) {
            return made;
        }
        // The kernel has allowed it: by another of the caller's groups, as in an access list, or by a capability.
        let Some(groups) = groups_of(caller.pid) else { return made };
        let made = self.as_caller(caller, &groups, &mut make);
        let rights = rights_of(caller.pid).intersection(OVERRIDING);
        if !matches!(made, Err(Errno::ACCESS | Errno::PERM)) || rights.is_empty() {
            return made;
        }
        self.as_caller(caller, &groups, &mut || {
            // As another user the thread has none of them.
            let mut sets = capabilities(None)?;
            sets.effective = sets.permitted.intersection(rights);
            set_capabilities(None, sets)?;
            make()
        })
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

    /// Runs `write`, where the kernel leaves it to us whether setuid and setgid are cleared: they are, unless the
    /// caller is root.
    pub(crate) fn writing_as<T>(
        &self,
        caller: &Caller,
        write: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if caller.uid == 0 { self.keeping_setid(write) } else { write() }
    }

    /// Runs `change` as the caller with all of its groups.
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

    /// Runs `change` with `CAP_FSETID`: the setuid and setgid bits stay as they are.
    pub(crate) fn keeping_setid<T>(
        &self,
        change: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if !self.can_keep_setid {
            return change();
        }
        self.set_setid(true)?;
        let changed = change();
        self.set_setid(false)?;
        changed
    }

    fn become_caller(&self, caller: &Caller, groups: &[Gid]) -> Result<(), Errno> {
        if !groups.is_empty() {
            set_thread_groups(groups)?;
        }
        set_thread_res_gid(None, Gid::from_raw(caller.gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(caller.uid), None)
    }

    fn become_self(&self, had_groups: bool) -> Result<(), Errno> {
        // The user first: that brings back the capability to change groups.
        set_thread_res_uid(None, Uid::from_raw(self.own.0), None)?;
        set_thread_res_gid(None, Gid::from_raw(self.own.1), None)?;
        if had_groups {
            set_thread_groups(&[])?;
        }
        // Becoming root again has brought back every permitted capability.
        self.give_up_setid()
    }

    fn give_up_setid(&self) -> Result<(), Errno> {
        if self.can_keep_setid { self.set_setid(false) } else { Ok(()) }
    }

    fn set_setid(&self, on: bool) -> Result<(), Errno> {
        let mut sets = capabilities(None)?;
        sets.effective.set(CapabilitySet::FSETID, on);
        set_capabilities(None, sets)
    }
}

/// Gives up `CAP_SYS_RESOURCE` for good: with it, writes would bypass the quotas of the source. The kernel writes to a
/// backing file with the credentials of the thread that opened it.
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

/// The supplementary groups of a thread that waits for a reply. A request names at most one of them.
pub(crate) fn groups_of(pid: u32) -> Option<Vec<Gid>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    groups.split_whitespace().map(|group| group.parse().ok().map(Gid::from_raw)).collect()
}

/// The capabilities of a thread that waits for a reply. In another user namespace they count for nothing here: any
/// process may have all of them there.
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

/// The errno of a system error.
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
