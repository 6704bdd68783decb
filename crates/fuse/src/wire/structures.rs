//! The structures, in the order of the kernel's header file.

use super::Wire;

/// Declares structures with the kernel's fields in the kernel's order.
macro_rules! structures {
    ($($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$field_about])* pub $field: $type,)* }

        impl Wire for $name {
            const SIZE: usize = 0 $(+ <$type as Wire>::SIZE)*;

            #[inline]
            fn take(bytes: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: <$type as Wire>::take(bytes)?,)* })
            }

            #[inline]
            fn put(&self, bytes: &mut Vec<u8>) {
                $(self.$field.put(bytes);)*
            }
        }
    )*};
}

structures! {
    /// What every request begins with.
    InHeader {
        /// Length of the whole request in bytes.
        length: u32,
        /// Which operation: see [`opcode`](super::opcode).
        opcode: u32,
        /// The request's number; its answer carries it back.
        unique: u64,
        /// The inode that it is about.
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
    /// What every answer and notification begins with.
    OutHeader {
        /// Length of the whole answer in bytes.
        length: u32,
        /// Zero or a negative errno; in a notification its code.
        error: i32,
        /// The request's number; zero in a notification.
        unique: u64,
    }
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
        /// Bits of [`attribute_flag`].
        flags: u32,
    }
    /// An inode, and how long its name and attributes hold.
    EntryOut {
        /// The kernel's number for the inode; zero says that the name does not exist.
        inode: u64,
        /// Tells inodes apart that get the same number one after the other.
        generation: u64,
        /// How long the name holds, seconds.
        entry_timeout: u64,
        /// How long the attributes hold, seconds.
        attribute_timeout: u64,
        /// How long the name holds, nanoseconds.
        entry_timeout_nanoseconds: u32,
        /// How long the attributes hold, nanoseconds.
        attribute_timeout_nanoseconds: u32,
        /// The attributes.
        attributes: Attributes,
    }
    /// Attributes, and how long they hold.
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
        /// Which fields are filled.
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
        /// Bits of [`getattr_flag`].
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
    /// Answers [`StatxIn`].
    StatxOut {
        /// How long the attributes hold, seconds.
        timeout: u64,
        /// How long the attributes hold, nanoseconds.
        timeout_nanoseconds: u32,
        /// Bits of [`attribute_flag`].
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
        /// Bits of [`getattr_flag`].
        flags: u32,
        /// Always zero.
        padding: u32,
        /// The open file, if the flags say so.
        handle: u64,
    }
    /// Changes attributes.
    SetAttrIn {
        /// Which fields count: bits of [`setattr_flag`].
        valid: u32,
        /// Always zero.
        padding: u32,
        /// The open file.
        handle: u64,
        /// The new size.
        size: u64,
        /// Who holds locks.
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
    /// Opens a file or a folder.
    OpenIn {
        /// `O_*` flags.
        flags: u32,
        /// Bits of [`open_in_flag`].
        open_flags: u32,
    }
    /// Makes a file and opens it.
    CreateIn {
        /// `O_*` flags.
        flags: u32,
        /// Type and permissions.
        mode: u32,
        /// The caller's umask.
        umask: u32,
        /// Bits of [`open_in_flag`].
        open_flags: u32,
    }
    /// Answers an open.
    OpenOut {
        /// Comes back with every operation on the open file.
        handle: u64,
        /// Bits of [`open_flag`].
        flags: u32,
        /// The backing id, if the flags say passthrough.
        backing_id: i32,
    }
    /// An open file is closed for the last time.
    ReleaseIn {
        /// The open file.
        handle: u64,
        /// `O_*` flags.
        flags: u32,
        /// Bits of [`release_flag`].
        release_flags: u32,
        /// Who held locks.
        lock_owner: u64,
    }
    /// One descriptor of an open file is closed.
    FlushIn {
        /// The open file.
        handle: u64,
        /// Always zero.
        unused: u32,
        /// Always zero.
        padding: u32,
        /// Whose locks end.
        lock_owner: u64,
    }
    /// Reads a file or a folder.
    ReadIn {
        /// The open file.
        handle: u64,
        /// Where to start, bytes (of a folder: the cookie of the entry before).
        offset: u64,
        /// How many bytes at most.
        size: u32,
        /// Whether the lock owner counts.
        read_flags: u32,
        /// Who holds locks.
        lock_owner: u64,
        /// `O_*` flags of the open file.
        flags: u32,
        /// Always zero.
        padding: u32,
    }
    /// Writes to a file.
    WriteIn {
        /// The open file.
        handle: u64,
        /// Where to start, bytes.
        offset: u64,
        /// How many bytes.
        size: u32,
        /// Bits of [`write_flag`].
        write_flags: u32,
        /// Who holds locks.
        lock_owner: u64,
        /// `O_*` flags of the open file.
        flags: u32,
        /// Always zero.
        padding: u32,
    }
    /// Answers a write.
    WriteOut {
        /// Bytes written.
        size: u32,
        /// Always zero.
        padding: u32,
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
    /// Writes a file's data to its disk.
    FSyncIn {
        /// The open file.
        handle: u64,
        /// 1: the data only.
        flags: u32,
        /// Always zero.
        padding: u32,
    }
    /// Sets an extended attribute.
    SetXattrIn {
        /// Length of the value in bytes.
        size: u32,
        /// `XATTR_*` flags.
        flags: u32,
        /// Bits of [`setxattr_flag`].
        setxattr_flags: u32,
        /// Always zero.
        padding: u32,
    }
    /// Reads or lists extended attributes.
    GetXattrIn {
        /// Room for the answer in bytes; zero asks for the length only.
        size: u32,
        /// Always zero.
        padding: u32,
    }
    /// Answers with a length only.
    GetXattrOut {
        /// Length in bytes.
        size: u32,
        /// Always zero.
        padding: u32,
    }
    /// A lock on a part of a file.
    FileLock {
        /// First byte.
        start: u64,
        /// Last byte; `i64::MAX` is the end of the file.
        end: u64,
        /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
        kind: u32,
        /// Process that holds it.
        pid: u32,
    }
    /// Asks for or sets a lock.
    LockIn {
        /// The open file.
        handle: u64,
        /// Who asks.
        owner: u64,
        /// The lock.
        lock: FileLock,
        /// Bits of [`lock_flag`].
        flags: u32,
        /// Always zero.
        padding: u32,
    }
    /// Answers which lock is in the way.
    LockOut {
        /// The lock.
        lock: FileLock,
    }
    /// Asks whether an access is allowed.
    AccessIn {
        /// `R_OK`, `W_OK`, `X_OK`.
        mask: u32,
        /// Always zero.
        padding: u32,
    }
    /// The kernel's offer.
    InitIn {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
        /// Most bytes that it reads ahead.
        max_readahead: u32,
        /// Low half of the features.
        flags: u32,
    }
    /// What is agreed on.
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
        /// Background requests from which on the kernel holds back.
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
        /// How many stacked file systems may lie below.
        max_stack_depth: u32,
        /// Seconds after which the kernel gives a request up; zero is never.
        request_timeout: u16,
        /// Always zero.
        unused: [u16; 11],
    }
    /// A request is no longer wanted.
    InterruptIn {
        /// Its number.
        unique: u64,
    }
    /// Allocates or frees space.
    FAllocateIn {
        /// The open file.
        handle: u64,
        /// First byte.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// `FALLOC_FL_*` flags.
        mode: u32,
        /// Always zero.
        padding: u32,
    }
    /// Looks for data or a hole.
    LSeekIn {
        /// The open file.
        handle: u64,
        /// Where to start.
        offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32,
        /// Always zero.
        padding: u32,
    }
    /// Answers [`LSeekIn`].
    LSeekOut {
        /// Where it is.
        offset: u64,
    }
    /// Copies between open files.
    CopyFileRangeIn {
        /// The open file that is read.
        handle: u64,
        /// Where reading starts.
        offset: u64,
        /// The inode that is written.
        target: u64,
        /// The open file that is written.
        target_handle: u64,
        /// Where writing starts.
        target_offset: u64,
        /// How many bytes.
        length: u64,
        /// Always zero.
        flags: u64,
    }
    /// Answers a copy of any length.
    CopyFileRangeOut {
        /// Bytes copied.
        copied: u64,
    }
    /// One name in a folder; the name follows, padded to 8 bytes.
    DirEntry {
        /// Inode number that users see.
        number: u64,
        /// Cookie from which the next read goes on.
        offset: u64,
        /// Length of the name in bytes.
        name_length: u32,
        /// Type: `mode >> 12`.
        kind: u32,
    }
    /// Begins an extension of a request.
    ExtensionHeader {
        /// Length of the extension with this header in bytes.
        size: u32,
        /// What it is: see [`EXTENSION_GROUPS`].
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
