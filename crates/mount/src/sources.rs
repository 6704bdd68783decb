//! Opens the sources of a mount.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, fstatfs, openat, readlink};
use rustix::io::Errno;
use thruway_sys::mount_copy;
use thruway_sys::printable;

use crate::proc_path::ProcPath;
use crate::{Error, Plan};

/// Most sources of one view.
const SOURCES_MAX: usize = 10_000;

/// File systems whose files the kernel generates, by their magic numbers (linux/magic.h).
const GENERATED: [(u32, &str); 7] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
];

/// Opens all sources.
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
    refuse_generated(source, &folder)?;
    if let Some(times) = plan.access_times {
        // The kernel applies the options of the mount through which a backing file was opened.
        return mount_copy::copy(folder.as_fd(), Some(times.flags())).map_err(|cause| {
            Error::new("cannot settle the access times of", source, cause)
                .with_hint("--atime needs root and Linux 5.12; without it they are kept as the source was mounted")
        });
    }
    if !is_below(&plan.target, &folder).map_err(failed)? {
        return Ok(folder);
    }
    // The new mount is not in a copy that was made before it. Else the daemon would send requests to itself.
    mount_copy::copy(folder.as_fd(), None).map_err(|cause| {
        Error::new("cannot mount below its own source", &plan.target, cause)
            .with_hint("that needs root and Linux 5.12; mount it elsewhere")
    })
}

/// Refuses sources such as `/proc`. The kernel reports their files as empty, so no data would be read. And opening some
/// of them has an effect on the opening process, which would be the daemon.
fn refuse_generated(source: &Path, folder: &OwnedFd) -> Result<(), Error> {
    let kind = fstatfs(folder).map(|stat| stat.f_type).unwrap_or_default();
    let generated = GENERATED.iter().find(|(number, _)| i128::from(kind) == i128::from(*number));
    let Some((_, name)) = generated else { return Ok(()) };
    let error =
        Error::plain(format_args!("cannot mount {}: it is {name}", printable::path(&source)));
    Err(error.with_hint(
        "the kernel makes up such files as they are read; mount --bind shows them elsewhere",
    ))
}

fn is_below(target: &Path, folder: &OwnedFd) -> Result<bool, Errno> {
    let path = readlink(ProcPath::new(folder.as_fd()).as_c_str(), Vec::new())?;
    let folder = Path::new(OsStr::from_bytes(path.as_bytes()));
    Ok(target != folder && target.starts_with(folder))
}
