//! What an access check is about.

use std::ffi::CStr;

use crate::inodes::InodeId;

/// The target of an access check.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    Inode(InodeId),
    /// What a name in the folder leads to.
    Name(InodeId, &'a CStr),
    /// A name in the folder that is about to be made; empty for a file without a name.
    New(InodeId, &'a CStr),
}
