//! Taking a mount away.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat, readlink};

use crate::proc_path::ProcPath;
use crate::{Error, attach, mounts, status};

/// Unmounts. `lazy` takes it away at once for new users, and for the present ones when they are
/// done. A mount whose daemon is dead is taken away all the same.
///
/// # Errors
/// There is no mount of ours at `target`, it is in use, or we may not.
pub fn unmount(target: &Path, lazy: bool) -> Result<(), Error> {
    let mounted = mounts::at(target)
        .map_err(|cause| Error::new("cannot read", Path::new("/proc/self/mountinfo"), cause))?;
    match mounted {
        Some(mounted) if mounted.is_ours() => attach::detach(target, lazy),
        _ => Err(status::not_ours(target)),
    }
}

/// The target as the kernel's table of mounts has it: absolute and without symbolic links. It works
/// for a mount whose daemon has died.
///
/// # Errors
/// There is no such folder.
pub fn resolve_target(target: &Path) -> Result<PathBuf, Error> {
    let failed = |errno| {
        let error = Error::new("cannot open", target, errno);
        match errno {
            rustix::io::Errno::NOENT => error.with_hint(format_args!("mkdir {}", target.display())),
            _ => error,
        }
    };
    let folder =
        openat(CWD, target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let path = readlink(ProcPath::new(folder.as_fd()).as_c_str(), Vec::new()).map_err(failed)?;
    Ok(OsString::from_vec(path.into_bytes()).into())
}
