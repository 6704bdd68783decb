//! Taking a mount away.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, openat, readlink};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::proc_path::ProcPath;
use crate::process::Daemon;
use crate::{Error, attach, mounts, status};

/// How long a daemon may take to end. One that is told to has its worker killed after less than a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a mount is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// If nobody uses it.
    Orderly,
    /// At once for new users, and for the present ones when they are done.
    Lazy,
    /// At once for everybody. Who waits for an answer gets an error, and the daemon is ended.
    Forced,
}

/// Unmounts. A mount whose daemon is dead is taken away all the same.
///
/// # Errors
/// There is no mount of ours at `target`, it is in use, or we may not.
pub fn unmount(target: &Path, manner: Manner) -> Result<(), Error> {
    let mounted = mounts::at(target)
        .map_err(|cause| Error::new("cannot read", Path::new("/proc/self/mountinfo"), cause))?;
    let Some(mounted) = mounted.filter(mounts::Mounted::is_ours) else {
        return Err(status::not_ours(target));
    };
    // Asked before the mount is gone: its number is given to the next one.
    let daemon = Daemon::of(&mounted.device);
    match manner {
        Manner::Lazy => return attach::detach(target, true),
        Manner::Orderly => attach::detach(target, false)?,
        Manner::Forced => attach::detach_by_force(target)?,
    }
    let ended = daemon.map_or(Ok(()), |daemon| end(&daemon, manner == Manner::Forced));
    ended.map_err(|errno| Error::new("cannot end the daemon of", target, errno))
}

/// Waits for the daemon's end, which frees the sources. It ends by itself when the mount is gone. One that hangs, or is
/// stopped, has nothing to do any more, and is ended.
fn end(daemon: &Daemon, is_forced: bool) -> Result<(), Errno> {
    if is_forced {
        daemon.signal(Signal::TERM)?;
    }
    if daemon.ends_within(PATIENCE)? {
        return Ok(());
    }
    daemon.kill()?;
    if daemon.ends_within(PATIENCE)? { Ok(()) } else { Err(Errno::TIMEDOUT) }
}

/// The target as the kernel's table of mounts has it: absolute and without symbolic links. It works
/// for a mount whose daemon has died.
///
/// # Errors
/// There is no such folder.
pub fn resolve_target(target: &Path) -> Result<PathBuf, Error> {
    resolve(target).map_err(|errno| {
        let error = Error::new("cannot open", target, errno);
        if errno == Errno::NOENT { error.with_hint(status::LIST_HINT) } else { error }
    })
}

/// The same for a mount that is to be made.
///
/// # Errors
/// There is no such folder.
pub fn resolve_new_target(target: &Path) -> Result<PathBuf, Error> {
    resolve(target).map_err(|errno| {
        let error = Error::new("cannot open", target, errno);
        match errno {
            Errno::NOENT => error.with_hint(format_args!("mkdir {}", target.display())),
            _ => error,
        }
    })
}

fn resolve(target: &Path) -> Result<PathBuf, Errno> {
    let folder = openat(CWD, target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let path = readlink(ProcPath::new(folder.as_fd()).as_c_str(), Vec::new())?;
    Ok(OsString::from_vec(path.into_bytes()).into())
}
