//! Lists the names in a folder.
//!
//! The kernel asks for as much as fits into its buffer, after a cookie. The cookies are the source's own. So a listing
//! continues correctly while names come and go, and needs no state between requests.

use std::ffi::{CStr, CString};

use rustix::fs::{self, FileType, RawDirEntry};
use rustix::io::Errno;
use thruway_fuse::Listing;
use thruway_fuse::wire::{DirEntry, EntryOut, OpenOut, ReadIn, Wire};

use super::context::Context;
use super::entries::{each_entry, open_folder};
use super::folder::Folder;
use super::found::Found;
use super::lookup;
use super::recent_listing::FRESH;
use super::state::View;
use super::timeouts::ChangedBy;
use crate::branches::Merged;

/// Room for the source's entries. Without attributes, an entry takes about as much in the reply; with attributes, some
/// five times more.
const RAW_BYTES: usize = 32 * 1024;
const RAW_BYTES_WITH_ATTRIBUTES: usize = 8 * 1024;

/// The cookie of `..` in a merged folder; names come after it.
const DOTS: u64 = 2;

pub(super) fn readdir(cx: &mut Context<'_>, with: &ReadIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let folder = view.folders.folder(id)?;
    let is_hidden = view.access.hiding(id)?;
    let mut listing = cx.reply.listing(with.size);
    if let Some(merged) = folder.merged() {
        each_merged(view, merged, with.offset, usize::MAX, |entry, name| {
            is_hidden(name) || listing.push(entry, name.to_bytes())
        });
        return Ok(());
    }
    let dirs = view.folders.dirs(&folder)?;
    each_entry(&dirs[0].fd, with.offset, RAW_BYTES, |entry| {
        let name = entry.file_name();
        Ok(is_hidden(name) || listing.push(dir_entry(entry), name.to_bytes()))
    })
}

pub(super) fn readdirplus(cx: &mut Context<'_>, with: &ReadIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let folder = view.folders.folder(id)?;
    let is_hidden = view.access.hiding(id)?;
    // The kernel also accepts names without attributes, and keeps those that it has.
    let is_known = view.timeouts.name_timeout(&folder) > FRESH
        && view.recent_listing.is_again(id, with.offset);
    let mut listing = cx.reply.listing(with.size);
    if let Some(merged) = folder.merged() {
        let mut push = |entry, name: &CStr| match is_hidden(name) {
            true => Ok(Pushed::Yes),
            false => push_with_attributes(view, &folder, is_known, (entry, name), &mut listing),
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
        let pushed = push_with_attributes(view, &folder, is_known, entry, &mut listing)?;
        Ok(!matches!(pushed, Pushed::Full))
    })
}

/// Whether a name was added to a listing.
enum Pushed {
    Yes,
    /// The name is gone since it was listed.
    Gone,
    /// It does not fit.
    Full,
}

/// Lists a merged folder with attributes. If a listed name is gone, another program may have renamed the file, and the
/// index does not have its new name yet. Then the index is built again: a new name comes after all others.
fn list_merged(
    view: &View,
    merged: &Merged,
    with: &ReadIn,
    push: &mut dyn FnMut(DirEntry, &CStr) -> Result<Pushed, Errno>,
) -> Result<(), Errno> {
    let most = with.size as usize / (EntryOut::SIZE + DirEntry::SIZE);
    let (mut cookie, mut is_rebuilt) = (with.offset, false);
    loop {
        // A look-up may change the index, so the names are copied first.
        let mut names = Vec::new();
        each_merged(view, merged, cookie, most, |entry, name| {
            names.push((entry, name.to_owned()));
            true
        });
        let was_rebuilt = is_rebuilt;
        for (entry, name) in names {
            cookie = entry.offset;
            match push(entry, &name)? {
                Pushed::Yes => {}
                Pushed::Full => return Ok(()),
                Pushed::Gone if is_rebuilt => {}
                Pushed::Gone => {
                    view.folders.merging.iter().for_each(|merging| merging.rebuild(merged));
                    is_rebuilt = true;
                }
            }
        }
        if is_rebuilt == was_rebuilt {
            return Ok(());
        }
    }
}

/// Adds a name and, unless the kernel knows it, a lookup of its inode.
fn push_with_attributes(
    view: &View,
    folder: &Folder,
    is_known: bool,
    (entry, name): (DirEntry, &CStr),
    listing: &mut Listing<'_>,
) -> Result<Pushed, Errno> {
    if !listing.fits_with_attributes(name.to_bytes()) {
        return Ok(Pushed::Full);
    }
    let out = match name.to_bytes() {
        // The kernel knows these two.
        b"." | b".." => EntryOut::default(),
        _ if is_known => EntryOut::default(),
        _ => match view.folders.find(folder, name) {
            Ok((dir, stat)) => {
                lookup::entry(view, folder, Found::Name(&dir, name), &stat, ChangedBy::Unknown)?
            }
            // The name was removed since it was listed.
            Err(Errno::NOENT) => return Ok(Pushed::Gone),
            Err(_) => EntryOut::default(),
        },
    };
    let is_pushed = listing.push_with_attributes(&out, entry, name.to_bytes());
    Ok(if is_pushed { Pushed::Yes } else { Pushed::Full })
}

/// Calls `push` for at most `most` entries of a merged folder after the cookie, until it returns that there is no room.
fn each_merged(
    view: &View,
    merged: &Merged,
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
    let Some(merging) = &view.folders.merging else { return };
    let built = merging.index(merged);
    let sequence = u32::try_from(cookie.saturating_sub(DOTS)).unwrap_or(u32::MAX);
    for (sequence, name, entry) in built.index.after(sequence).take(most) {
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

/// Opens of folders are requests only under a policy. Without one, the kernel opens them itself and caches their names.
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
