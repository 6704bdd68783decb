//! Extended attributes, which include access lists.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, CWD, Mode, XattrFlags};
use rustix::io::Errno;
use thruway_fuse::Reply;
use thruway_fuse::wire::{GetXattrOut, SetXattrIn, setxattr_flag};

use super::access::is_content;
use super::attribute_names::names_at;
use super::context::Context;
use super::copy_up::fds_to_change;
use super::location;
use super::several_sources;
use super::stat::stat_fd;
use super::state::View;
use crate::owners::{Owners, access_list};
use crate::proc_path::ProcPath;

/// The prefix of attributes that only root sees.
const TRUSTED: &[u8] = b"trusted.";

/// The prefix of access lists.
const ACCESS_LISTS: &[u8] = b"system.posix_acl_";

/// The access list, the only attribute whose change may clear setgid.
const ACCESS_LIST: &CStr = c"system.posix_acl_access";

pub(super) fn getxattr(cx: &mut Context<'_>, name: &CStr, size: u32) -> Result<(), Errno> {
    if is_excluded_list(cx.view, name) {
        // With another error, the kernel would refuse to change the mode.
        return Err(Errno::NODATA);
    }
    is_passed_on(cx.view, name)?;
    if is_mark(cx.view, name.to_bytes()) {
        return Err(Errno::NODATA);
    }
    let id = cx.inode();
    let view = cx.view;
    if location::is_virtual(name.to_bytes()) {
        let value = location::value(view, id, name.to_bytes())?;
        return put_sized(&value, size, cx.reply);
    }
    let fd = view.folders.path_fd(id)?;
    let path = ProcPath::new(fd.as_fd());
    if size == 0 {
        let length = fs::getxattr_query(path.as_c_str(), name)?;
        return put_length(length, cx.reply);
    }
    cx.reply.fill(size as usize, |room| {
        let length = fs::getxattr(path.as_c_str(), name, &mut *room)?;
        if let Some(owners) = mapped_list(view, name) {
            access_list::map_ids(&mut room[..length], |kind, id| {
                Ok(access_list::ids(owners, kind).shown(id))
            })?;
        }
        Ok(length)
    })
}

pub(super) fn setxattr(
    cx: &mut Context<'_>,
    name: &CStr,
    value: &[u8],
    with: &SetXattrIn,
) -> Result<(), Errno> {
    is_passed_on(cx.view, name)?;
    check_settable(cx.view, name)?;
    if location::is_virtual(name.to_bytes()) {
        return location::set(cx, name.to_bytes(), value);
    }
    let id = cx.inode();
    let view = cx.view;
    let _kept = view.keep_file(id)?;
    let actor = &*cx.actor;
    let mut mapped = Vec::new();
    let value = match mapped_list(view, name) {
        None => value,
        Some(owners) => {
            if Owners::protects(&cx.request.caller, stat_fd(view.files.path_fd(id)?)?.stx_mode) {
                return Err(Errno::PERM);
            }
            mapped.extend_from_slice(value);
            access_list::map_ids(&mut mapped, |kind, id| {
                access_list::ids(owners, kind).source(id)
            })?;
            &mapped
        }
    };
    let flags = XattrFlags::from_bits_retain(with.flags);
    let fds = fds_to_change(view, id, None)?;
    check_several(&fds, name, flags)?;
    let mut done: Vec<(&OwnedFd, Option<Vec<u8>>)> = Vec::new();
    for (index, fd) in fds.iter().enumerate().rev() {
        let before = if index == 0 { None } else { value_of(fd, name) };
        // The first source, which is shown, decides whether the attribute exists.
        let flags = if index == 0 { flags } else { XattrFlags::empty() };
        let path = ProcPath::new(fd.as_fd());
        let set = || fs::setxattr(path.as_c_str(), name, value, flags);
        let set = if with.setxattr_flags & setxattr_flag::ACL_KILL_SGID != 0 {
            set().and_then(|()| clear_setgid(fd))
        } else if name == ACCESS_LIST && mode_of(fd)?.contains(Mode::SGID) {
            actor.keeping_setid(set)
        } else {
            set()
        };
        if let Err(errno) = set {
            done.into_iter().for_each(|(fd, before)| restore(fd, name, before));
            return Err(errno);
        }
        done.push((fd, before));
    }
    Ok(())
}

/// Checks that a change of this attribute can be made in all sources.
fn check_several(fds: &[Arc<OwnedFd>], name: &CStr, flags: XattrFlags) -> Result<(), Errno> {
    if fds.len() < 2 {
        return Ok(());
    }
    several_sources::check_attributes(fds, false)?;
    let is_there = fs::getxattr_query(ProcPath::new(fds[0].as_fd()).as_c_str(), name).is_ok();
    match flags {
        flags if flags.contains(XattrFlags::CREATE) && is_there => Err(Errno::EXIST),
        flags if flags.contains(XattrFlags::REPLACE) && !is_there => Err(Errno::NODATA),
        _ => Ok(()),
    }
}

fn value_of(fd: &OwnedFd, name: &CStr) -> Option<Vec<u8>> {
    let path = ProcPath::new(fd.as_fd());
    let mut value = vec![0; fs::getxattr_query(path.as_c_str(), name).ok()?];
    let length = fs::getxattr(path.as_c_str(), name, value.as_mut_slice()).ok()?;
    value.truncate(length);
    Some(value)
}

