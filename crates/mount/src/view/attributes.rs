//! Attributes of inodes.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, Gid, Mode, Statx, StatxTimestamp, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use thruway_fuse::wire::{
    Attributes, AttributesOut, ExtendedAttributes, ExtendedTime, SetAttrIn, StatxOut, setattr_flag,
};

use super::context::Context;
use super::copy_up::fds_to_change;
use super::data::change_data;
use super::several_sources;
use super::stat::{FILE_TYPE, LINK, is_folder, shown_number, stat_fd};
use super::timeouts::ChangedBy;
use thruway_fuse::{Caller, Reply, Request};

use super::state::View;
use crate::actor::Actor;
use crate::inodes::InodeId;
use crate::owners::{Owners, Ownership};
use crate::proc_path::ProcPath;
use crate::volumes::VolumeInfo;

/// Special values of nanoseconds for `utimensat`.
const NOW: i64 = 0x3fff_ffff;
const OMIT: i64 = 0x3fff_fffe;

pub(super) fn getattr(cx: &mut Context<'_>) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let stat = stat_fd(view.folders.path_fd(id)?)?;
    put_attributes(view, id, stat, ChangedBy::Unknown, cx.reply)
}

pub(super) fn statx(cx: &mut Context<'_>) -> Result<(), Errno> {
    let id = cx.inode();
    let view = cx.view;
    let mut stat = stat_fd(view.folders.path_fd(id)?)?;
    let volume = view.files.volumes.known(&stat).ok_or(Errno::STALE)?;
    let is_watched = complete(view, id, &mut stat) && view.folders.is_parent_watched(id);
    let timeout = view.timeouts.timeouts(id, is_watched, &stat, ChangedBy::Unknown).attributes;
    cx.reply.put(&StatxOut {
        timeout: timeout.as_secs(),
        timeout_nanoseconds: timeout.subsec_nanos(),
        flags: 0,
        spare: [0; 2],
        attributes: extended_attributes(view, volume, &stat),
    });
    Ok(())
}

pub(super) fn setattr(cx: &mut Context<'_>, with: &SetAttrIn) -> Result<(), Errno> {
    let view = cx.view;
    let actor = &*cx.actor;
    let request = cx.request;
    let id = InodeId(request.inode);
    let _kept = view.keep_file(id)?;
    let size = (with.valid & setattr_flag::SIZE != 0).then_some(with.size);
    let fds = fds_to_change(view, id, size)?;
    if fds.len() > 1 {
        several_sources::check_attributes(&fds, is_touch(with))?;
    }
    let before: Vec<_> = fds.iter().map(stat_fd).collect::<Result<_, _>>()?;
    let translated = match (&view.behaviour.owners, before.first()) {
        (Some(owners), Some(shown)) => in_source(owners, &request.caller, with, shown)?,
        _ => *with,
    };
    let with = &translated;
    // The first source comes last, since its attributes are shown.
    for (index, fd) in fds.iter().enumerate().rev() {
        if let Err(errno) = set_attributes_at(view, actor, request, with, fd) {
            let done = fds.iter().zip(&before).skip(index + 1);
            done.for_each(|(fd, before)| several_sources::restore_attributes(fd, before));
            return Err(errno);
        }
    }
    let stat = stat_fd(view.folders.path_fd(id)?)?;
    put_attributes(view, id, stat, ChangedBy::Us, cx.reply)
}

