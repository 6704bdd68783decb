//! Reads the folders of a source.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, Mode, OFlags, RawDir, RawDirEntry, SeekFrom};
use rustix::io::Errno;

/// Calls `push` for each entry after the cookie, until `push` returns `false` because the buffer is full.
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

/// Opens the folder again, with a separate offset.
pub(super) fn open_folder(folder: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(folder, CURRENT, flags, Mode::empty())
}

const CURRENT: &CStr = c".";
