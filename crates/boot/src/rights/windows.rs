//! Checks that this process may read a file, on Windows: the open is the check.

use crate::disk::{self, Status};
use crate::listing::NameKind;

/// Whether a status describes a regular file.
pub(crate) fn is_regular(status: &Status) -> bool {
    disk::kind(status) == NameKind::File
}

/// Whether the status alone proves that this process may read the file.
pub(crate) fn is_certain(status: &Status, _user: u32) -> bool {
    status.is_readable
}

/// Returns `true`: a file is learned after this process has read it. The pack's owner is the user for whom that counts.
pub(crate) fn is_open(_status: &Status) -> bool {
    true
}

/// Returns `false`: an access list decides for each user.
pub(crate) fn is_open_folder(_status: &Status) -> bool {
    false
}

/// Whether the system lets this process read the file.
pub(crate) fn may_read(path: &[u8]) -> bool {
    disk::status_for_reading(path).is_ok() || disk::open(path).is_some()
}

/// Whether the system lets this process search the folder.
pub(crate) fn may_search(path: &[u8]) -> bool {
    disk::status(path).is_ok()
}

/// Returns `false`: access lists are compared whenever a file is opened.
pub(crate) fn has_access_list(_path: &[u8]) -> bool {
    false
}
