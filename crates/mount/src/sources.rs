//! Opens the sources of a mount, and finds them again after file systems were mounted or unmounted.
//!
//! A descriptor of a folder keeps its file system from being unmounted. So a source is not held open by its mount, but
//! by a private copy of that mount. Where something is mounted upon it, nobody can unmount it, and only the mount
//! itself leads to what is mounted there: then the mount itself is held.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, fstatfs, openat, readlink, statx,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thruway_sys::mount_copy;
use thruway_sys::printable;

use crate::mounts::Table;
use crate::proc_path::ProcPath;
use crate::{Error, Log, Plan};

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

/// A source as a worker gets it.
#[derive(Debug)]
pub(crate) enum Source {
    /// It is opened by its path, and followed when file systems come and go.
    Followed(Place),
    /// It stays as it was when the mount was made.
    Held(OwnedFd),
}

/// Which folder of which mount is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    device: (u32, u32),
    number: u64,
    /// Later mounts have greater numbers. Zero if the kernel has no such numbers (before Linux 6.8).
    mount: u64,
    is_mount_root: bool,
}

/// `STATX_MNT_ID_UNIQUE` (linux/stat.h).
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

impl Place {
    pub(crate) fn of(folder: &OwnedFd) -> Result<Self, Errno> {
        let wanted = StatxFlags::BASIC_STATS | UNIQUE_MOUNT;
        let stat = statx(folder, c"", AtFlags::EMPTY_PATH, wanted)?;
        let is_unique = stat.stx_mask & UNIQUE_MOUNT.bits() != 0;
        Ok(Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            number: stat.stx_ino,
            mount: if is_unique { stat.stx_mnt_id } else { 0 },
            is_mount_root: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        })
    }

    pub(crate) fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Whether both are the same folder, perhaps of two mounts.
    pub(crate) fn is_same_folder(&self, other: &Self) -> bool {
        (self.device, self.number) == (other.device, other.number)
    }

    /// Whether both are on the same mount, as far as is known.
    pub(crate) fn is_on_same_mount(&self, other: &Self) -> bool {
        self.mount != 0 && self.mount == other.mount
    }

    /// Opens the source that was at this place when the mount was made: the same folder, or one on a file system that
    /// was mounted since. What an unmount uncovers is no source: files would be made below a disk that is away.
    pub(crate) fn find(&self, path: &Path) -> Result<(OwnedFd, Self), Absence> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty()).map_err(Absence::Failed)?;
        let now = Self::of(&folder).map_err(Absence::Failed)?;
        let is_later = match self.mount != 0 && now.mount != 0 {
            true => now.mount >= self.mount,
            false => now.is_mount_root,
        };
        if is_later || self.is_same_folder(&now) {
            Ok((folder, now))
        } else {
            Err(Absence::Unmounted)
        }
    }
}

/// Why a source is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    /// Its folder cannot be opened.
    Failed(Errno),
    /// Its file system was unmounted, and the folder below is another one.
    Unmounted,
    /// It is the same folder as an earlier source now.
    Again,
}

impl fmt::Display for Absence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(errno) => std::io::Error::from(*errno).fmt(formatter),
            Self::Unmounted => formatter.write_str("its file system is not mounted"),
            Self::Again => formatter.write_str("it is the same folder as an earlier source"),
        }
    }
}

/// The mount's number in the kernel's table; private copies are not in it.
pub(crate) fn mount_number(folder: &OwnedFd) -> Result<u64, Errno> {
    Ok(statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// Makes a descriptor of the folder that does not keep its file system from being unmounted, if possible.
pub(crate) fn hold(folder: OwnedFd, table: &Table) -> OwnedFd {
    let may_be_unmounted = mount_number(&folder)
        .is_ok_and(|number| table.get(number).is_some() && !table.has_children(number));
    // Without the right to copy a mount, it is busy for as long as it is shown.
    match may_be_unmounted.then(|| mount_copy::copy_one(folder.as_fd())) {
        Some(Ok(copy)) => copy,
        _ => folder,
    }
}

/// Opens all sources. The plan that is returned has each folder once: a change in both would be made twice.
pub(crate) fn open(plan: &Plan, log: &Log) -> Result<(Plan, Vec<Source>), Error> {
    if plan.sources.len() > SOURCES_MAX {
        return Err(Error::plain(format_args!("more than {SOURCES_MAX} sources")));
    }
    let (mut single, mut sources) = (Plan { sources: Vec::new(), ..plan.clone() }, Vec::new());
    let mut places: Vec<Place> = Vec::new();
    for path in &plan.sources {
        let (folder, is_followed) = open_one(plan, path)?;
        let place = Place::of(&folder)
            .map_err(|errno| Error::new("cannot open the source", path, errno))?;
        if places.iter().any(|other| other.is_same_folder(&place)) {
            log.warn(format_args!(
                "{} is the same folder as an earlier source, and left out",
                printable::path(path)
            ));
            continue;
        }
        places.push(place);
        single.sources.push(path.clone());
        sources.push(if is_followed { Source::Followed(place) } else { Source::Held(folder) });
    }
    Ok((single, sources))
}

/// Opens one source, and says whether it is to be followed.
fn open_one(plan: &Plan, source: &Path) -> Result<(OwnedFd, bool), Error> {
    let failed = |errno| {
        let error = Error::new("cannot open the source", source, errno);
        if errno == Errno::NOTDIR { error.with_hint("a source must be a folder") } else { error }
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, source, flags, Mode::empty()).map_err(failed)?;
    refuse_generated(source, &folder)?;
    if let Some(times) = plan.access_times {
        // The kernel applies the options of the mount through which a backing file was opened.
        let copied = mount_copy::copy(folder.as_fd(), Some(times.flags())).map_err(|cause| {
            Error::new("cannot settle the access times of", source, cause)
                .with_hint("--atime needs root and Linux 5.12; without it they are kept as the source was mounted")
        })?;
        return Ok((copied, false));
    }
    let path = path_of(&folder).map_err(failed)?;
    if plan.target == path || !plan.target.starts_with(&path) {
        // A path to the source that leads through the target would lead into the mount itself. What is frozen does not
        // change.
        let is_followed = plan.mode == crate::Mode::Live && !path.starts_with(&plan.target);
        return Ok((folder, is_followed));
    }
    // The new mount is not in a copy that was made before it. Else the daemon would send requests to itself.
    let copied = mount_copy::copy(folder.as_fd(), None).map_err(|cause| {
        Error::new("cannot mount below its own source", &plan.target, cause)
            .with_hint("that needs root and Linux 5.12; mount it elsewhere")
    })?;
    Ok((copied, false))
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

/// The path of an open folder, without symbolic links.
pub(crate) fn path_of(folder: &OwnedFd) -> Result<PathBuf, Errno> {
    let path = readlink(ProcPath::new(folder.as_fd()).as_c_str(), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}
