//! Creates files, folders, links and nodes as the caller.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use thruway_fuse::wire::{CreateIn, EntryOut, MkDirIn, MkNodIn};

use super::context::Context;
use super::copy_up::copy_up;
use super::folder::{BranchDir, Folder};
use super::found_inode::FoundInode;
use super::layered_names;
use super::open::access;
use super::placement::{dir_beside, make_in};
use super::stat::{FILE_TYPE, FOLDER, stat_fd, stat_name};
use super::state::View;
use super::target::Target;
use super::timeouts::ChangedBy;
use super::{lookup, open};
use crate::inodes::InodeId;
use crate::policy::Verdict;
use crate::proc_path::ProcPath;

pub(super) fn mknod(cx: &mut Context<'_>, name: &CStr, with: &MkNodIn) -> Result<(), Errno> {
    let kind = FileType::from_raw_mode(with.mode);
    let device = unpacked_device(with.device);
    let created = make(cx, name, (with.mode, with.umask), |dir, mode| {
        fs::mknodat(&dir.fd, name, kind, mode, device)
    })?;
    reply_new(cx, &created.folder, &created.dir, name)
}

pub(super) fn mkdir(cx: &mut Context<'_>, name: &CStr, with: &MkDirIn) -> Result<(), Errno> {
    let mode = with.mode & 0o7777 | FOLDER;
    let created = make(cx, name, (mode, with.umask), |dir, mode| fs::mkdirat(&dir.fd, name, mode))?;
    reply_new(cx, &created.folder, &created.dir, name)
}

pub(super) fn symlink(cx: &mut Context<'_>, name: &CStr, target: &CStr) -> Result<(), Errno> {
    let created = make(cx, name, (0, 0), |dir, _| fs::symlinkat(target, &dir.fd, name))?;
    reply_new(cx, &created.folder, &created.dir, name)
}

pub(super) fn link(cx: &mut Context<'_>, source: InodeId, name: &CStr) -> Result<(), Errno> {
    let (view, parent) = (cx.view, cx.inode());
    if view.folders.upper().is_some() {
        copy_up(view, source, None)?;
        let (fd, folder) = (view.files.path_fd(source)?, view.folders.folder(parent)?);
        let (dir, ()) =
            layered_names::make_named(view, &folder, name, |dir| link_fd(&fd, &dir.fd, name))?;
        return reply_new(cx, &view.folders.after_change(folder), &dir, name);
    }
    // The link is created in the source that has the file, since a link cannot cross file systems.
    let _names = view.moves.share_names();
    if view.moves.is_gone(source) {
        // On ESTALE, the kernel looks the name up again.
        return Err(Errno::STALE);
    }
    let (fd, folder) = (view.files.path_fd(source)?, view.folders.folder(parent)?);
    let inode = view.files.inodes.get(source)?;
    view.files.roots.check_writable(inode.branch)?;
    let dir = dir_beside(view, &folder, inode.branch)?;
    match link_fd(&fd, &dir.fd, name) {
        // A new file, and one that was moved, may be open through the mount of their source's root.
        Err(Errno::XDEV) => {
            let file = view.files.open_inode(&inode, OFlags::PATH | OFlags::NOFOLLOW)?;
            link_fd(&file, &view.files.on_common_mount(&dir.fd)?, name)?;
        }
        linked => linked?,
    }
    reply_new(cx, &view.folders.after_change(folder), &dir, name)
}

pub(super) fn create(cx: &mut Context<'_>, name: &CStr, with: &CreateIn) -> Result<(), Errno> {
    let verdict = check_new(cx, name, with)?;
    // The file is opened for reading only, since a file that is open for writing cannot be executed.
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let created =
        make(cx, name, (with.mode, with.umask), |dir, mode| fs::openat(&dir.fd, name, flags, mode));
    let created = match created {
        // Another program created the file after the kernel looked. On ESTALE, the kernel looks again.
        Err(Errno::EXIST) if with.flags & OFlags::EXCL.bits() == 0 => Err(Errno::STALE),
        created => created,
    }?;
    cx.view.folders.note_change(created.folder.id, name);
    let found = FoundInode::Created(&created.dir, created.file.as_fd(), name);
    let id = reply_created(cx, &created, found, (with, verdict))?;
    // The next requests usually concern this file: its attributes are set, or it is written to.
    cx.view.files.path_fds.put(id, Arc::new(created.file));
    Ok(())
}

