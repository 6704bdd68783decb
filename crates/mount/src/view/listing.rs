//! The names in a folder.
//!
//! The kernel asks for as much as fits into its buffer, from a cookie on. The cookies are the
//! source's own, so a listing goes on where it was even when names come and go in between, and
//! nothing is kept between two requests.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, Mode, OFlags, RawDir, RawDirEntry, SeekFrom};
use rustix::io::Errno;
use thruway_fuse::wire::{DirEntry, EntryOut, ReadIn};
use thruway_fuse::{Answer, Listing};

use super::View;
use super::lookup::{Folder, Found, Maker, stat_name};
use crate::inodes::InodeId;

/// Room for entries as the source gives them. Without attributes they take about as much as in the
/// answer; with attributes the answer is some five times longer.
const RAW_BYTES: usize = 32 * 1024;
const RAW_BYTES_WITH_ATTRIBUTES: usize = 8 * 1024;

impl View {
    pub(super) fn list(
        &self,
        id: InodeId,
        with: &ReadIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.folder(id)?;
        let mut listing = answer.listing(with.size);
        each_entry(&folder.place, with.offset, RAW_BYTES, |entry| {
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
        each_entry(&folder.place, with.offset, RAW_BYTES_WITH_ATTRIBUTES, |entry| {
            self.push_with_attributes(&folder, entry, &mut listing)
        })
    }

    /// Adds a name and a lookup of its inode; `false` if it does not fit.
    fn push_with_attributes(
        &self,
        folder: &Folder,
        entry: &RawDirEntry<'_>,
        listing: &mut Listing<'_>,
    ) -> Result<bool, Errno> {
        let name = entry.file_name();
        if !listing.fits_with_attributes(name.to_bytes()) {
            return Ok(false);
        }
        let out = match name.to_bytes() {
            // The kernel knows these two.
            b"." | b".." => EntryOut::default(),
            _ => match stat_name(&folder.place, name) {
                Ok(stat) => {
                    let found = Found::Name(folder.place.as_fd(), name);
                    self.entry(folder, found, &stat, Maker::Unknown)?
                }
                // It went away since it was listed.
                Err(Errno::NOENT) => return Ok(true),
                Err(_) => EntryOut::default(),
            },
        };
        Ok(listing.push_with_attributes(&out, dir_entry(entry), name.to_bytes()))
    }

    pub(super) fn sync_folder(&self, id: InodeId) -> Result<(), Errno> {
        fs::fsync(open_folder(&*self.place(id)?)?)
    }
}

/// Calls `push` for each entry behind the cookie, until it says that there is no more room.
fn each_entry(
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
