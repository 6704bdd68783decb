//! Numbers and flags, a module for each field.

macro_rules! constants {
    (
        $($(#[$about:meta])* $module:ident: $type:ty {
            $($(#[$constant_about:meta])* $name:ident = $value:expr,)*
        })*
    ) => {$(
        $(#[$about])*
        pub mod $module { $($(#[$constant_about])* pub const $name: $type = $value;)* }
    )*};
}

constants! {
    /// Numbers of the operations.
    #[expect(missing_docs, reason = "the kernel's own names")]
    opcode: u32 {
        LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8,
        MKDIR = 9, UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15,
        WRITE = 16, STATFS = 17, RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22,
        LISTXATTR = 23, REMOVEXATTR = 24, FLUSH = 25, INIT = 26, OPENDIR = 27, READDIR = 28,
        RELEASEDIR = 29, FSYNCDIR = 30, GETLK = 31, SETLK = 32, SETLKW = 33, ACCESS = 34,
        CREATE = 35, INTERRUPT = 36, BMAP = 37, DESTROY = 38, IOCTL = 39, POLL = 40,
        NOTIFY_REPLY = 41, BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44, RENAME2 = 45,
        LSEEK = 46, COPY_FILE_RANGE = 47, SETUPMAPPING = 48, REMOVEMAPPING = 49, SYNCFS = 50,
        TMPFILE = 51, STATX = 52, COPY_FILE_RANGE_64 = 53,
    }
    /// Codes of notifications.
    notify: i32 {
        /// Forget attributes and data of an inode.
        INVALIDATE_INODE = 2,
        /// Forget a name.
        INVALIDATE_ENTRY = 3,
        /// A name was removed.
        DELETE = 6,
        /// Send again the requests that were read and have no reply.
        RESEND = 7,
        /// Forget all names.
        INCREMENT_EPOCH = 8,
    }
    /// Flags of the reply to an open.
    open_flag: u32 {
        /// Every read and write comes as a request.
        DIRECT_IO = 1 << 0,
        /// The kernel's cached data stays valid.
        KEEP_CACHE = 1 << 1,
        /// The kernel may cache the folder's names.
        CACHE_DIR = 1 << 3,
        /// No request when a descriptor is closed.
        NO_FLUSH = 1 << 5,
        /// Direct writes may run at the same time.
        PARALLEL_DIRECT_WRITES = 1 << 6,
        /// The kernel moves data to and from the backing file.
        PASSTHROUGH = 1 << 7,
    }
    /// Flags of an `ioctl`. The kernel's other flags mark calls of 32-bit programs.
    ioctl_flag: u32 {
        /// The inode is a folder.
        FOLDER = 1 << 4,
    }
    /// Flags of an open.
    open_in_flag: u32 {
        /// Clear setuid and setgid.
        KILL_PRIVILEGES = 1 << 0,
    }
    /// Which fields of [`SetAttrIn`](super::SetAttrIn) count.
    setattr_flag: u32 {
        /// `mode`.
        MODE = 1 << 0,
        /// `uid`.
        UID = 1 << 1,
        /// `gid`.
        GID = 1 << 2,
        /// `size`.
        SIZE = 1 << 3,
        /// `atime`.
        ATIME = 1 << 4,
        /// `mtime`.
        MTIME = 1 << 5,
        /// `handle`.
        HANDLE = 1 << 6,
        /// `atime` is now.
        ATIME_NOW = 1 << 7,
        /// `mtime` is now.
        MTIME_NOW = 1 << 8,
        /// Clear setuid and setgid.
        KILL_PRIVILEGES = 1 << 11,
    }
    /// Flags of a request for attributes.
    getattr_flag: u32 {
        /// The field with the handle is valid.
        HANDLE = 1 << 0,
    }
    /// Flags of attributes.
    attribute_flag: u32 {
        /// The folder is the root of another file system.
        SUBMOUNT = 1 << 0,
    }
    /// Flags of a write.
    write_flag: u32 {
        /// The data comes from the page cache, so the handle may be any handle of the file.
        CACHE = 1 << 0,
        /// Clear setuid and setgid.
        KILL_PRIVILEGES = 1 << 2,
    }
    /// Flags of a release.
    release_flag: u32 {
        /// The `flock` of the open file ends.
        FLOCK_UNLOCK = 1 << 1,
    }
    /// Flags of a lock.
    lock_flag: u32 {
        /// The lock is a `flock`, which covers the whole file.
        FLOCK = 1 << 0,
    }
    /// Flags of setting an extended attribute.
    setxattr_flag: u32 {
        /// Clear setgid.
        ACL_KILL_SGID = 1 << 0,
    }
    /// Features that kernel and daemon negotiate.
    feature: u64 {
        /// Reads may overtake each other.
        ASYNC_READ = 1 << 0,
        /// POSIX locks come as requests.
        POSIX_LOCKS = 1 << 1,
        /// The daemon truncates a file that is opened with `O_TRUNC`.
        ATOMIC_O_TRUNC = 1 << 3,
        /// The kernel may send writes of more than 4 KiB.
        BIG_WRITES = 1 << 5,
        /// The kernel does not apply the umask before it sends a request.
        DONT_MASK = 1 << 6,
        /// `flock` comes as a request.
        FLOCK_LOCKS = 1 << 10,
        /// The kernel drops cached data when the modification time changes.
        AUTO_INVAL_DATA = 1 << 12,
        /// The kernel may ask for listings with attributes (READDIRPLUS).
        DO_READDIRPLUS = 1 << 13,
        /// The kernel asks for listings with attributes only where it expects to use the attributes.
        READDIRPLUS_AUTO = 1 << 14,
        /// Direct reads and writes may overtake each other.
        ASYNC_DIO = 1 << 15,
        /// If the daemon replies ENOSYS to an OPEN, the kernel sends no more OPENs.
        NO_OPEN_SUPPORT = 1 << 17,
        /// The kernel may send look-ups and listings of one folder at the same time.
        PARALLEL_DIROPS = 1 << 18,
        /// Access lists are checked by the kernel.
        POSIX_ACL = 1 << 20,
        /// The field `max_pages` is valid.
        MAX_PAGES = 1 << 22,
        /// The kernel caches targets of symbolic links.
        CACHE_SYMLINKS = 1 << 23,
        /// If the daemon replies ENOSYS to an OPENDIR, the kernel sends no more OPENDIRs.
        NO_OPENDIR_SUPPORT = 1 << 24,
        /// The kernel drops cached data only when the daemon invalidates it.
        EXPLICIT_INVAL_DATA = 1 << 25,
        /// setuid and setgid are cleared by the daemon.
        HANDLE_KILLPRIV_V2 = 1 << 28,
        /// SETXATTR has its long argument.
        SETXATTR_EXT = 1 << 29,
        /// The field `flags2` is valid.
        INIT_EXT = 1 << 30,
        /// Requests that create a file carry the ID of the parent folder's group, if the caller is in that group.
        CREATE_SUPP_GROUP = 1 << 34,
        /// Names can expire.
        HAS_EXPIRE_ONLY = 1 << 35,
        /// Files with direct I/O can be mapped as shared memory.
        DIRECT_IO_ALLOW_MMAP = 1 << 36,
        /// The kernel can move data to and from backing files.
        PASSTHROUGH = 1 << 37,
        /// Requests can be sent again to another daemon.
        HAS_RESEND = 1 << 39,
        /// Requests over io_uring.
        OVER_IO_URING = 1 << 41,
    }
}

/// An extension that holds supplementary groups of the caller.
pub const EXTENSION_GROUPS: u32 = 32;

/// Set in a request's number when it is sent a second time.
pub const UNIQUE_RESEND: u64 = 1 << 63;
