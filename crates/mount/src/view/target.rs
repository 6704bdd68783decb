//! What an access check is about.

use std::ffi::CStr;

use crate::inodes::InodeId;

/// The target of an access check.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    Inode(InodeId),
    /// The file of a name in the folder.
    Name(InodeId, &'a CStr),
    /// A new name in the folder; empty for a file without a name.
    New(InodeId, &'a CStr),
}