/// Restores the former value of an attribute.
fn restore(fd: &OwnedFd, name: &CStr, before: Option<Vec<u8>>) {
    let path = ProcPath::new(fd.as_fd());
    // The error that led to the restoration is the one to report.
    let _ = match before {
        Some(value) => fs::setxattr(path.as_c_str(), name, &value, XattrFlags::empty()),
        None => fs::removexattr(path.as_c_str(), name),
    };
}

pub(super) fn listxattr(cx: &mut Context<'_>, size: u32) -> Result<(), Errno> {
    is_passed_on(cx.view, c"")?;
    let id = cx.inode();
    let view = cx.view;
    let caller = &cx.request.caller;
    let mut names = names_at(&*view.folders.path_fd(id)?)?;
    if caller.uid != 0 {
        names = without(&names, |name| name.starts_with(TRUSTED));
    }
    if view.behaviour.upper.is_some() {
        names = without(&names, |name| is_mark(view, name));
    }
    if excludes_access_lists(view) {
        names = without(&names, |name| name.starts_with(ACCESS_LISTS));
    }
    if !view.access.may_read(caller, id) {
        names = without(&names, is_content);
    }
    put_sized(&names, size, cx.reply)
}

pub(super) fn removexattr(cx: &mut Context<'_>, name: &CStr) -> Result<(), Errno> {
    is_passed_on(cx.view, name)?;
    check_settable(cx.view, name)?;
    if location::is_virtual(name.to_bytes()) {
        return Err(Errno::PERM);
    }
    let id = cx.inode();
    let view = cx.view;
    let _kept = view.keep_file(id)?;
    let fds = fds_to_change(view, id, None)?;
    check_several(&fds, name, XattrFlags::REPLACE)?;
    for (index, fd) in fds.iter().enumerate().rev() {
        match fs::removexattr(ProcPath::new(fd.as_fd()).as_c_str(), name) {
            // The first source is shown; the others need not have the attribute.
            Err(Errno::NODATA) if index > 0 => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Whether the attribute is one of the marks by which an upper source hides files. The view does not show them.
fn is_mark(view: &View, name: &[u8]) -> bool {
    view.behaviour.upper.as_ref().is_some_and(|upper| upper.is_mark(name))
}

fn check_settable(view: &View, name: &CStr) -> Result<(), Errno> {
    if is_mark(view, name.to_bytes()) { Err(Errno::OPNOTSUPP) } else { Ok(()) }
}

/// Fails if extended attributes are disabled, or if this one is an access list that would contradict the modes that the
/// view shows.
fn is_passed_on(view: &View, name: &CStr) -> Result<(), Errno> {
    if !view.behaviour.xattr {
        return Err(Errno::NOSYS);
    }
    if is_excluded_list(view, name) { Err(Errno::OPNOTSUPP) } else { Ok(()) }
}

fn is_excluded_list(view: &View, name: &CStr) -> bool {
    name.to_bytes().starts_with(ACCESS_LISTS) && excludes_access_lists(view)
}

fn excludes_access_lists(view: &View) -> bool {
    view.behaviour.owners.as_ref().is_some_and(Owners::excludes_access_lists)
}

/// Returns the map of owners if the attribute is an access list, whose users and groups are mapped.
fn mapped_list<'a>(view: &'a View, name: &CStr) -> Option<&'a Owners> {
    let owners = view.behaviour.owners.as_ref()?;
    name.to_bytes().starts_with(ACCESS_LISTS).then_some(owners)
}

/// Replies with these bytes, or with their length if the caller has no room.
fn put_sized(bytes: &[u8], size: u32, reply: &mut Reply) -> Result<(), Errno> {
    match size as usize {
        0 => put_length(bytes.len(), reply),
        room if room < bytes.len() => Err(Errno::RANGE),
        _ => {
            reply.put_bytes(bytes);
            Ok(())
        }
    }
}

/// Replies with a length alone.
fn put_length(length: usize, reply: &mut Reply) -> Result<(), Errno> {
    let size = u32::try_from(length).map_err(|_| Errno::TOOBIG)?;
    reply.put(&GetXattrOut { size, padding: 0 });
    Ok(())
}

/// Clears setgid, because a caller outside the file's group has changed its access list.
fn clear_setgid(fd: &OwnedFd) -> Result<(), Errno> {
    let mode = mode_of(fd)?;
    if !mode.contains(Mode::SGID) {
        return Ok(());
    }
    let path = ProcPath::new(fd.as_fd());
    fs::chmodat(CWD, path.as_c_str(), mode - Mode::SGID, AtFlags::empty())
}

fn mode_of(fd: &OwnedFd) -> Result<Mode, Errno> {
    Ok(Mode::from_raw_mode(u32::from(stat_fd(fd)?.stx_mode)))
}

/// Returns the names without those that `is_left_out` selects; each name has a final NUL.
fn without(names: &[u8], is_left_out: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let all = names.split_inclusive(|&byte| byte == 0);
    all.filter(|name| !is_left_out(name)).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_out_of_a_list() {
        let names = b"user.a\0trusted.b\0security.c\0";
        let shown = without(names, |name| name.starts_with(TRUSTED));
        assert_eq!(shown, b"user.a\0security.c\0");
        assert_eq!(without(names, is_content), b"security.c\0");
    }
}
