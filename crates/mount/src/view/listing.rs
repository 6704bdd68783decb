//! The names in a folder.
//!
//! The kernel asks for as much as fits into its buffer, from a cookie on. The cookies are the
//! source's own, so a listing goes on where it was even when names come and go in between, and
//! nothing is kept between two requests but what was asked last.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{self, FileType, Mode, OFlags, RawDir, RawDirEntry, SeekFrom};
use rustix::io::Errno;
use thruway_fuse::wire::{DirEntry, EntryOut, OpenOut, ReadIn, Wire};
use thruway_fuse::{Answer, Listing};

use super::View;
use super::folder::Folder;
use super::lookup::{Found, Maker};
use crate::branches::Merged;
use crate::inodes::{InodeId, lock};

/// For so long the kernel is sure to know the names that it was told with their attributes.
const FRESH: Duration = Duration::from_millis(10);

/// What was listed last with attributes: the folder, from which cookie on, and when.
#[derive(Debug, Default)]
pub(super) struct Listed {
    last: Mutex<Option<(InodeId, u64, Instant)>>,
}

impl Listed {
    /// Whether this has been told just now. `rm -r` asks each folder whether it is empty before it reads it.
    fn is_again(&self, folder: InodeId, cookie: u64) -> bool {
        let (now, mut last) = (Instant::now(), lock(&self.last));
        let is_same = |(other, from, at): &(InodeId, u64, Instant)| {
            (*other, *from) == (folder, cookie) && now.duration_since(*at) < FRESH
        };
        let is_again = last.as_ref().is_some_and(is_same);
        if !is_again {
            *last = Some((folder, cookie, now));
        }
        is_again
    }
}

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
        let is_hidden = self.hiding(id)?;
        let mut listing = answer.listing(with.size);
        if let Some(merged) = Self::merging(&folder) {
            self.each_merged(merged, with.offset, usize::MAX, |entry, name| {
                is_hidden(name) || listing.push(entry, name.to_bytes())
            });
            return Ok(());
        }
        let spots = self.spots(&folder)?;
        each_entry(&spots[0].place, with.offset, RAW_BYTES, |entry| {
            let name = entry.file_name();
            Ok(is_hidden(name) || listing.push(dir_entry(entry), name.to_bytes()))
        })
    }

    pub(super) fn list_with_attributes(
        &self,
        id: InodeId,
        with: &ReadIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let folder = self.folder(id)?;
        let is_hidden = self.hiding(id)?;
        // The kernel takes names without attributes, too, and keeps what it knows.
        let is_known = self.name_timeout(&folder) > FRESH && self.listed.is_again(id, with.offset);
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
                if !is_hidden(&name)
                    && !self.push_with_attributes(
                        &folder,
                        is_known,
                        (entry, &name),
                        &mut listing,
                    )?
                {
                    break;
                }
            }
            return Ok(());
        }
        let spots = self.spots(&folder)?;
        each_entry(&spots[0].place, with.offset, RAW_BYTES_WITH_ATTRIBUTES, |entry| {
            let name = entry.file_name();
            if is_hidden(name) {
                return Ok(true);
            }
            self.push_with_attributes(&folder, is_known, (dir_entry(entry), name), &mut listing)
        })
    }

    /// Adds a name and, unless the kernel knows that, a lookup of its inode; `false` if it does not fit.
    fn push_with_attributes(
        &self,
        folder: &Folder,
        is_known: bool,
        (entry, name): (DirEntry, &CStr),
        listing: &mut Listing<'_>,
    ) -> Result<bool, Errno> {
        if !listing.fits_with_attributes(name.to_bytes()) {
            return Ok(false);
        }
        let out = match name.to_bytes() {
            // The kernel knows these two.
            b"." | b".." => EntryOut::default(),
            _ if is_known => EntryOut::default(),
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

    /// Opens of folders reach us only where a policy has to be asked; the kernel may keep their names
    /// without.
    pub(super) fn open_folder(&self, answer: &mut Answer) -> Result<(), Errno> {
        if self.judge.is_none() {
            return Err(Errno::NOSYS);
        }
        answer.put(&OpenOut::default());
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_listed_just_now_and_nothing_else_is_known() {
        let listed = Listed::default();
        let (one, other) = (InodeId(7), InodeId(8));
        let asked = [(one, 0), (one, 0), (one, 9), (one, 0), (other, 0), (other, 0)];
        let known = asked.map(|(folder, cookie)| listed.is_again(folder, cookie));
        assert_eq!(known, [false, true, false, false, false, true]);
        std::thread::sleep(FRESH);
        assert!(!listed.is_again(other, 0));
    }
}
