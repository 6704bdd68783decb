//! Structures about names in folders.

use super::{Wire, structures};

structures! {
    /// Makes a device node, a FIFO, a socket or an empty file.
    MkNodIn {
        /// Type and permissions.
        mode: u32,
        /// The device number.
        device: u32,
        /// The caller's umask.
        umask: u32,
        /// Always zero.
        padding: u32,
    }
    /// Makes a folder.
    MkDirIn {
        /// Permissions.
        mode: u32,
        /// The caller's umask.
        umask: u32,
    }
    /// Renames.
    RenameIn {
        /// The folder of the new name.
        new_parent: u64,
    }
    /// Renames with flags.
    Rename2In {
        /// The folder of the new name.
        new_parent: u64,
        /// `RENAME_*` flags.
        flags: u32,
        /// Always zero.
        padding: u32,
    }
    /// Makes a hard link.
    LinkIn {
        /// The inode that gets another name.
        inode: u64,
    }
    /// Makes a file and opens it.
    CreateIn {
        /// `O_*` flags.
        flags: u32,
        /// Type and permissions.
        mode: u32,
        /// The caller's umask.
        umask: u32,
        /// Bits of [`open_in_flag`](super::open_in_flag).
        open_flags: u32,
    }
    /// One name in a folder; the name follows, padded to 8 bytes.
    DirEntry {
        /// Inode number that users see.
        number: u64,
        /// Cookie from which the next read continues.
        offset: u64,
        /// Length of the name in bytes.
        name_length: u32,
        /// Type: `mode >> 12`.
        kind: u32,
    }
}
