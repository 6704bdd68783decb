//! Structures about the connection: headers, INIT and notifications.

use super::{Wire, structures};

structures! {
    /// The header of every request.
    InHeader {
        /// Length of the whole request in bytes.
        length: u32,
        /// Which operation: see [`opcode`](super::opcode).
        opcode: u32,
        /// The request's number; the reply carries it back.
        unique: u64,
        /// The inode that the operation is on.
        inode: u64,
        /// The caller's file-system user id.
        uid: u32,
        /// The caller's file-system group id.
        gid: u32,
        /// The caller's process id, or zero.
        pid: u32,
        /// Length of the extensions at the end, in units of 8 bytes.
        extensions: u16,
        /// Always zero.
        padding: u16,
    }
    /// The header of every reply and notification.
    OutHeader {
        /// Length of the whole reply in bytes.
        length: u32,
        /// Zero or a negative errno; in a notification its code.
        error: i32,
        /// The request's number; zero in a notification.
        unique: u64,
    }
    /// The kernel's INIT request, with the features that the kernel offers.
    InitIn {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
        /// Most bytes that the kernel reads ahead.
        max_readahead: u32,
        /// Low half of the features.
        flags: u32,
    }
    /// The reply to INIT, with the features that the daemon accepts.
    InitOut {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
        /// Most bytes that the kernel reads ahead.
        max_readahead: u32,
        /// Low half of the features.
        flags: u32,
        /// Most background requests at a time.
        max_background: u16,
        /// Number of background requests from which the kernel sends fewer.
        congestion_threshold: u16,
        /// Most bytes in a write.
        max_write: u32,
        /// Granularity of times in nanoseconds.
        time_granularity: u32,
        /// Most pages in a request.
        max_pages: u16,
        /// Alignment of maps.
        map_alignment: u16,
        /// High half of the features.
        flags2: u32,
        /// How deep a backing file may lie in stacked file systems.
        max_stack_depth: u32,
        /// Seconds until the kernel times a request out; zero is never.
        request_timeout: u16,
        /// Always zero.
        unused: [u16; 11],
    }
    /// The caller of a request does not wait for it any more.
    InterruptIn {
        /// The number of that request.
        unique: u64,
    }
    /// Begins an extension of a request.
    ExtensionHeader {
        /// Length of the extension with this header in bytes.
        size: u32,
        /// The kind of the extension: see [`EXTENSION_GROUPS`](super::EXTENSION_GROUPS).
        kind: u32,
    }
    /// Tells the kernel to forget attributes, and data from `offset` on.
    InvalidateInode {
        /// The inode.
        inode: u64,
        /// First byte; negative keeps the data.
        offset: i64,
        /// How many bytes; zero is all.
        length: i64,
    }
    /// Tells the kernel to forget a name; the name and a zero byte follow.
    InvalidateEntry {
        /// The folder.
        parent: u64,
        /// Length of the name in bytes.
        name_length: u32,
        /// 1: the name expires, but open users keep it.
        flags: u32,
    }
    /// Tells the kernel that a name was removed; the name and a zero byte follow.
    Deleted {
        /// The folder.
        parent: u64,
        /// The inode that had the name.
        child: u64,
        /// Length of the name in bytes.
        name_length: u32,
        /// Always zero.
        padding: u32,
    }
}
