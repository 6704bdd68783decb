//! Lists the names in a folder.
//!
//! The kernel asks for as many names as fit into its buffer, after a cookie. The cookies are those of the source, so a
//! listing continues correctly while names are added and removed, and needs no state between requests.

use std::ffi::{CStr, CString};

use rustix::fs::{self, FileType, RawDirEntry};
use rustix::io::Errno;
use thruway_fuse::Listing;
use thruway_fuse::wire::{DirEntry, EntryOut, OpenOut, ReadIn, Wire};

use super::context::Context;
use super::entries::{each_entry, open_folder};
use super::folder::Folder;
use super::lookup;
use super::recent_listing::FRESH;
use super::stat::{FILE_TYPE, LINK};
use super::state::View;
use crate::actor::Actor;
use crate::branches::MergedFolder;
use crate::index::WHITEOUT;

/// The size of the buffer for the source's entries. Without attributes, an entry takes about as much space in the
/// reply; with attributes, some five times more.
const RAW_BYTES: usize = 32 * 1024;
const RAW_BYTES_WITH_ATTRIBUTES: usize = 8 * 1024;

/// The cookie of `..` in a merged folder. Names have greater cookies.
const DOTS: u64 = 2;

pub(super) fn readdir(cx: &mut Context<'_>, with: &ReadIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let folder = view.folders.folder(id)?;
    let is_hidden = view.access.hiding(id)?;
    let mut listing = cx.reply.listing(with.size);
    if let Some(merged) = folder.merged() {
        each_merged(view, merged, with.offset, usize::MAX, |mut entry, name| {
            entry.kind = shown_kind(view, entry.kind, None);
            is_hidden(name) || listing.push(entry, name.to_bytes())
        });
        return Ok(());
    }
    let dirs = view.folders.dirs(&folder)?;
    each_entry(&dirs[0].fd, with.offset, RAW_BYTES, |entry| {
        let (name, mut entry) = (entry.file_name(), dir_entry(entry));
        entry.kind = shown_kind(view, entry.kind, None);
        Ok(is_hidden(name) || listing.push(entry, name.to_bytes()))
    })
}

pub(super) fn readdirplus(cx: &mut Context<'_>, with: &ReadIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let folder = view.folders.folder(id)?;
    let is_hidden = view.access.hiding(id)?;
    // The kernel also accepts names without attributes, and keeps the attributes that it has.
    let is_known = view.timeouts.name_timeout(&folder) > FRESH
        && view.recent_listing.is_repeated(id, with.offset);
    let listed = ListedFolder { view, actor: &*cx.actor, folder: &folder, is_known };
    let mut listing = cx.reply.listing(with.size);
    if let Some(merged) = folder.merged() {
        let mut push = |entry, name: &CStr| match is_hidden(name) {
            true => Ok(PushOutcome::Added),
            false => push_with_attributes(&listed, (entry, name), &mut listing),
        };
        return list_merged(view, merged, with, &mut push);
    }
    let dirs = view.folders.dirs(&folder)?;
    each_entry(&dirs[0].fd, with.offset, RAW_BYTES_WITH_ATTRIBUTES, |entry| {
        let name = entry.file_name();
        if is_hidden(name) {
            return Ok(true);
        }
        let entry = (dir_entry(entry), name);
        let pushed = push_with_attributes(&listed, entry, &mut listing)?;
        Ok(!matches!(pushed, PushOutcome::Full))
    })
}

/// A folder that is listed with the attributes of its files.
struct ListedFolder<'a> {
    view: &'a View,
    actor: &'a Actor,
    folder: &'a Folder,
    /// Whether the kernel knows the attributes already.
    is_known: bool,
}

/// Returns the type that a listing gives for a name: the source's, or that of the file to which a followed link leads.
/// Where that is not known, the type is unknown, and the reader of the listing asks for it.
fn shown_kind(view: &View, kind: u32, out: Option<&EntryOut>) -> u32 {
    if view.links.is_none() || kind << 12 != LINK {
        return kind;
    }
    out.filter(|out| out.inode != 0).map_or(0, |out| (out.attributes.mode & FILE_TYPE) >> 12)
}

/// The outcome of adding a name to a listing.
enum PushOutcome {
    Added,
    /// The name was removed after it was listed.
    Gone,
    /// The name does not fit.
    Full,
}

