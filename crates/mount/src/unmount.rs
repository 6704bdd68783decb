//! Unmounts a view and ends its daemon.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, openat, readlink};
use rustix::io::Errno;
use rustix::process::Signal;
use thruway_sys::printable;

use crate::proc_path::ProcPath;
use crate::process::Daemon;
use crate::{Error, attach, mounts, status};

/// The time that a daemon has to end. A daemon that is asked to end kills its worker within a second.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The way to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Fails if the mount is in use.
    Orderly,
    /// Detaches the mount: no new users can reach it, and present users continue until they are done.
    Lazy,
    /// Unmounts at once. Waiting callers get an error, and the daemon is killed.
    Forced,
}

/// Unmounts the view at `target`, even if its daemon is dead.
///
/// # Errors
/// There is no thruway mount at `target`, the mount is in use, or this user may not unmount it.
pub fn unmount(target: &Path, manner: Manner) -> Result<(), Error> {
    let mounted = mounts::at(target)
        .map_err(|cause| Error::new("cannot read", Path::new("/proc/self/mountinfo"), cause))?;
    let Some(mounted) = mounted.filter(mounts::MountInfo::is_ours) else {
        return Err(status::not_ours(target));
    };
    // The daemon must be found before the unmount, since the kernel then reuses the device number.
    let daemon = Daemon::of(&mounted.device);
    match manner {
        Manner::Lazy => return attach::detach(target, true),
        Manner::Orderly => attach::detach(target, false)?,
        Manner::Forced => attach::detach_by_force(target)?,
    }
    let ended = daemon.map_or(Ok(()), |daemon| end(&daemon, manner == Manner::Forced));
    ended.map_err(|errno| Error::new("cannot end the daemon of", target, errno))
}

/// Waits for the daemon to end, which releases the sources. A daemon without its mount ends by itself; a daemon that
/// hangs or is stopped is killed.
fn end(daemon: &Daemon, is_forced: bool) -> Result<(), Errno> {
    if is_forced {
        daemon.signal(Signal::TERM)?;
    }
    if daemon.ends_within(TIMEOUT)? {
        return Ok(());
    }
    daemon.kill()?;
    if daemon.ends_within(TIMEOUT)? { Ok(()) } else { Err(Errno::TIMEDOUT) }
}

/// Resolves a target to the path in the kernel's table of mounts: absolute and without symbolic links. Works even if
/// the daemon is dead.
///
/// # Errors
/// The folder does not exist.
pub fn resolve_target(target: &Path) -> Result<PathBuf, Error> {
    resolve(target).map_err(|errno| {
        let error = Error::new("cannot open", target, errno);
        if errno == Errno::NOENT { error.with_hint(status::LIST_HINT) } else { error }
    })
}

/// Resolves the target of a new mount as [`resolve_target`] does.
///
/// # Errors
/// The folder does not exist.
pub fn resolve_new_target(target: &Path) -> Result<PathBuf, Error> {
    resolve(target).map_err(|errno| {
        let error = Error::new("cannot open", target, errno);
        match errno {
            Errno::NOENT => error.with_hint(format_args!("mkdir {}", printable::path(&target))),
            _ => error,
        }
    })
}

fn resolve(target: &Path) -> Result<PathBuf, Errno> {
    let folder = openat(CWD, target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let path = readlink(ProcPath::new(folder.as_fd()).as_c_str(), Vec::new())?;
    Ok(OsString::from_vec(path.into_bytes()).into())
}
