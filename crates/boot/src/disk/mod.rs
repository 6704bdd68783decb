//! Queries to the disk, in the form of the system: paths as bytes, and the state of the file at a path.

#[cfg(unix)]
mod posix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use posix::{
    Status, has_other_links, is_at_its_path, is_device, is_same_file, kind, native_path, open,
    path_bytes, read_folder, read_link, real_path_bytes, stamp, status, status_for_reading,
    status_of_file, status_of_target, user,
};
#[cfg(windows)]
pub(crate) use windows::{
    Status, has_other_links, is_at_its_path, is_device, is_same_file, kind, native_path, open,
    path_bytes, read_folder, read_link, real_path_bytes, stamp, status, status_for_reading,
    status_of_file, status_of_target, user,
};

use crate::listing::NameKind;

/// The most names of a folder that is listed. Reading a larger one would cost more than it can save.
const NAMES_MAX: usize = 1 << 16;

/// A name in a folder, and its type.
pub(crate) type FolderEntry = (Vec<u8>, NameKind);

/// The reason why a path has no status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoStatus {
    /// There is nothing at the path.
    Missing,
    /// The file cannot be examined.
    Unknown,
}
