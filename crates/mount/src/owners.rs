//! The owners and modes that a view shows, and those that it writes to the sources.
//!
//! The kernel checks permissions against the shown owners and modes. A view therefore refuses a change that its own
//! settings would hide, and afterwards shows exactly the owner and mode that the caller has written.

pub(crate) mod access_list;
mod ids;
mod mode_rule;

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thruway_fuse::Caller;

pub use ids::{IdRange, OwnerIds};
pub use mode_rule::ModeRule;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const PERMISSIONS: u32 = 0o777;

/// How owners and modes of the sources are shown and written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Owners {
    /// The users.
    pub users: OwnerIds,
    /// The groups.
    pub groups: OwnerIds,
    /// The change of the modes that are shown.
    pub mode: ModeRule,
    /// The change of the modes of new files.
    pub create_mode: ModeRule,
    /// Whether a change of owner or mode that cannot be shown is ignored. Otherwise it fails with `EPERM`.
    pub ignores_fixed: bool,
}

/// A file's owner, group and permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The mode with the bits of the type.
    pub(crate) mode: u32,
}

/// The owner and the mode of a file to create.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewOwnership {
    /// The user, groups and process on behalf of which the file is created.
    pub(crate) owner: Caller,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl Owners {
    /// Whether everything is shown and written as it is.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self { ignores_fixed: self.ignores_fixed, ..Self::default() }
    }

    /// Whether new files get a fixed owner.
    pub(crate) fn creates_for_others(&self) -> bool {
        self.users.created().is_some() || self.groups.created().is_some()
    }

    /// Whether the file has set-id bits that forbid this caller to change the data or the access list. Otherwise, the
    /// caller could run code of its choice, or let callers of its choice run the file, with another user's rights.
    pub(crate) fn protects(caller: &Caller, mode: u16) -> bool {
        caller.uid != 0 && u32::from(mode) & (SETUID | SETGID) != 0
    }

    /// Whether access lists would contradict the modes that are shown.
    pub(crate) fn excludes_access_lists(&self) -> bool {
        !self.mode.is_empty()
    }

    /// Returns the ownership that the view shows.
    pub(crate) fn shown(&self, of: Ownership, is_folder: bool) -> Ownership {
        Ownership {
            uid: self.users.shown(of.uid),
            gid: self.groups.shown(of.gid),
            mode: self.mode.apply(of.mode, is_folder),
        }
    }

    /// Returns the ownership of a file that the caller creates.
    pub(crate) fn of_new(
        &self,
        caller: &Caller,
        (mode, umask): (u32, u32),
        is_folder: bool,
    ) -> Result<NewOwnership, Errno> {
        let folder_group =
            caller.folder_group.map(|group| self.groups.source(group)).transpose()?;
        let owner = Caller {
            uid: self.users.of_new(caller.uid)?,
            gid: self.groups.of_new(caller.gid)?,
            pid: caller.pid,
            folder_group,
        };
        let mode = mode & !Self::denied_bits(caller, mode, is_folder);
        if self.create_mode.is_empty() {
            return Ok(NewOwnership { owner, mode, umask });
        }
        let mode = self.create_mode.apply(mode & !(umask & PERMISSIONS), is_folder);
        Ok(NewOwnership { owner, mode, umask: 0 })
    }

    /// Returns the user to write for a file that gets this shown user.
    pub(crate) fn changed_user(&self, present: u32, asked: u32) -> Result<u32, Errno> {
        self.users.changed(present, asked, self.ignores_fixed)
    }

    /// Returns the group to write for a file that gets this shown group.
    pub(crate) fn changed_group(&self, present: u32, asked: u32) -> Result<u32, Errno> {
        self.groups.changed(present, asked, self.ignores_fixed)
    }

    /// Returns the mode to write for a file that gets this shown mode. Bits that the caller does not change keep their
    /// value in the source.
    pub(crate) fn changed_mode(
        &self,
        caller: &Caller,
        present: u32,
        asked: u32,
        is_folder: bool,
    ) -> Result<u32, Errno> {
        let denied = Self::denied_bits(caller, asked, is_folder);
        if denied != 0 && !self.ignores_fixed {
            return Err(Errno::PERM);
        }
        let shown = self.mode.apply(present, is_folder);
        let changed = (shown ^ asked) & PERMISSIONS;
        let mode = (asked & !PERMISSIONS & !denied)
            | (present & PERMISSIONS & !changed)
            | (asked & changed);
        let fixed = (self.mode.apply(mode, is_folder) ^ asked) & PERMISSIONS;
        match fixed {
            0 => Ok(mode),
            _ if self.ignores_fixed => Ok((mode & !fixed) | (present & fixed)),
            _ => Err(Errno::PERM),
        }
    }

    /// Returns the set-id bits that this caller may not set: in the source, the file may belong to another user, and
    /// the program would run there with that user's rights.
    fn denied_bits(caller: &Caller, asked: u32, is_folder: bool) -> u32 {
        let set_ids = if is_folder { SETUID } else { SETUID | SETGID };
        if caller.uid == 0 { 0 } else { asked & set_ids }
    }
}

