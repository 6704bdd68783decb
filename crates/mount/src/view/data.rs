//! Data that the kernel does not move by itself.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{self, FallocateFlags, OFlags, SeekFrom, Statx};
use rustix::io::{self, Errno, ReadWriteFlags};
use thruway_fuse::wire::{
    CopyFileRangeIn, CopyFileRangeOut, FAllocateIn, LSeekIn, LSeekOut, ReadIn, WriteIn, WriteOut,
    write_flag,
};
use thruway_fuse::{Answer, Caller, Operation, Request};

use super::View;
use super::lookup::stat_place;
use crate::actor::Actor;
use crate::inodes::InodeId;

/// `SEEK_HOLE`; the other one that is asked for is `SEEK_DATA`.
const SEEK_HOLE: u32 = 4;

/// A copy of this many bytes takes as long as it takes to hand the request to another thread.
const COPIED_AT_ONCE_MAX: u64 = 128 * 1024;

impl View {
    pub(super) fn read(
        &self,
        id: InodeId,
        with: &ReadIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let file = self.reader(id)?;
        answer.fill(with.size as usize, |room| io::pread(&file, room, with.offset))
    }

    pub(super) fn write(
        &self,
        actor: &Actor,
        request: &Request<'_>,
        (with, data): (&WriteIn, &[u8]),
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let file = self.writer(InodeId(request.inode))?;
        let kills = with.write_flags & write_flag::KILL_PRIVILEGES != 0;
        let written = change_data(actor, &request.caller, kills, &file, || {
            io::pwritev2(&file, &[IoSlice::new(data)], with.offset, write_flags(with))
        })?;
        let size = u32::try_from(written).map_err(|_| Errno::IO)?;
        answer.put(&WriteOut { size, padding: 0 });
        Ok(())
    }

    pub(super) fn sync(&self, id: InodeId, data_only: bool) -> Result<(), Errno> {
        let file = self.open_for_reading(id)?;
        if data_only { fs::fdatasync(file) } else { fs::fsync(file) }
    }

    pub(super) fn allocate(
        &self,
        actor: &Actor,
        request: &Request<'_>,
        with: &FAllocateIn,
    ) -> Result<(), Errno> {
        let file = self.open_for_writing(InodeId(request.inode))?;
        let mode = FallocateFlags::from_bits_retain(with.mode);
        change_data(actor, &request.caller, request.caller.uid != 0, &file, || {
            fs::fallocate(&file, mode, with.offset, with.length)
        })
    }

    pub(super) fn seek(
        &self,
        id: InodeId,
        with: &LSeekIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let file = self.open_for_reading(id)?;
        let from = match with.whence {
            SEEK_HOLE => SeekFrom::Hole(with.offset),
            _ => SeekFrom::Data(with.offset),
        };
        answer.put(&LSeekOut { offset: fs::seek(file, from)? });
        Ok(())
    }

    /// Whether it is a copy of more than is there at once.
    pub(super) fn copies_much(&self, request: &Request<'_>) -> bool {
        let Operation::CopyFileRange { with, .. } = request.operation else { return false };
        let size = |place: Arc<OwnedFd>| stat_place(&*place).map_or(0, |stat| stat.stx_size);
        let size = self.place(InodeId(request.inode)).map_or(0, size);
        with.length.min(size.saturating_sub(with.offset)) > COPIED_AT_ONCE_MAX
    }

    pub(super) fn copy(
        &self,
        actor: &Actor,
        request: &Request<'_>,
        with: &CopyFileRangeIn,
        long: bool,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let source = self.open_for_reading(InodeId(request.inode))?;
        let target = self.open_for_writing(InodeId(with.target))?;
        let (mut from, mut to) = (with.offset, with.target_offset);
        // The short form answers in 32 bits.
        let most = if long { i64::MAX.cast_unsigned() } else { u64::from(u32::MAX) };
        let length = usize::try_from(with.length.min(most)).map_err(|_| Errno::INVAL)?;
        let copied = change_data(actor, &request.caller, request.caller.uid != 0, &target, || {
            fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), length)
        })?;
        if long {
            answer.put(&CopyFileRangeOut { copied: copied as u64 });
        } else {
            answer.put(&WriteOut { size: u32::try_from(copied).unwrap_or(u32::MAX), padding: 0 });
        }
        Ok(())
    }

    /// The inode, open for reading for as long as it is used.
    fn reader(&self, id: InodeId) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(file) = self.readers.get(id) {
            return Ok(file);
        }
        let file = Arc::new(self.open_for_reading(id)?);
        self.readers.put(id, Arc::clone(&file));
        Ok(file)
    }

    /// The inode, open for writing for as long as it is used.
    fn writer(&self, id: InodeId) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(file) = self.writers.get(id) {
            return Ok(file);
        }
        let file = Arc::new(self.open_for_writing(id)?);
        self.writers.put(id, Arc::clone(&file));
        Ok(file)
    }

    pub(super) fn open_for_reading(&self, id: InodeId) -> Result<OwnedFd, Errno> {
        self.reopen(id, OFlags::RDONLY)
    }

    pub(super) fn open_for_writing(&self, id: InodeId) -> Result<OwnedFd, Errno> {
        self.reopen(id, OFlags::WRONLY)
    }

    pub(super) fn reopen(&self, id: InodeId, access: OFlags) -> Result<OwnedFd, Errno> {
        let inode = self.inodes.get(id)?;
        self.open_inode(&inode, access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::LARGEFILE)
    }
}

/// Runs `change`, which changes what is in a file. If it `kills`, setuid and setgid go as they would by the
/// caller's own change; else they stay.
pub(super) fn change_data<T>(
    actor: &Actor,
    caller: &Caller,
    kills: bool,
    file: &OwnedFd,
    mut change: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let stat = stat_place(file)?;
    match kills {
        true if is_setgid_for_locks(&stat) => actor.in_groups_of(caller, change),
        false if is_setid(&stat) => actor.keeping_setid(change),
        _ => change(),
    }
}

pub(super) fn is_setid(stat: &Statx) -> bool {
    stat.stx_mode & 0o6000 != 0
}

/// Setgid on a file that its group may not run, which once asked for mandatory locks: the members of the
/// group may write to it and leave it so.
pub(super) fn is_setgid_for_locks(stat: &Statx) -> bool {
    stat.stx_mode & 0o2010 == 0o2000
}

fn write_flags(with: &WriteIn) -> ReadWriteFlags {
    let flags = OFlags::from_bits_retain(with.flags);
    let mut write = ReadWriteFlags::empty();
    write.set(ReadWriteFlags::APPEND, flags.contains(OFlags::APPEND));
    write.set(ReadWriteFlags::DSYNC, flags.contains(OFlags::DSYNC));
    write.set(ReadWriteFlags::SYNC, flags.contains(OFlags::SYNC));
    write
}
