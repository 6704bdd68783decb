//! Flags of files (`lsattr`, `chattr`), the only operations of `ioctl` that are passed on.
//!
//! Before it sends a change, the kernel checks that the caller owns the file, and has the capability for the flags that
//! need one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, CWD, Mode, OFlags};
use rustix::io::Errno;
use thruway_fuse::Caller;
use thruway_fuse::wire::{IoctlIn, IoctlOut, ioctl_flag};
use thruway_sys::file_flags::{
    self, ExtendedFlags, GET_EXTENDED_FLAGS, GET_FLAGS, SET_EXTENDED_FLAGS, SET_FLAGS,
};

use super::context::Context;
use super::copy_up::fds_to_change;
use super::stat::stat_fd;
use crate::actor::errno;
use crate::proc_path::ProcPath;

/// A value of flags in either form.
#[derive(Debug, Clone, Copy)]
enum FlagValue {
    Plain(u32),
    Extended(ExtendedFlags),
}

impl FlagValue {
    fn set(self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let set = match self {
            Self::Plain(flags) => file_flags::set_flags(file, flags),
            Self::Extended(flags) => file_flags::set_extended_flags(file, flags),
        };
        set.map_err(|error| errno(&error))
    }

    /// Returns the present value of a file, in the same form.
    fn present(self, file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let present = match self {
            Self::Plain(_) => file_flags::flags(file).map(Self::Plain),
            Self::Extended(_) => file_flags::extended_flags(file).map(Self::Extended),
        };
        present.map_err(|error| errno(&error))
    }
}

pub(super) fn ioctl(cx: &mut Context<'_>, with: &IoctlIn, input: &[u8]) -> Result<(), Errno> {
    if with.flags & !ioctl_flag::FOLDER != 0 {
        // A 32-bit program's structure: the kernel converts those of flags itself.
        return Err(Errno::NOSYS);
    }
    match with.command {
        GET_FLAGS => get(cx, FlagValue::Plain(0), with),
        GET_EXTENDED_FLAGS => get(cx, FlagValue::Extended([0; 28]), with),
        SET_FLAGS => {
            let flags = input.try_into().map_err(|_| Errno::INVAL)?;
            set(cx, FlagValue::Plain(u32::from_ne_bytes(flags)))
        }
        SET_EXTENDED_FLAGS => {
            set(cx, FlagValue::Extended(input.try_into().map_err(|_| Errno::INVAL)?))
        }
        _ => Err(Errno::NOSYS),
    }
}

fn get(cx: &mut Context<'_>, kind: FlagValue, with: &IoctlIn) -> Result<(), Errno> {
    let file = opened(&*cx.view.folders.path_fd(cx.inode())?)?;
    let present = kind.present(file.as_fd())?;
    let bytes: &[u8] = match &present {
        FlagValue::Plain(flags) => &flags.to_ne_bytes(),
        FlagValue::Extended(flags) => flags,
    };
    if usize::try_from(with.output_size) != Ok(bytes.len()) {
        return Err(Errno::INVAL);
    }
    cx.reply.put(&IoctlOut::default());
    cx.reply.put_bytes(bytes);
    Ok(())
}

/// Sets flags in each source that has the folder, or in none.
fn set(cx: &mut Context<'_>, flags: FlagValue) -> Result<(), Errno> {
    let (id, view) = (cx.inode(), cx.view);
    let _kept = view.keep_file(id)?;
    let fds = fds_to_change(view, id, None)?;
    let mut done: Vec<(OwnedFd, FlagValue)> = Vec::new();
    // The first source comes last, since its flags are shown.
    for fd in fds.iter().rev() {
        let changed = opened(fd).and_then(|file| {
            let before = flags.present(file.as_fd())?;
            // As the caller, so that the source checks the owner once more: the flags may have changed since the
            // kernel's check.
            cx.actor.in_groups_of(&owner_in_source(cx, fd)?, || flags.set(file.as_fd()))?;
            Ok((file, before))
        });
        match changed {
            Ok(change) => done.push(change),
            Err(error) => {
                for (file, before) in done {
                    // The first error is the one to report.
                    let _ = before.set(file.as_fd());
                }
                return Err(error);
            }
        }
    }
    // The time of change is another one, and the kernel keeps the attributes after this request.
    view.invalidation.connection.invalidate_attributes(id);
    cx.reply.put(&IoctlOut::default());
    Ok(())
}

/// Returns the caller, or the file's owner in the source if owners are shown as others.
fn owner_in_source(cx: &Context<'_>, fd: &OwnedFd) -> Result<Caller, Errno> {
    let caller = cx.request.caller;
    if cx.view.behaviour.owners.is_none() || caller.uid == 0 {
        return Ok(caller);
    }
    let stat = stat_fd(fd)?;
    Ok(Caller { uid: stat.stx_uid, gid: stat.stx_gid, ..caller })
}

fn opened(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    fs::openat(CWD, ProcPath::new(fd.as_fd()).as_c_str(), flags, Mode::empty())
}
