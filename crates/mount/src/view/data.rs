//! Reads and writes that go through the daemon.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{self, FallocateFlags, OFlags, SeekFrom, Statx};
use rustix::io::{self, Errno, ReadWriteFlags};
use thruway_fuse::wire::{
    CopyFileRangeIn, CopyFileRangeOut, FAllocateIn, LSeekIn, LSeekOut, ReadIn, WriteIn, WriteOut,
    write_flag,
};
use thruway_fuse::{Caller, Operation, Request};

use super::context::Context;
use super::room::with_room;
use super::stat::stat_fd;
use super::state::View;
use crate::actor::Actor;
use crate::inodes::InodeId;

/// The value of `SEEK_HOLE`; any other value of `whence` is `SEEK_DATA`.
const SEEK_HOLE: u32 = 4;

/// The maximum size in bytes of a copy that the reader performs itself. Such a copy takes as long as handing the
/// request to another thread.
const COPIED_AT_ONCE_MAX: u64 = 128 * 1024;

pub(super) fn read(cx: &mut Context<'_>, with: &ReadIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let keeps_atime = OFlags::from_bits_retain(with.flags).contains(OFlags::NOATIME);
    let file = view.files.reader(id, keeps_atime)?;
    cx.reply.fill(with.size as usize, |room| io::pread(&file, room, with.offset))
}

pub(super) fn write(cx: &mut Context<'_>, with: &WriteIn, data: &[u8]) -> Result<(), Errno> {
    let view = cx.view;
    let actor = &*cx.actor;
    let request = cx.request;
    let id = InodeId(request.inode);
    let kills = with.write_flags & write_flag::KILL_PRIVILEGES != 0;
    let mut written = 0;
    // A source that is almost full takes a part of the data.
    while written < data.len() {
        let (rest, offset) = (&data[written..], with.offset + written as u64);
        let more = with_room(view, id, rest.len() as u64, || {
            let file = view.files.writer(id)?;
            change_data(actor, &request.caller, kills, &file, || {
                io::pwritev2(&file, &[IoSlice::new(rest)], offset, write_flags(with))
            })
        });
        match more {
            Ok(more) => written += more,
            Err(_) if written > 0 => break,
            Err(errno) => return Err(errno),
        }
        if !view.behaviour.moves_when_full {
            break;
        }
    }
    let size = u32::try_from(written).map_err(|_| Errno::IO)?;
    cx.reply.put(&WriteOut { size, padding: 0 });
    Ok(())
}

pub(super) fn fsync(cx: &mut Context<'_>, data_only: bool) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let file = view.files.open_for_reading(id)?;
    if data_only { fs::fdatasync(file) } else { fs::fsync(file) }
}

pub(super) fn fallocate(cx: &mut Context<'_>, with: &FAllocateIn) -> Result<(), Errno> {
    let view = cx.view;
    let actor = &*cx.actor;
    let request = cx.request;
    let id = InodeId(request.inode);
    view.moves.give_up(id);
    let mode = FallocateFlags::from_bits_retain(with.mode);
    with_room(view, id, with.length, || {
        let file = view.files.open_for_writing(id)?;
        change_data(actor, &request.caller, request.caller.uid != 0, &file, || {
            fs::fallocate(&file, mode, with.offset, with.length)
        })
    })
}

pub(super) fn lseek(cx: &mut Context<'_>, with: &LSeekIn) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let file = view.files.open_for_reading(id)?;
    let from = match with.whence {
        SEEK_HOLE => SeekFrom::Hole(with.offset),
        _ => SeekFrom::Data(with.offset),
    };
    cx.reply.put(&LSeekOut { offset: fs::seek(file, from)? });
    Ok(())
}

/// Whether the request copies more than the reader should copy itself.
pub(super) fn copies_much(view: &View, request: &Request<'_>) -> bool {
    let Operation::CopyFileRange { with, .. } = request.operation else { return false };
    let size = |fd: Arc<OwnedFd>| stat_fd(&*fd).map_or(0, |stat| stat.stx_size);
    let size = view.files.path_fd(InodeId(request.inode)).map_or(0, size);
    with.length.min(size.saturating_sub(with.offset)) > COPIED_AT_ONCE_MAX
}

pub(super) fn copy_file_range(
    cx: &mut Context<'_>,
    with: &CopyFileRangeIn,
    long: bool,
) -> Result<(), Errno> {
    let view = cx.view;
    let actor = &*cx.actor;
    let request = cx.request;
    let source = view.files.open_for_reading(InodeId(request.inode))?;
    let id = InodeId(with.target);
    view.moves.give_up(id);
    let (mut from, mut to) = (with.offset, with.target_offset);
    // The short form of the reply has 32 bits.
    let most = if long { i64::MAX.cast_unsigned() } else { u64::from(u32::MAX) };
    let length = usize::try_from(with.length.min(most)).map_err(|_| Errno::INVAL)?;
    let copied = with_room(view, id, with.length, || {
        let target = view.files.open_for_writing(id)?;
        change_data(actor, &request.caller, request.caller.uid != 0, &target, || {
            fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), length)
        })
    })?;
    if long {
        cx.reply.put(&CopyFileRangeOut { copied: copied as u64 });
    } else {
        cx.reply.put(&WriteOut { size: u32::try_from(copied).unwrap_or(u32::MAX), padding: 0 });
    }
    Ok(())
}

/// Runs `change`, which changes a file's data. With `kills`, setuid and setgid are cleared as by a change of the
/// caller; otherwise they stay.
pub(super) fn change_data<T>(
    actor: &Actor,
    caller: &Caller,
    kills: bool,
    file: &OwnedFd,
    mut change: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let stat = stat_fd(file)?;
    match kills {
        true if is_setgid_for_locks(&stat) => actor.in_groups_of(caller, change),
        false if is_setid(&stat) => actor.keeping_setid(change),
        _ => change(),
    }
}

pub(super) fn is_setid(stat: &Statx) -> bool {
    stat.stx_mode & 0o6000 != 0
}

/// Whether the file has setgid without group execution, formerly the mark of mandatory locks. Members of the group may
/// write to the file without clearing the bit.
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