impl fmt::Display for Owners {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.users.describe("user");
        parts.extend(self.groups.describe("group"));
        for (rule, which) in [(&self.mode, "shown"), (&self.create_mode, "of new files")] {
            if !rule.is_empty() {
                parts.push(format!("modes {which}: {rule}"));
            }
        }
        formatter.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JO: Caller = Caller { uid: 1000, gid: 1000, pid: 0, folder_group: None };
    const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 0, folder_group: None };

    fn with_mode(rule: &str) -> Owners {
        Owners { mode: ModeRule::parse(rule).unwrap(), ..Owners::default() }
    }

    #[test]
    fn a_change_of_mode_keeps_the_bits_that_the_caller_does_not_change() {
        let owners = with_mode("go-w");
        let changed = |present, asked| owners.changed_mode(&JO, present, asked, false);
        // The group's right to write is not shown, and stays.
        assert_eq!(changed(0o664, 0o644), Ok(0o664));
        assert_eq!(changed(0o664, 0o744), Ok(0o764));
        assert_eq!(changed(0o664, 0o600), Ok(0o620));
        assert_eq!(changed(0o644, 0o664), Err(Errno::PERM));
        let owners = Owners { ignores_fixed: true, ..owners };
        assert_eq!(owners.changed_mode(&JO, 0o644, 0o775, false), Ok(0o755));
    }

    #[test]
    fn what_a_change_writes_is_what_is_shown_afterwards() {
        for rule in ["go-w", "a=rX", "0640", "ug=o", "u=rwX:g=u:o=", "fgo-x", "da+D"] {
            let owners = with_mode(rule);
            for present in 0..=0o777 {
                for asked in [0, 0o640, 0o644, 0o711, 0o755, 0o777, present] {
                    for is_folder in [false, true] {
                        let Ok(mode) = owners.changed_mode(&JO, present, asked, is_folder) else {
                            continue;
                        };
                        let shown = owners.mode.apply(mode, is_folder);
                        assert_eq!(shown, asked, "{rule} {present:o} {asked:o}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_root_may_set_set_id_bits() {
        let owners = with_mode("go-w");
        assert_eq!(owners.changed_mode(&JO, 0o755, 0o4755, false), Err(Errno::PERM));
        assert_eq!(owners.changed_mode(&JO, 0o755, 0o2755, false), Err(Errno::PERM));
        assert_eq!(owners.changed_mode(&JO, 0o755, 0o2755, true), Ok(0o2755));
        // More users could run a program that is the other user's.
        assert_eq!(owners.changed_mode(&JO, 0o4750, 0o4755, false), Err(Errno::PERM));
        assert_eq!(owners.changed_mode(&JO, 0o4750, 0o755, false), Ok(0o755));
        assert_eq!(owners.changed_mode(&ROOT, 0o755, 0o6755, false), Ok(0o6755));
        let new = owners.of_new(&JO, (0o6755, 0), false).unwrap();
        assert_eq!(new.mode, 0o755);
        assert_eq!(owners.of_new(&ROOT, (0o6755, 0), false).unwrap().mode, 0o6755);
    }

    #[test]
    fn the_umask_counts_before_the_mode_of_new_files() {
        let create_mode = ModeRule::parse("g+rwX").unwrap();
        let owners = Owners { create_mode, ..Owners::default() };
        let new = owners.of_new(&JO, (0o644, 0o077), false).unwrap();
        assert_eq!((new.mode, new.umask), (0o660, 0));
        let new = owners.of_new(&JO, (0o777, 0o077), true).unwrap();
        assert_eq!(new.mode, 0o770);
    }
}
