//! The sources of a mount, opened.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat, readlink};
use rustix::io::Errno;
use thruway_sys::mount_copy;

use crate::proc_path::ProcPath;
use crate::{Error, Plan};

/// Most sources of one view.
const SOURCES_MAX: usize = 10_000;

/// Opens all of them.
pub(crate) fn open(plan: &Plan) -> Result<Vec<OwnedFd>, Error> {
    if plan.sources.len() > SOURCES_MAX {
        return Err(Error::plain(format_args!("more than {SOURCES_MAX} sources")));
    }
    plan.sources.iter().map(|source| open_one(plan, source)).collect()
}

fn open_one(plan: &Plan, source: &Path) -> Result<OwnedFd, Error> {
    let failed = |errno| {
        let error = Error::new("cannot open the source", source, errno);
        if errno == Errno::NOTDIR { error.with_hint("a source must be a folder") } else { error }
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, source, flags, Mode::empty()).map_err(failed)?;
    if let Some(times) = plan.access_times {
        // The kernel goes by the mount through which a backing file was opened.
        return mount_copy::copy(folder.as_fd(), Some(times.flags())).map_err(|cause| {
            Error::new("cannot settle the access times of", source, cause)
                .with_hint("--atime needs root and Linux 5.12; without it they are kept as the source was mounted")
        });
    }
    if !is_below(&plan.target, &folder).map_err(failed)? {
        return Ok(folder);
    }
    // Our mount is not in a copy of what was mounted before; else we would ask ourselves what is in it, and so on.
    mount_copy::copy(folder.as_fd(), None).map_err(|cause| {
        Error::new("cannot mount below its own source", &plan.target, cause)
            .with_hint("that needs root and Linux 5.12; mount it elsewhere")
    })
}

fn is_below(target: &Path, folder: &OwnedFd) -> Result<bool, Errno> {
    let path = readlink(ProcPath::new(folder.as_fd()).as_c_str(), Vec::new())?;
    let folder = Path::new(OsStr::from_bytes(path.as_bytes()));
    Ok(target != folder && target.starts_with(folder))
}