fn set_attributes_at(
    view: &View,
    actor: &Actor,
    request: &Request<'_>,
    with: &SetAttrIn,
    fd: &OwnedFd,
) -> Result<(), Errno> {
    let is = |flag| with.valid & flag != 0;
    // A request without any field is chown(-1, -1), which clears setuid and setgid and updates the time of change.
    if is(setattr_flag::UID | setattr_flag::GID) || is_empty(with) {
        let uid = is(setattr_flag::UID).then(|| Uid::from_raw(with.uid));
        let gid = is(setattr_flag::GID).then(|| Gid::from_raw(with.gid));
        actor
            .writing_as(&request.caller, || fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH))?;
    }
    if is(setattr_flag::MODE) {
        // The kernel has removed the bits that this caller may not set.
        let mode = Mode::from_raw_mode(with.mode & 0o7777);
        let path = ProcPath::new(fd.as_fd());
        let change = || fs::chmodat(CWD, path.as_c_str(), mode, AtFlags::empty());
        if mode.contains(Mode::SGID) { actor.keeping_setid(change) } else { change() }?;
    }
    if is(setattr_flag::SIZE) {
        let kills = is(setattr_flag::KILL_PRIVILEGES);
        resize(view, actor, &request.caller, (InodeId(request.inode), with.size), kills)?;
    }
    if is(setattr_flag::ATIME | setattr_flag::MTIME) {
        fs::utimensat(fd, c"", &times(with), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// Changes the length of a file. `kills` says whether a change by this caller clears setuid and setgid.
pub(super) fn resize(
    view: &View,
    actor: &Actor,
    caller: &Caller,
    (id, size): (InodeId, u64),
    kills: bool,
) -> Result<(), Errno> {
    let file = view.files.open_for_writing(id)?;
    change_data(actor, caller, kills, &file, || fs::ftruncate(&file, size))
}

fn put_attributes(
    view: &View,
    id: InodeId,
    mut stat: Statx,
    changed_by: ChangedBy,
    reply: &mut Reply,
) -> Result<(), Errno> {
    let volume = view.files.volumes.known(&stat).ok_or(Errno::STALE)?;
    let is_watched = complete(view, id, &mut stat) && view.folders.is_parent_watched(id);
    let timeout = view.timeouts.timeouts(id, is_watched, &stat, changed_by).attributes;
    reply.put(&AttributesOut {
        timeout: timeout.as_secs(),
        timeout_nanoseconds: timeout.subsec_nanos(),
        padding: 0,
        attributes: attributes(view, volume, &stat),
    });
    Ok(())
}

/// Completes the attributes of a folder from its parts. Returns whether changes in the folder are reported to the
/// kernel. For other files, only the parent folder matters.
pub(super) fn complete(view: &View, id: InodeId, stat: &mut Statx) -> bool {
    !is_folder(stat) || view.folders.complete(id, stat)
}

pub(super) fn attributes(view: &View, volume: VolumeInfo, stat: &Statx) -> Attributes {
    let shown = shown_ownership(view, stat);
    Attributes {
        number: shown_number(volume, stat),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: stat.stx_atime.tv_sec.cast_unsigned(),
        mtime: stat.stx_mtime.tv_sec.cast_unsigned(),
        ctime: stat.stx_ctime.tv_sec.cast_unsigned(),
        atime_nanoseconds: stat.stx_atime.tv_nsec,
        mtime_nanoseconds: stat.stx_mtime.tv_nsec,
        ctime_nanoseconds: stat.stx_ctime.tv_nsec,
        mode: shown.mode,
        links: shown_links(view, stat),
        uid: shown.uid,
        gid: shown.gid,
        device: packed_device(stat.stx_rdev_major, stat.stx_rdev_minor),
        block_size: stat.stx_blksize,
        flags: 0,
    }
}

fn extended_attributes(view: &View, volume: VolumeInfo, stat: &Statx) -> ExtendedAttributes {
    let shown = shown_ownership(view, stat);
    ExtendedAttributes {
        mask: stat.stx_mask,
        block_size: stat.stx_blksize,
        attributes: stat.stx_attributes.bits(),
        links: shown_links(view, stat),
        uid: shown.uid,
        gid: shown.gid,
        mode: u16::try_from(shown.mode).unwrap_or(stat.stx_mode),
        spare0: 0,
        number: shown_number(volume, stat),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        attributes_mask: stat.stx_attributes_mask.bits(),
        atime: extended_time(&stat.stx_atime),
        btime: extended_time(&stat.stx_btime),
        ctime: extended_time(&stat.stx_ctime),
        mtime: extended_time(&stat.stx_mtime),
        device_major: stat.stx_rdev_major,
        device_minor: stat.stx_rdev_minor,
        system_major: stat.stx_dev_major,
        system_minor: stat.stx_dev_minor,
        spare2: [0; 14],
    }
}

fn shown_ownership(view: &View, stat: &Statx) -> Ownership {
    let (uid, gid, mode) = (stat.stx_uid, stat.stx_gid, u32::from(stat.stx_mode));
    let own = Ownership { uid, gid, mode };
    match &view.behaviour.owners {
        // The mode of a symbolic link has no meaning.
        Some(owners) if mode & FILE_TYPE == LINK => Ownership { mode, ..owners.shown(own, false) },
        Some(owners) => owners.shown(own, is_folder(stat)),
        None => own,
    }
}

/// Translates a change of the attributes that are shown into one of the source's. `stat` has those of the source that
/// is shown.
fn in_source(
    owners: &Owners,
    caller: &Caller,
    with: &SetAttrIn,
    stat: &Statx,
) -> Result<SetAttrIn, Errno> {
    let mut with = *with;
    if with.valid & setattr_flag::UID != 0 {
        with.uid = owners.changed_user(stat.stx_uid, with.uid)?;
    }
    if with.valid & setattr_flag::GID != 0 {
        with.gid = owners.changed_group(stat.stx_gid, with.gid)?;
    }
    if with.valid & setattr_flag::MODE != 0 {
        let (present, asked) = (u32::from(stat.stx_mode) & 0o7777, with.mode & 0o7777);
        with.mode = owners.changed_mode(caller, present, asked, is_folder(stat))?;
    }
    Ok(with)
}

/// Returns the number of links. For a merged folder, the number has no meaning and is 1, or 0 once the folder is
/// removed.
fn shown_links(view: &View, stat: &Statx) -> u32 {
    let is_merged = view.folders.branches().is_some() && is_folder(stat);
    if is_merged { stat.stx_nlink.min(1) } else { stat.stx_nlink }
}

fn extended_time(time: &StatxTimestamp) -> ExtendedTime {
    ExtendedTime { seconds: time.tv_sec, nanoseconds: time.tv_nsec, padding: 0 }
}

fn is_empty(with: &SetAttrIn) -> bool {
    let fields = setattr_flag::MODE
        | setattr_flag::UID
        | setattr_flag::GID
        | setattr_flag::SIZE
        | setattr_flag::ATIME
        | setattr_flag::MTIME;
    with.valid & fields == 0
}

/// Whether the request only sets times to the present.
fn is_touch(with: &SetAttrIn) -> bool {
    let present = setattr_flag::ATIME_NOW | setattr_flag::MTIME_NOW;
    let times = setattr_flag::ATIME | setattr_flag::MTIME;
    let others = setattr_flag::MODE | setattr_flag::UID | setattr_flag::GID | setattr_flag::SIZE;
    with.valid & present != 0
        && with.valid & others == 0
        && (with.valid & times).count_ones() == (with.valid & present).count_ones()
}

/// Packs a device number into the kernel's 32-bit form.
fn packed_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

fn times(with: &SetAttrIn) -> Timestamps {
    let time = |set: u32, now: u32, seconds: u64, nanoseconds: u32| match with.valid {
        valid if valid & now != 0 => Timespec { tv_sec: 0, tv_nsec: NOW },
        valid if valid & set != 0 => {
            Timespec { tv_sec: seconds.cast_signed(), tv_nsec: i64::from(nanoseconds) }
        }
        _ => Timespec { tv_sec: 0, tv_nsec: OMIT },
    };
    Timestamps {
        last_access: time(
            setattr_flag::ATIME,
            setattr_flag::ATIME_NOW,
            with.atime,
            with.atime_nanoseconds,
        ),
        last_modification: time(
            setattr_flag::MTIME,
            setattr_flag::MTIME_NOW,
            with.mtime,
            with.mtime_nanoseconds,
        ),
    }
}
