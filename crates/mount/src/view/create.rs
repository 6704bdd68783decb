//! New names: files, folders, links and nodes, made as the caller.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use thruway_fuse::Reply;
use thruway_fuse::wire::{CreateIn, EntryOut, MkDirIn, MkNodIn};

use super::context::Context;
use super::folder::{BranchDir, Folder};
use super::found::Found;
use super::open::access;
use super::placement::make_in;
use super::stat::{stat_name, stat_place};
use super::state::View;
use super::target::Target;
use super::timeouts::Maker;
use super::{lookup, open};
use crate::inodes::InodeId;
use crate::policy::Verdict;
use crate::proc_path::ProcPath;

pub(super) fn mknod(cx: &mut Context<'_>, name: &CStr, with: &MkNodIn) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let actor = &mut *cx.actor;
    let caller = &cx.request.caller;
    let reply = &mut *cx.reply;
    let folder = view.folders.folder(parent)?;
    let kind = FileType::from_raw_mode(with.mode);
    let mode = Mode::from_raw_mode(with.mode & 0o7777);
    let (spot, ()) = make_in(view, &folder, |spot| {
        actor.make_as(caller, with.mode, with.umask, || {
            fs::mknodat(&spot.place, name, kind, mode, unpacked_device(with.device))
        })
    })?;
    reply_new(view, &folder, &spot, name, reply)
}

pub(super) fn mkdir(cx: &mut Context<'_>, name: &CStr, with: &MkDirIn) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let actor = &mut *cx.actor;
    let caller = &cx.request.caller;
    let reply = &mut *cx.reply;
    let folder = view.folders.folder(parent)?;
    let mode = Mode::from_raw_mode(with.mode & 0o7777);
    let (spot, ()) = make_in(view, &folder, |spot| {
        let make = || fs::mkdirat(&spot.place, name, mode);
        actor.make_as(caller, with.mode, with.umask, make)
    })?;
    reply_new(view, &folder, &spot, name, reply)
}

pub(super) fn symlink(cx: &mut Context<'_>, name: &CStr, target: &CStr) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let actor = &mut *cx.actor;
    let caller = &cx.request.caller;
    let reply = &mut *cx.reply;
    let folder = view.folders.folder(parent)?;
    let (spot, ()) = make_in(view, &folder, |spot| {
        actor.make_as(caller, 0, 0, || fs::symlinkat(target, &spot.place, name))
    })?;
    reply_new(view, &folder, &spot, name, reply)
}

pub(super) fn link(cx: &mut Context<'_>, source: InodeId, name: &CStr) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let reply = &mut *cx.reply;
    let (place, folder) = (view.files.place(source)?, view.folders.folder(parent)?);
    // In the source that has the file, or not at all.
    let spot = view.folders.spot_in(&folder, view.files.inodes.get(source)?.branch)?;
    link_place(&place, &spot.place, name)?;
    reply_new(view, &folder, &spot, name, reply)
}

pub(super) fn create(cx: &mut Context<'_>, name: &CStr, with: &CreateIn) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let actor = &mut *cx.actor;
    let caller = &cx.request.caller;
    let reply = &mut *cx.reply;
    let access = access(OFlags::from_bits_retain(with.flags) | OFlags::TRUNC);
    let verdict = view.access.check(caller, Target::New(parent, name), access)?;
    let folder = view.folders.folder(parent)?;
    let mode = Mode::from_raw_mode(with.mode & 0o7777);
    // Open for reading only: a file that is open for writing cannot be executed.
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let made = make_in(view, &folder, |spot| {
        let make = || fs::openat(&spot.place, name, flags, mode);
        actor.make_as(caller, with.mode, with.umask, make)
    });
    let (spot, file) = match made {
        // Somebody else was faster. The kernel looks again when it hears ESTALE.
        Err(Errno::EXIST) if with.flags & OFlags::EXCL.bits() == 0 => Err(Errno::STALE),
        made => made,
    }?;
    view.folders.note_change(&folder, name);
    let found = Found::Made(&spot, file.as_fd(), name);
    let id = reply_created(view, &folder, &file, found, (with, verdict), reply)?;
    // Who has made a file soon asks for more: its attributes are set, or it is written to.
    view.files.places.put(id, Arc::new(file));
    Ok(())
}

pub(super) fn tmpfile(cx: &mut Context<'_>, with: &CreateIn) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let actor = &mut *cx.actor;
    let caller = &cx.request.caller;
    let reply = &mut *cx.reply;
    let access = access(OFlags::from_bits_retain(with.flags) | OFlags::TRUNC);
    let verdict = view.access.check(caller, Target::New(parent, c""), access)?;
    let folder = view.folders.folder(parent)?;
    let mode = Mode::from_raw_mode(with.mode & 0o7777);
    let exclusive = OFlags::from_bits_retain(with.flags) & OFlags::EXCL;
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC | exclusive;
    let (spot, file) = make_in(view, &folder, |spot| {
        let make = || fs::openat(&spot.place, c".", flags, mode);
        actor.make_as(caller, with.mode, with.umask, make)
    })?;
    let found = Found::Nameless(&spot, file.as_fd());
    reply_created(view, &folder, &file, found, (with, verdict), reply).map(drop)
}

fn reply_created(
    view: &View,
    folder: &Folder,
    file: &OwnedFd,
    found: Found<'_>,
    (with, verdict): (&CreateIn, Verdict),
    reply: &mut Reply,
) -> Result<InodeId, Errno> {
    let stat = stat_place(file)?;
    let entry = new_entry(view, folder, found, &stat)?;
    let id = InodeId(entry.inode);
    let open = open::open_new(view, id, &stat, (with.flags, verdict), file);
    reply.put(&entry);
    reply.put(&open::opened(view, open));
    Ok(id)
}

fn reply_new(
    view: &View,
    folder: &Folder,
    spot: &BranchDir,
    name: &CStr,
    reply: &mut Reply,
) -> Result<(), Errno> {
    view.folders.note_change(folder, name);
    let stat = stat_name(&spot.place, name)?;
    reply.put(&new_entry(view, folder, Found::Name(spot, name), &stat)?);
    Ok(())
}

/// What the kernel may know of what was just made. A name that nobody sees it does not keep.
fn new_entry(
    view: &View,
    folder: &Folder,
    found: Found<'_>,
    stat: &Statx,
) -> Result<EntryOut, Errno> {
    let mut entry = lookup::entry(view, folder, found, stat, Maker::Us)?;
    if let Some(name) = found.name()
        && view.access.hiding(folder.id)?(name)
    {
        (entry.entry_timeout, entry.entry_timeout_nanoseconds) = (0, 0);
    }
    Ok(entry)
}

/// Gives the file another name. Without the right to do that directly it goes by the path of the
/// descriptor.
fn link_place(place: &OwnedFd, folder: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    match fs::linkat(place, c"", folder, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT) => {
            let path = ProcPath::new(place.as_fd());
            fs::linkat(CWD, path.as_c_str(), folder, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

/// The device number in the kernel's 32 bits.
fn unpacked_device(packed: u32) -> fs::Dev {
    let major = (packed >> 8) & 0xfff;
    let minor = (packed & 0xff) | ((packed >> 12) & 0xf_ff00);
    fs::makedev(major, minor)
}
