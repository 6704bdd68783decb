//! Structures about the attributes of inodes.

use super::{Wire, structures};

structures! {
    /// Attributes of an inode. Times are seconds since 1970.
    Attributes {
        /// Inode number that users see.
        number: u64,
        /// Size in bytes.
        size: u64,
        /// Allocated blocks of 512 bytes.
        blocks: u64,
        /// Last access.
        atime: u64,
        /// Last change of the data.
        mtime: u64,
        /// Last change of the inode.
        ctime: u64,
        /// Nanoseconds of the last access.
        atime_nanoseconds: u32,
        /// Nanoseconds of the last change of the data.
        mtime_nanoseconds: u32,
        /// Nanoseconds of the last change of the inode.
        ctime_nanoseconds: u32,
        /// Type and permissions.
        mode: u32,
        /// Number of hard links.
        links: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number of a device node.
        device: u32,
        /// Preferred size of reads and writes in bytes.
        block_size: u32,
        /// Bits of [`attribute_flag`](super::attribute_flag).
        flags: u32,
    }
    /// An inode, and how long the kernel may cache its name and attributes.
    EntryOut {
        /// The kernel's number for the inode; zero says that the name does not exist.
        inode: u64,
        /// Distinguishes inodes that have the same number one after the other.
        generation: u64,
        /// How long the name may be cached, seconds.
        entry_timeout: u64,
        /// How long the attributes may be cached, seconds.
        attribute_timeout: u64,
        /// How long the name may be cached, nanoseconds.
        entry_timeout_nanoseconds: u32,
        /// How long the attributes may be cached, nanoseconds.
        attribute_timeout_nanoseconds: u32,
        /// The attributes.
        attributes: Attributes,
    }
    /// Attributes, and how long the kernel may cache them.
    AttributesOut {
        /// Seconds.
        timeout: u64,
        /// Nanoseconds.
        timeout_nanoseconds: u32,
        /// Always zero.
        padding: u32,
        /// The attributes.
        attributes: Attributes,
    }
    /// A time as `statx` gives it.
    ExtendedTime {
        /// Seconds since 1970.
        seconds: i64,
        /// Nanoseconds.
        nanoseconds: u32,
        /// Always zero.
        padding: i32,
    }
    /// Attributes as `statx` gives them.
    ExtendedAttributes {
        /// Which fields are set.
        mask: u32,
        /// Preferred size of reads and writes in bytes.
        block_size: u32,
        /// File attributes such as "immutable".
        attributes: u64,
        /// Number of hard links.
        links: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Type and permissions.
        mode: u16,
        /// Always zero.
        spare0: u16,
        /// Inode number that users see.
        number: u64,
        /// Size in bytes.
        size: u64,
        /// Allocated blocks of 512 bytes.
        blocks: u64,
        /// Which file attributes are known.
        attributes_mask: u64,
        /// Last access.
        atime: ExtendedTime,
        /// Birth.
        btime: ExtendedTime,
        /// Last change of the inode.
        ctime: ExtendedTime,
        /// Last change of the data.
        mtime: ExtendedTime,
        /// Major device number of a device node.
        device_major: u32,
        /// Minor device number of a device node.
        device_minor: u32,
        /// Major number of the file system's device.
        system_major: u32,
        /// Minor number of the file system's device.
        system_minor: u32,
        /// Always zero.
        spare2: [u64; 14],
    }
    /// Asks for attributes as `statx` gives them.
    StatxIn {
        /// Bits of [`getattr_flag`](super::getattr_flag).
        flags: u32,
        /// Always zero.
        reserved: u32,
        /// The open file, if the flags say so.
        handle: u64,
        /// `AT_*` flags of the call.
        call_flags: u32,
        /// Which fields are asked for.
        mask: u32,
    }
    /// The reply to [`StatxIn`].
    StatxOut {
        /// How long the attributes may be cached, seconds.
        timeout: u64,
        /// How long the attributes may be cached, nanoseconds.
        timeout_nanoseconds: u32,
        /// Bits of [`attribute_flag`](super::attribute_flag).
        flags: u32,
        /// Always zero.
        spare: [u64; 2],
        /// The attributes.
        attributes: ExtendedAttributes,
    }
    /// Takes back lookups of one inode.
    ForgetIn {
        /// How many.
        lookups: u64,
    }
    /// One of many inodes that are forgotten at once.
    ForgetOne {
        /// The inode.
        inode: u64,
        /// How many lookups of it are taken back.
        lookups: u64,
    }
    /// Begins a batch of [`ForgetOne`].
    BatchForgetIn {
        /// How many follow.
        count: u32,
        /// Always zero.
        padding: u32,
    }
    /// Asks for attributes.
    GetAttrIn {
        /// Bits of [`getattr_flag`](super::getattr_flag).
        flags: u32,
        /// Always zero.
        padding: u32,
        /// The open file, if the flags say so.
        handle: u64,
    }
    /// Changes attributes.
    SetAttrIn {
        /// Which fields count: bits of [`setattr_flag`](super::setattr_flag).
        valid: u32,
        /// Always zero.
        padding: u32,
        /// The open file.
        handle: u64,
        /// The new size.
        size: u64,
        /// The owner of locks.
        lock_owner: u64,
        /// The new access time, seconds.
        atime: u64,
        /// The new modification time, seconds.
        mtime: u64,
        /// The new change time, seconds.
        ctime: u64,
        /// The new access time, nanoseconds.
        atime_nanoseconds: u32,
        /// The new modification time, nanoseconds.
        mtime_nanoseconds: u32,
        /// The new change time, nanoseconds.
        ctime_nanoseconds: u32,
        /// The new permissions.
        mode: u32,
        /// Always zero.
        unused4: u32,
        /// The new owner.
        uid: u32,
        /// The new group.
        gid: u32,
        /// Always zero.
        unused5: u32,
    }
    /// Space of a file system.
    StatFsOut {
        /// Blocks of `fragment_size` bytes.
        blocks: u64,
        /// Free blocks.
        free: u64,
        /// Free blocks for ordinary users.
        available: u64,
        /// Inodes.
        files: u64,
        /// Free inodes.
        files_free: u64,
        /// Preferred size of reads and writes in bytes.
        block_size: u32,
        /// Longest name in bytes.
        name_length: u32,
        /// Size of a block in bytes.
        fragment_size: u32,
        /// Always zero.
        padding: u32,
        /// Always zero.
        spare: [u32; 6],
    }
    /// Sets an extended attribute.
    SetXattrIn {
        /// Length of the value in bytes.
        size: u32,
        /// `XATTR_*` flags.
        flags: u32,
        /// Bits of [`setxattr_flag`](super::setxattr_flag).
        setxattr_flags: u32,
        /// Always zero.
        padding: u32,
    }
    /// Reads or lists extended attributes.
    GetXattrIn {
        /// Room for the reply in bytes; zero asks for the length only.
        size: u32,
        /// Always zero.
        padding: u32,
    }
    /// A reply that is a length only.
    GetXattrOut {
        /// Length in bytes.
        size: u32,
        /// Always zero.
        padding: u32,
    }
    /// Asks whether an access is allowed.
    AccessIn {
        /// `R_OK`, `W_OK`, `X_OK`.
        mask: u32,
        /// Always zero.
        padding: u32,
    }
}
