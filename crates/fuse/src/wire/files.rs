//! Structures about open files.

use super::{Wire, structures};

structures! {
    /// Opens a file or a folder.
    OpenIn {
        /// `O_*` flags.
        flags: u32,
        /// Bits of [`open_in_flag`](super::open_in_flag).
        open_flags: u32,
    }
    /// The reply to an open.
    OpenOut {
        /// Comes back with every operation on the open file.
        handle: u64,
        /// Bits of [`open_flag`](super::open_flag).
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
        /// Bits of [`release_flag`](super::release_flag).
        release_flags: u32,
        /// The owner of locks.
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
        /// The owner whose locks end.
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
        /// Whether the field `lock_owner` is valid.
        read_flags: u32,
        /// The owner of locks.
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
        /// Bits of [`write_flag`](super::write_flag).
        write_flags: u32,
        /// The owner of locks.
        lock_owner: u64,
        /// `O_*` flags of the open file.
        flags: u32,
        /// Always zero.
        padding: u32,
    }
    /// The reply to a write.
    WriteOut {
        /// Bytes written.
        size: u32,
        /// Always zero.
        padding: u32,
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
        /// The owner of the lock.
        owner: u64,
        /// The lock.
        lock: FileLock,
        /// Bits of [`lock_flag`](super::lock_flag).
        flags: u32,
        /// Always zero.
        padding: u32,
    }
    /// The lock that conflicts.
    LockOut {
        /// The lock.
        lock: FileLock,
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
    /// An operation of `ioctl(2)`.
    IoctlIn {
        /// The open file.
        handle: u64,
        /// Bits of [`ioctl_flag`](super::ioctl_flag).
        flags: u32,
        /// The number of the operation.
        command: u32,
        /// The caller's argument.
        argument: u64,
        /// How many bytes follow.
        input_size: u32,
        /// How many bytes follow the reply's structure.
        output_size: u32,
    }
    /// The result of `ioctl(2)`.
    IoctlOut {
        /// The result of the call, or a negative errno.
        result: i32,
        /// Whether to ask again with other memory; zero for no.
        flags: u32,
        /// Always zero.
        input_pieces: u32,
        /// Always zero.
        output_pieces: u32,
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
    /// The reply to [`LSeekIn`].
    LSeekOut {
        /// Where the data or hole begins.
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
    /// The reply to a copy of any length.
    CopyFileRangeOut {
        /// Bytes copied.
        copied: u64,
    }
}