pub(super) fn tmpfile(cx: &mut Context<'_>, with: &CreateIn) -> Result<(), Errno> {
    let verdict = check_new(cx, c"", with)?;
    let exclusive = OFlags::from_bits_retain(with.flags) & OFlags::EXCL;
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC | exclusive;
    let created =
        make(cx, c"", (with.mode, with.umask), |dir, mode| fs::openat(&dir.fd, c".", flags, mode))?;
    let found = FoundInode::Nameless(&created.dir, created.file.as_fd());
    reply_created(cx, &created, found, (with, verdict)).map(drop)
}

/// A new file, with its folder and the source's part of the folder.
struct PlacedFile<T> {
    folder: Folder,
    dir: BranchDir,
    file: T,
}

/// Runs `make` in the folder of the request, as the caller, in the source that the create policy chooses. `make` gets
/// the permissions of the new file.
fn make<T>(
    cx: &mut Context<'_>,
    name: &CStr,
    (mode, umask): (u32, u32),
    mut make: impl FnMut(&BranchDir, Mode) -> Result<T, Errno>,
) -> Result<PlacedFile<T>, Errno> {
    let folder = cx.view.folders.folder(cx.inode())?;
    let (actor, caller) = (&mut *cx.actor, &cx.request.caller);
    let permissions = |mode: u32| Mode::from_raw_mode(mode & 0o7777);
    if cx.view.folders.upper().is_some() {
        let (dir, file) = layered_names::make_named(cx.view, &folder, name, |dir| {
            actor.make_as(caller, mode, umask, || make(dir, permissions(mode)))
        })?;
        let folder = cx.view.folders.after_change(folder);
        return Ok(PlacedFile { folder, dir, file });
    }
    let (dir, file) = match &cx.view.behaviour.owners {
        None => make_in(cx.view, &folder, |dir| {
            actor.make_as(caller, mode, umask, || make(dir, permissions(mode)))
        }),
        Some(owners) => {
            let new = owners.of_new(caller, (mode, umask), mode & FILE_TYPE == FOLDER)?;
            make_in(cx.view, &folder, |dir| {
                actor.make_for(&new, || make(dir, permissions(new.mode)))
            })
        }
    }?;
    Ok(PlacedFile { folder: cx.view.folders.after_change(folder), dir, file })
}

/// Checks whether the policy allows a new file. Returns the verdict if it does.
fn check_new(cx: &Context<'_>, name: &CStr, with: &CreateIn) -> Result<Verdict, Errno> {
    let access = access(OFlags::from_bits_retain(with.flags) | OFlags::TRUNC);
    cx.view.access.check(&cx.request.caller, Target::New(cx.inode(), name), access)
}

fn reply_created(
    cx: &mut Context<'_>,
    created: &PlacedFile<OwnedFd>,
    found: FoundInode<'_>,
    (with, verdict): (&CreateIn, Verdict),
) -> Result<InodeId, Errno> {
    let stat = stat_fd(&created.file)?;
    let entry = new_entry(cx.view, &created.folder, found, &stat)?;
    let id = InodeId(entry.inode);
    let mode = open::open_new(cx.view, id, &stat, (with.flags, verdict), &created.file);
    cx.reply.put(&entry);
    cx.reply.put(&open::opened(cx.view, mode));
    Ok(id)
}

fn reply_new(
    cx: &mut Context<'_>,
    folder: &Folder,
    dir: &BranchDir,
    name: &CStr,
) -> Result<(), Errno> {
    cx.view.folders.note_change(folder.id, name);
    let stat = stat_name(&dir.fd, name)?;
    cx.reply.put(&new_entry(cx.view, folder, FoundInode::Named(dir, name), &stat)?);
    Ok(())
}

/// Builds the entry of a new inode for the reply. The kernel must not cache a name that the policy hides.
fn new_entry(
    view: &View,
    folder: &Folder,
    found: FoundInode<'_>,
    stat: &Statx,
) -> Result<EntryOut, Errno> {
    let mut entry = lookup::entry(view, folder, found, stat, ChangedBy::Us)?;
    if let Some(name) = found.name()
        && view.access.hiding(folder.id)?(name)
    {
        (entry.entry_timeout, entry.entry_timeout_nanoseconds) = (0, 0);
    }
    Ok(entry)
}

/// Links a file by its descriptor. Without the capability for that, links by the descriptor's path in `/proc`.
fn link_fd(fd: &OwnedFd, folder: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    match fs::linkat(fd, c"", folder, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT) => {
            let path = ProcPath::new(fd.as_fd());
            fs::linkat(CWD, path.as_c_str(), folder, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

/// Unpacks a device number from the kernel's 32-bit form.
fn unpacked_device(packed: u32) -> fs::Dev {
    let major = (packed >> 8) & 0xfff;
    let minor = (packed & 0xff) | ((packed >> 12) & 0xf_ff00);
    fs::makedev(major, minor)
}
