//! Mounts and unmounts by system call where permitted, and by `fusermount3` otherwise.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode as Permissions, OFlags, RawDir, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};
use thruway_sys::printable;

use crate::mounts::{self, KIND};
use crate::process::Channel;
use crate::{AccessTimes, Error, Mode, Plan};

const HELPER: &str = "fusermount3";

/// The maximum length of a source name that the kernel accepts.
const SOURCE_NAME_BYTES_MAX: usize = 4095;

/// Mounts at the plan's target, and returns the connection.
pub(crate) fn attach(plan: &Plan) -> Result<OwnedFd, Error> {
    check_target(plan)?;
    if may_mount() { by_system_call(plan) } else { by_helper(plan) }
}

/// Whether this process may call mount(2).
fn may_mount() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
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
    let device = thruway_sys::fuse::open().map_err(|cause| {
        Error::new("cannot open", Path::new("/dev/fuse"), cause)
            .with_hint("load the kernel's fuse module; in a container, pass the device through")
    })?;
    let data = CString::new(kernel_options(plan, &device)).unwrap_or_default();
    mount(source_name(plan), &plan.target, KIND, mount_flags(plan), data.as_c_str())
        .map_err(|errno| Error::new("cannot mount at", &plan.target, errno))?;
    Ok(device)
}

/// Returns the source that `mount` and `df` show. The name must equal the field in fstab, or `mount --all` would mount
/// the view again. If the joined name is too long for the kernel, only the first source is shown.
fn source_name(plan: &Plan) -> OsString {
    let given = plan.sources.iter().map(|source| &source.given);
    let all: Vec<_> = given.chain(&plan.sources_file).map(|path| path.as_os_str()).collect();
    let joined = all.join(OsStr::new(":"));
    if joined.len() <= SOURCE_NAME_BYTES_MAX {
        return joined;
    }
    all.first().map_or("thruway".into(), |first| OsString::from(*first))
}

fn mount_flags(plan: &Plan) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID, !plan.suid);
    flags.set(MountFlags::NODEV, !plan.dev);
    flags.set(MountFlags::NOEXEC, !plan.exec);
    flags.set(MountFlags::RDONLY, is_read_only(plan));
    // FUSE itself keeps no access times; `mount` merely shows these flags.
    flags | plan.access_times.map_or(MountFlags::empty(), AccessTimes::flags)
}

fn is_read_only(plan: &Plan) -> bool {
    plan.read_only || plan.mode == Mode::Frozen
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

/// Mounts by `fusermount3`, which works for ordinary users and sends the connection back.
fn by_helper(plan: &Plan) -> Result<OwnedFd, Error> {
    let (ours, theirs) =
        Channel::pair().map_err(|cause| Error::new("cannot start", HELPER.as_ref(), cause))?;
    let output = Command::new(HELPER)
        .args(["-o", &helper_options(plan), "--"])
        .arg(&plan.target)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .output()
        .map_err(no_helper)?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let reason = words.trim().trim_start_matches("fusermount3: ");
        return Err(Error::plain(format_args!(
            "cannot mount at {}: {reason}",
            printable::path(&plan.target)
        )));
    }
    let mut received = Vec::new();
    ours.receive_descriptors(&mut received)
        .map_err(|cause| Error::new("no connection from", HELPER.as_ref(), cause))?;
    received.pop().ok_or_else(|| Error::plain(format_args!("no connection from {HELPER}")))
}

fn helper_options(plan: &Plan) -> String {
    let source = source_name(plan).to_string_lossy().replace('\\', "\\\\").replace(',', "\\,");
    let mut options = format!("subtype=thruway,default_permissions,fsname={source}");
    let more =
        [(is_read_only(plan), ",ro"), (!plan.exec, ",noexec"), (plan.allow_other, ",allow_other")];
    more.iter().filter(|(set, _)| *set).for_each(|(_, option)| options.push_str(option));
    options
}

fn no_helper(cause: io::Error) -> Error {
    let error = Error::new("cannot start", HELPER.as_ref(), cause);
    error.with_hint("mounting needs root, or fusermount3 (Debian: apt install fuse3)")
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
        return detach_by_helper(target, lazy);
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

fn detach_by_helper(target: &Path, lazy: bool) -> Result<(), Error> {
    let how = if lazy { "-uz" } else { "-u" };
    let output = Command::new(HELPER).arg(how).arg("--").arg(target).output().map_err(no_helper)?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let reason = words.trim().trim_start_matches("fusermount3: ");
    Err(Error::plain(format_args!("cannot unmount {}: {reason}", printable::path(&target))))
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