/// Lists a merged folder with attributes. If a listed name is gone, another program may have renamed the file, and the
/// index does not contain the new name yet. Then the index is rebuilt, and a new name comes after all others.
fn list_merged(
    view: &View,
    merged: &MergedFolder,
    with: &ReadIn,
    push: &mut dyn FnMut(DirEntry, &CStr) -> Result<PushOutcome, Errno>,
) -> Result<(), Errno> {
    let most = with.size as usize / (EntryOut::SIZE + DirEntry::SIZE);
    let (mut cookie, mut is_rebuilt) = (with.offset, false);
    loop {
        // A lookup may change the index, so the names are copied first.
        let mut names = Vec::new();
        each_merged(view, merged, cookie, most, |entry, name| {
            names.push((entry, name.to_owned()));
            true
        });
        let was_rebuilt = is_rebuilt;
        for (entry, name) in names {
            cookie = entry.offset;
            match push(entry, &name)? {
                PushOutcome::Added => {}
                PushOutcome::Full => return Ok(()),
                PushOutcome::Gone if is_rebuilt => {}
                PushOutcome::Gone => {
                    view.folders
                        .merged_sources
                        .iter()
                        .for_each(|merged_sources| merged_sources.rebuild(merged));
                    is_rebuilt = true;
                }
            }
        }
        if is_rebuilt == was_rebuilt {
            return Ok(());
        }
    }
}

/// Adds a name and, unless the kernel knows the name, a lookup of its inode.
fn push_with_attributes(
    listed: &ListedFolder<'_>,
    (mut entry, name): (DirEntry, &CStr),
    listing: &mut Listing<'_>,
) -> Result<PushOutcome, Errno> {
    let (view, folder) = (listed.view, listed.folder);
    if !listing.fits_with_attributes(name.to_bytes()) {
        return Ok(PushOutcome::Full);
    }
    // As in a lookup.
    let _names = view.keep_names();
    let out = match name.to_bytes() {
        // The kernel knows these two.
        b"." | b".." => EntryOut::default(),
        _ if listed.is_known => EntryOut::default(),
        _ => match view.folders.find(folder, name) {
            // The kernel looks up by itself what cannot be looked up now.
            Ok((dir, stat)) => lookup::named_entry(view, listed.actor, folder, (&dir, name), &stat)
                .unwrap_or_default(),
            // The name was removed after it was listed.
            Err(Errno::NOENT) => return Ok(PushOutcome::Gone),
            Err(_) => EntryOut::default(),
        },
    };
    entry.kind = shown_kind(view, entry.kind, Some(&out));
    let is_pushed = listing.push_with_attributes(&out, entry, name.to_bytes());
    Ok(if is_pushed { PushOutcome::Added } else { PushOutcome::Full })
}

/// Calls `push` for at most `most` entries of a merged folder after the cookie, until `push` returns `false` because
/// the listing is full.
fn each_merged(
    view: &View,
    merged: &MergedFolder,
    cookie: u64,
    most: usize,
    mut push: impl FnMut(DirEntry, &CStr) -> bool,
) {
    let folder = |offset| DirEntry {
        number: merged.id.0,
        offset,
        name_length: 0,
        kind: FileType::Directory.as_raw_mode() >> 12,
    };
    let dots = [(1, c"."), (DOTS, c"..")];
    for (offset, name) in dots.into_iter().filter(|(offset, _)| *offset > cookie) {
        if !push(folder(offset), name) {
            return;
        }
    }
    let Some(merged_sources) = &view.folders.merged_sources else { return };
    // A program lists its own changes even if they are reported late.
    if cookie < DOTS && merged.inherits_names() && view.folders.watches.is_behind() {
        merged_sources.rebuild(merged);
    }
    let built = merged_sources.index(merged);
    let sequence = u32::try_from(cookie.saturating_sub(DOTS)).unwrap_or(u32::MAX);
    let shown = built.index.after(sequence).filter(|(_, _, entry)| entry.kind != WHITEOUT);
    for (sequence, name, entry) in shown.take(most) {
        let Ok(name) = CString::new(name) else { continue };
        let entry = DirEntry {
            number: entry.number,
            offset: u64::from(sequence) + DOTS,
            name_length: 0,
            kind: u32::from(entry.kind),
        };
        if !push(entry, &name) {
            return;
        }
    }
}

/// Replies to the open of a folder, which is a request only under a policy. Without a policy, the kernel opens folders
/// itself and caches their names.
pub(super) fn opendir(cx: &mut Context<'_>) -> Result<(), Errno> {
    let view = cx.view;
    if !view.access.is_enforced() {
        return Err(Errno::NOSYS);
    }
    cx.reply.put(&OpenOut::default());
    Ok(())
}

pub(super) fn fsyncdir(cx: &mut Context<'_>) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    view.folders.fds_of(id)?.iter().try_for_each(|fd| fs::fsync(open_folder(fd)?))
}

fn dir_entry(entry: &RawDirEntry<'_>) -> DirEntry {
    DirEntry {
        number: entry.ino(),
        offset: entry.next_entry_cookie(),
        name_length: 0,
        kind: entry.file_type().as_raw_mode() >> 12,
    }
}
