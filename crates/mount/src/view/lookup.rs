//! Looks up names, and forgets inodes.

use std::ffi::CStr;
use std::time::Duration;

use rustix::fs::{self, Mode, OFlags, Statx};
use rustix::io::Errno;
use thruway_fuse::wire::EntryOut;

use super::attributes;
use super::context::Context;
use super::folder::{BranchDir, Folder};
use super::found_inode::FoundInode;
use super::links::LinkedFile;
use super::stat::{FILE_TYPE, LINK, identity, opens_reach_us, stat_fd};
use super::state::View;
use super::timeouts::{ChangedBy, Timeouts};
use crate::actor::Actor;
use crate::inodes::InodeId;
use crate::volumes::VolumeInfo;

/// The parent of an inode that was found by a link. No inode has this id, so changes of the file count as unreported.
const UNKNOWN_FOLDER: InodeId = InodeId(0);

pub(super) fn lookup(cx: &mut Context<'_>, name: &CStr) -> Result<(), Errno> {
    match look_up_once(cx, name) {
        // The file system of the name is being released. Afterwards, the name leads to what the file system hid.
        Err(Errno::STALE) => {
            cx.view.mount_changes.wait_for_release();
            look_up_once(cx, name)
        }
        done => done,
    }
}

fn look_up_once(cx: &mut Context<'_>, name: &CStr) -> Result<(), Errno> {
    let parent = cx.inode();
    let view = cx.view;
    let caller = &cx.request.caller;
    let folder = view.folders.folder(parent)?;
    if view.access.hiding(parent)?(name) {
        cx.reply.put(&no_entry(view, &folder));
        return Ok(());
    }
    // A file that moves to another source after it was found here would become an inode of its own, of a removed file.
    let _names = view.keep_names();
    match view.folders.find(&folder, name) {
        Ok((dir, stat)) => {
            let entry = named_entry(view, cx.actor, &folder, (&dir, name), &stat)?;
            if view.access.is_checked_by_lookup(&stat) {
                view.access.note_walk(caller, InodeId(entry.inode), parent, name);
            }
            cx.reply.put(&entry);
            Ok(())
        }
        Err(Errno::NOENT) => {
            cx.reply.put(&no_entry(view, &folder));
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}

/// Adds a lookup to the inode of a name that was found, and returns its entry for the reply. With links that are
/// followed, the inode is that of the file to which the name leads.
pub(super) fn named_entry(
    view: &View,
    actor: &Actor,
    folder: &Folder,
    (dir, name): (&BranchDir, &CStr),
    stat: &Statx,
) -> Result<EntryOut, Errno> {
    let follower = view.links.as_ref().filter(|_| u32::from(stat.stx_mode) & FILE_TYPE == LINK);
    let linked = follower.and_then(|it| it.follow(actor, folder, (dir, name), stat));
    if let Some(linked) = linked {
        return linked_entry(view, &linked);
    }
    entry(view, folder, FoundInode::Named(dir, name), stat, ChangedBy::Unknown)
}

/// Adds a lookup to the inode of a file that was found by a link, and returns its entry for the reply. Nothing reports
/// that the link leads to another file, so the kernel asks each time.
fn linked_entry(view: &View, linked: &LinkedFile) -> Result<EntryOut, Errno> {
    let folder = || fs::openat(&linked.dir.fd, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    view.files.volumes.of(&stat_fd(&linked.dir.fd)?, folder)?;
    let found = FoundInode::Named(&linked.dir, &linked.name);
    let volume = view.files.volumes.of(&linked.stat, || found.anchor())?;
    let handle = || if volume.has_handles { found.handle().map(Some) } else { Ok(None) };
    let identity = identity(volume.index, &linked.stat);
    let found_in = (UNKNOWN_FOLDER, linked.dir.branch);
    let id = view.files.inodes.intern(&identity, found_in, false, handle, |_| ())?;
    if let Some(names) = &view.files.names
        && (!volume.has_handles || names.get(id).is_none())
    {
        // The path below the root leads to the file as well as a name in its own folder, which may not be known.
        names.remember(id, InodeId::ROOT, &linked.path, linked.stat.stx_nlink == 1);
    }
    let mut timeouts = view.timeouts.timeouts(id, false, &linked.stat, ChangedBy::Unknown);
    if !view.timeouts.is_kept_unreported() {
        (timeouts.entry, timeouts.attributes) = (Duration::ZERO, Duration::ZERO);
    }
    Ok(entry_out(view, id, volume, &linked.stat, timeouts))
}

/// Adds a lookup to the inode, and returns its entry for the reply.
pub(super) fn entry(
    view: &View,
    folder: &Folder,
    found: FoundInode<'_>,
    stat: &Statx,
    changed_by: ChangedBy,
) -> Result<EntryOut, Errno> {
    let volume = view.files.volumes.of(stat, || found.anchor())?;
    let id = intern(view, folder.id, found, volume, stat)?;
    let mut shown = *stat;
    let is_reported = attributes::complete(view, id, &mut shown) && folder.is_watched;
    let mut timeouts = view.timeouts.timeouts(id, folder.is_watched, &shown, changed_by);
    if !is_reported && !view.timeouts.is_kept_unreported() {
        timeouts.attributes = Duration::ZERO;
    }
    if view.access.is_checked_by_lookup(stat) {
        timeouts.entry = Duration::ZERO;
    }
    // A link that leads to no file now may lead to one later.
    let is_link = u32::from(stat.stx_mode) & FILE_TYPE == LINK;
    if is_link && view.links.is_some() && !view.timeouts.is_kept_unreported() {
        timeouts.entry = Duration::ZERO;
    }
    Ok(entry_out(view, id, volume, &shown, timeouts))
}

fn entry_out(
    view: &View,
    id: InodeId,
    volume: VolumeInfo,
    shown: &Statx,
    timeouts: Timeouts,
) -> EntryOut {
    EntryOut {
        inode: id.0,
        generation: view.memory.generation(),
        entry_timeout: timeouts.entry.as_secs(),
        attribute_timeout: timeouts.attributes.as_secs(),
        entry_timeout_nanoseconds: timeouts.entry.subsec_nanos(),
        attribute_timeout_nanoseconds: timeouts.attributes.subsec_nanos(),
        attributes: attributes::attributes(view, volume, shown),
    }
}

/// Returns the entry for a name that does not exist, with the timeout of its absence.
fn no_entry(view: &View, folder: &Folder) -> EntryOut {
    let negative = view.timeouts.name_timeout(folder);
    EntryOut {
        entry_timeout: negative.as_secs(),
        entry_timeout_nanoseconds: negative.subsec_nanos(),
        ..EntryOut::default()
    }
}

/// Adds a lookup to the inode, and returns its id.
fn intern(
    view: &View,
    parent: InodeId,
    found: FoundInode<'_>,
    volume: VolumeInfo,
    stat: &Statx,
) -> Result<InodeId, Errno> {
    let handle = || if volume.has_handles { found.handle().map(Some) } else { Ok(None) };
    let is_open = !matches!(found, FoundInode::Named(..));
    let mut identity = identity(volume.index, stat);
    if let Some(name) = found.name()
        && view.is_separate_link(found.branch(), stat)
    {
        identity = identity.with_name(parent, name.to_bytes());
    }
    let place = found.name().filter(|name| {
        identity.is_folder()
            && view.folders.branches().is_some()
            && !matches!(name.to_bytes(), b"." | b"..")
    });
    if let Some(name) = place {
        view.folders.continue_folder(parent, name, &identity);
    }
    let found_in = (parent, found.branch());
    let id = view.files.inodes.intern(&identity, found_in, is_open, handle, |id| {
        if !opens_reach_us(stat) {
            view.files.pin_found(id, found);
        }
    })?;
    if let Some(name) = place {
        view.folders.note_place(id, parent, name.to_bytes());
    }
    view.access.note_found(id, parent, found.name().map_or(b"", CStr::to_bytes), stat);
    Ok(id)
}

/// Subtracts lookups. With the last one, drops all state that was kept for the inode.
pub(super) fn forget(view: &View, id: InodeId, lookups: u64) {
    if let Some(forgotten) = view.files.inodes.forget(id, lookups) {
        view.folders.unwatch(&forgotten);
        if let Some(branches) = view.folders.branches() {
            branches.forget(id);
            if forgotten.inode.identity.is_folder() {
                view.files.forget_place(id);
            }
        }
        view.files.forget(id);
        view.access.forget(id);
        view.moves.forget(id);
        view.connection.close_backing(forgotten.backing.id);
    }
}
