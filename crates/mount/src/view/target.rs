//! The target of an access check.

use std::ffi::CStr;

use crate::inodes::InodeId;

/// The file or name that an access check concerns.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    Inode(InodeId),
    /// An existing name in the folder.
    Name(InodeId, &'a CStr),
    /// A new name in the folder; empty for a file without a name.
    New(InodeId, &'a CStr),
}
