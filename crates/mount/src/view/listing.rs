//! The names in a folder.
//!
//! The kernel asks for as much as fits into its buffer, from a cookie on. The cookies are the
//! source's own, so a listing goes on where it was even when names come and go in between, and
//! nothing is kept between two requests.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, FileType, Mode, OFlags, RawDir, RawDirEntry, SeekFrom};
use rustix::io::Errno;
use thruway_fuse::wire::{DirEntry, EntryOut, ReadIn, Wire};
use thruway_fuse::{Answer, Listing};

use super::View;
use super::folder::Folder;
use super::lookup::{Found, Maker};
use crate::branches::Merged;
use crate::inodes::InodeId;

/// Room for entries as the source gives them. Without attributes they take about as much as in the
/// answer; with attributes the answer is some five times longer.
const RAW_BYTES: usize = 32 * 1024;
const RAW_BYTES_WITH_ATTRIBUTES: usize = 8 * 1024;

/// The cookie of `..` in a merged folder; names come behind it.
const DOTS: u64 = 2;

impl View {
    pub(super) fn list(
        &self,
        id: InodeId,
        with: &ReadIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.folder(id)?;
        let mut listing = answer.listing(with.size);
        if let Some(merged) = Self::merging(&folder) {
            self.each_merged(merged, with.offset, usize::MAX, |entry, name| {
                listing.push(entry, name.to_bytes())
            });
            return Ok(());
        }
        let spots = self.spots(&folder)?;
        each_entry(&spots[0].place, with.offset, RAW_BYTES, |entry| {
            Ok(listing.push(dir_entry(entry), entry.file_name().to_bytes()))
        })
    }

    pub(super) fn list_with_attributes(
        &self,
        id: InodeId,
        with: &ReadIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.folder(id)?;
        let mut listing = answer.listing(with.size);
        if let Some(merged) = Self::merging(&folder) {
            // Looking a name up may change the index, so the names are taken out of it first.
            let mut names = Vec::new();
            let most = with.size as usize / (EntryOut::SIZE + DirEntry::SIZE);
            self.each_merged(merged, with.offset, most, |entry, name| {
                names.push((entry, name.to_owned()));
                true
            });
            for (entry, name) in names {
                if !self.push_with_attributes(&folder, entry, &name, &mut listing)? {
                    break;
                }
            }
            return Ok(());
        }
        let spots = self.spots(&folder)?;
        each_entry(&spots[0].place, with.offset, RAW_BYTES_WITH_ATTRIBUTES, |entry| {
            self.push_with_attributes(&folder, dir_entry(entry), entry.file_name(), &mut listing)
        })
    }

    /// Adds a name and a lookup of its inode; `false` if it does not fit.
    fn push_with_attributes(
        &self,
        folder: &Folder,
        entry: DirEntry,
        name: &CStr,
        listing: &mut Listing<'_>,
    ) -> Result<bool, Errno> {
        if !listing.fits_with_attributes(name.to_bytes()) {
            return Ok(false);
        }
        let out = match name.to_bytes() {
            // The kernel knows these two.
            b"." | b".." => EntryOut::default(),
            _ => match self.find(folder, name) {
                Ok((spot, stat)) => {
                    self.entry(folder, Found::Name(&spot, name), &stat, Maker::Unknown)?
                }
                // It went away since it was listed.
                Err(Errno::NOENT) => return Ok(true),
                Err(_) => EntryOut::default(),
            },
        };
        Ok(listing.push_with_attributes(&out, entry, name.to_bytes()))
    }

    /// Calls `push` for at most `most` entries of a merged folder behind the cookie, until it says that
    /// there is no more room.
    fn each_merged(
        &self,
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
        let built = self.index(merged);
        let place = u32::try_from(cookie.saturating_sub(DOTS)).unwrap_or(u32::MAX);
        for (place, name, entry) in built.index.after(place).take(most) {
            let Ok(name) = CString::new(name) else { continue };
            let entry = DirEntry {
                number: entry.number,
                offset: u64::from(place) + DOTS,
                name_length: 0,
                kind: u32::from(entry.kind),
            };
            if !push(entry, &name) {
                return;
            }
        }
    }

    pub(super) fn sync_folder(&self, id: InodeId) -> Result<(), Errno> {
        self.places_of(id)?.iter().try_for_each(|place| fs::fsync(open_folder(place)?))
    }
}

/// Calls `push` for each entry behind the cookie, until it says that there is no more room.
pub(super) fn each_entry(
    folder: &OwnedFd,
    cookie: u64,
    raw_bytes: usize,
    mut push: impl FnMut(&RawDirEntry<'_>) -> Result<bool, Errno>,
) -> Result<(), Errno> {
    let folder = open_folder(folder)?;
    if cookie != 0 {
        fs::seek(&folder, SeekFrom::Start(cookie))?;
    }
    let mut raw = Vec::with_capacity(raw_bytes);
    let mut entries = RawDir::new(&folder, raw.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        if !push(&entry?)? {
            break;
        }
    }
    Ok(())
}

/// Opens the folder with a position of its own.
fn open_folder(folder: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(folder, CURRENT, flags, Mode::empty())
}

const CURRENT: &CStr = c".";

fn dir_entry(entry: &RawDirEntry<'_>) -> DirEntry {
    DirEntry {
        number: entry.ino(),
        offset: entry.next_entry_cookie(),
        name_length: 0,
        kind: entry.file_type().as_raw_mode() >> 12,
    }
}
