//! Mounts and unmounts by system call where permitted, and by `fusermount3` otherwise.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode as Permissions, OFlags, RawDir, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{getegid, geteuid};
use thruway_sys::printable;

use crate::mounts::{self, KIND};
use crate::rights::{is_in_initial_user_namespace, may_mount};
use crate::{AccessTimes, Error, Plan, fusermount};

/// Mounts at the plan's target, and returns the connection.
pub(crate) fn attach(plan: &Plan) -> Result<OwnedFd, Error> {
    check_target(plan)?;
    if may_mount() { by_system_call(plan) } else { fusermount::mount(plan) }
}

/// Checks that the target is a folder, is empty unless the plan allows otherwise, and is not already a thruway mount.
fn check_target(plan: &Plan) -> Result<(), Error> {
    let target = plan.target.as_path();
    let ours = mounts::at(target).ok().flatten().is_some_and(|mounted| mounted.is_ours());
    if ours {
        return Err(Error::plain(format_args!("{} is already mounted", printable::path(&target)))
            .with_hint(format_args!("thruway unmount {}", printable::path(&target))));
    }
    let failed = |errno| {
        let error = Error::new("cannot mount at", target, errno);
        match errno {
            Errno::NOENT => error.with_hint(format_args!("mkdir {}", printable::path(&target))),
            Errno::NOTDIR => error.with_hint("the target must be a folder"),
            _ => error,
        }
    };
    // Opening the target as a folder would trigger an automount, which may be waiting for this mount.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let folder = openat(CWD, target, flags, Permissions::empty()).map_err(failed)?;
    let mode = fstat(&folder).map_err(failed)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Directory {
        return Err(failed(Errno::NOTDIR));
    }
    if plan.nonempty
        || is_empty(&folder).map_err(|errno| Error::new("cannot list", target, errno))?
    {
        return Ok(());
    }
    Err(Error::plain(format_args!("cannot mount at {}: it is not empty", printable::path(&target)))
        .with_hint("--nonempty hides the folder's files while the mount exists"))
}

fn is_empty(folder: &OwnedFd) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(folder, c".", flags, Permissions::empty())?;
    let mut raw = Vec::with_capacity(4096);
    let mut entries = RawDir::new(&folder, raw.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

fn by_system_call(plan: &Plan) -> Result<OwnedFd, Error> {
    if plan.dev && !is_in_initial_user_namespace() {
        return Err(Error::plain(
            "--dev has no effect in a user namespace: the kernel allows no devices there",
        )
        .with_hint("mount without --dev"));
    }
    let device = thruway_sys::fuse::open().map_err(|cause| {
        Error::new("cannot open", Path::new("/dev/fuse"), cause)
            .with_hint("load the kernel's fuse module; in a container, pass the device through")
    })?;
    let data = CString::new(kernel_options(plan, &device)).unwrap_or_default();
    mount(plan.source_name(), &plan.target, KIND, mount_flags(plan), data.as_c_str())
        .map_err(|errno| Error::new("cannot mount at", &plan.target, errno))?;
    Ok(device)
}

fn mount_flags(plan: &Plan) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID, !plan.suid);
    flags.set(MountFlags::NODEV, !plan.dev);
    flags.set(MountFlags::NOEXEC, !plan.exec);
    flags.set(MountFlags::RDONLY, plan.is_read_only());
    // FUSE itself keeps no access times; `mount` merely shows these flags.
    flags | plan.access_times.map_or(MountFlags::empty(), AccessTimes::flags)
}

fn kernel_options(plan: &Plan, device: &OwnedFd) -> String {
    let mut options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        geteuid().as_raw(),
        getegid().as_raw()
    );
    if plan.allow_other {
        options.push_str(",allow_other");
    }
    options
}

/// Unmounts by force: waiting and later callers get an error. Only root may do so. For other users, the end of the
/// daemon has the same effect.
pub(crate) fn detach_by_force(target: &Path) -> Result<(), Error> {
    match unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE) {
        Ok(()) => Ok(()),
        // A program has a file open in the mount, or this user is not root.
        Err(_) => detach(target, true),
    }
}

/// Detaches the mount with this device number, if the mount still exists.
pub(crate) fn detach_own(target: &Path, mount_device: &str) -> Result<(), Error> {
    let present = mounts::at(target).ok().flatten();
    match present.is_some_and(|mounted| mounted.device == mount_device) {
        true => detach(target, true),
        false => Ok(()),
    }
}

/// Unmounts. With `lazy`, the mount is detached: no new users can reach it, and present users continue until they are
/// done.
pub(crate) fn detach(target: &Path, lazy: bool) -> Result<(), Error> {
    if !may_mount() {
        return fusermount::unmount(target, lazy);
    }
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    unmount(target, flags).map_err(|errno| {
        let error = Error::new("cannot unmount", target, errno);
        if errno == Errno::BUSY {
            error.with_hint("--lazy unmounts once the mount is no longer in use, --force at once")
        } else {
            error
        }
    })
}

/// Returns `count` descriptors for the connection: the device itself and clones of it, one for each thread that reads
/// requests.
pub(crate) fn clones(device: OwnedFd, count: usize) -> Result<Vec<OwnedFd>, Error> {
    let failed = |cause| Error::new("cannot clone", Path::new("/dev/fuse"), cause);
    let mut devices = Vec::with_capacity(count);
    for _ in 1..count {
        devices.push(thruway_sys::fuse::clone(device.as_fd()).map_err(failed)?);
    }
    devices.insert(0, device);
    Ok(devices)
}
