//! Opens the sources of a mount, and finds them again after file systems were mounted or unmounted.
//!
//! A descriptor of a folder keeps its file system from being unmounted. So a source is held open through a private copy
//! of its mount instead of the mount itself. If another file system is mounted on top, the mount cannot be unmounted
//! anyway, and only the original mount leads to the one on top: then the source is held through the original.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, fstatfs, openat, readlink, statat,
    statx,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thruway_sys::mount_copy;
use thruway_sys::printable;

use crate::mounts::MountTable;
use crate::plan::{OnMissing, Presence};
use crate::proc_path::ProcPath;
use crate::source_spec::{SourceAccess, SourceSpec, read_sources};
use crate::{Error, Log, Plan};

/// The maximum number of sources of a view.
const SOURCES_MAX: usize = 10_000;

/// The interval at which a missing source is tried.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// File systems whose files the kernel generates, by magic number (linux/magic.h).
const GENERATED: [(u32, &str); 7] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
];

/// The folder at a path, and the mount that contains the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    device: (u32, u32),
    number: u64,
    /// The unique id of the mount; later mounts have greater ids. Zero if the kernel has no unique ids (before Linux
    /// 6.8).
    mount: u64,
    is_mount_root: bool,
    /// Whether the source was missing when it was added. The first folder that appears at its path is the source.
    is_missing: bool,
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
            is_missing: false,
        })
    }

    /// Returns the place of a source that is missing.
    pub(crate) fn missing() -> Self {
        Self { device: (0, 0), number: 0, mount: 0, is_mount_root: false, is_missing: true }
    }

    /// Returns the device of the file system, if the source was ever there.
    pub(crate) fn device(&self) -> Option<(u32, u32)> {
        (!self.is_missing).then_some(self.device)
    }

    /// Takes this place if the source was missing until now.
    pub(crate) fn appear_at(&mut self, now: Self) {
        if self.is_missing {
            *self = now;
        }
    }

    /// Whether both are the same folder, perhaps on two mounts.
    pub(crate) fn is_same_folder(&self, other: &Self) -> bool {
        (self.device, self.number) == (other.device, other.number)
    }

    /// Whether both are known to be on the same mount.
    pub(crate) fn is_on_same_mount(&self, other: &Self) -> bool {
        self.mount != 0 && self.mount == other.mount
    }

    /// Opens the source that was at this place when the mount was made: the same folder, or a folder on a file system
    /// that was mounted since. A folder that an unmount uncovers is not a source, or new files would be created below
    /// the mount point of an absent disk.
    pub(crate) fn find(
        &self,
        path: &Path,
        presence: &Presence,
    ) -> Result<(OwnedFd, Self), Absence> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty()).map_err(Absence::Failed)?;
        let now = Self::of(&folder).map_err(Absence::Failed)?;
        now.check(&folder, presence)?;
        let is_later = match self.mount != 0 && now.mount != 0 {
            true => now.mount >= self.mount,
            false => now.is_mount_root,
        };
        if is_later || self.is_missing || self.is_same_folder(&now) {
            Ok((folder, now))
        } else {
            Err(Absence::Unmounted)
        }
    }

    /// Whether the folder, which is at this place, counts as present.
    fn check(&self, folder: &OwnedFd, presence: &Presence) -> Result<(), Absence> {
        if presence.mount_point && !self.is_mount_root {
            return Err(Absence::NoMountPoint);
        }
        match presence.marker.as_deref().map(|name| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW))
        {
            Some(Err(Errno::NOENT)) => Err(Absence::NoMarker),
            Some(Err(errno)) => Err(Absence::Failed(errno)),
            _ => Ok(()),
        }
    }
}

/// The reason why a source is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The folder cannot be opened.
    Failed(Errno),
    /// The source's file system was unmounted, and the path now leads to the folder below.
    Unmounted,
    /// The path now leads to the same folder as an earlier source.
    Duplicate,
    /// The source is not a mount point, but has to be one.
    NoMountPoint,
    /// The source lacks the file that marks it as present.
    NoMarker,
    /// The source was removed from the mount.
    Removed,
}

impl fmt::Display for Absence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(errno) => std::io::Error::from(*errno).fmt(formatter),
            Self::Unmounted => formatter.write_str("its file system is not mounted"),
            Self::Duplicate => formatter.write_str("it is the same folder as an earlier source"),
            Self::NoMountPoint => formatter.write_str("it is not a mount point"),
            Self::NoMarker => formatter.write_str("its marker file is missing"),
            Self::Removed => formatter.write_str("it was removed"),
        }
    }
}

/// Returns the mount's id in the kernel's table, which does not list private copies.
pub(crate) fn mount_number(folder: &OwnedFd) -> Result<u64, Errno> {
    Ok(statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// Returns a descriptor of the folder, which does not keep the file system from being unmounted if that is possible.
pub(crate) fn hold(folder: OwnedFd, table: &MountTable) -> OwnedFd {
    let may_be_unmounted = mount_number(&folder)
        .is_ok_and(|number| table.get(number).is_some() && !table.has_children(number));
    // Without the right to copy a mount, the source's mount stays busy for as long as the view exists.
    match may_be_unmounted.then(|| mount_copy::copy_one(folder.as_fd())) {
        Some(Ok(copy)) => copy,
        _ => folder,
    }
}

/// The sources that a plan names, and the descriptors of those that are not followed.
#[derive(Debug)]
pub(crate) struct OpenedSources {
    pub(crate) sources: Vec<(SourceSpec, Option<Place>)>,
    pub(crate) held: Vec<OwnedFd>,
}

/// Opens all sources, each folder only once, since a change in two sources would otherwise be applied twice. Sources
/// that are missing are waited for or left out, as the plan says.
pub(crate) fn open(
    plan: &Plan,
    log: &Log,
    is_cancelled: impl Fn() -> bool,
) -> Result<OpenedSources, Error> {
    let give_up = match plan.missing {
        OnMissing::Wait(time) => Some(Instant::now() + time),
        OnMissing::Fail | OnMissing::Skip => None,
    };
    let mut is_reported = false;
    loop {
        match open_now(plan, log) {
            Err(Failure { error, is_missing: true })
                if give_up.is_some_and(|deadline| Instant::now() < deadline) =>
            {
                if !std::mem::replace(&mut is_reported, true) {
                    log.warn(format_args!("waiting for a source: {error}"));
                }
                sleep(WAIT_INTERVAL);
                if is_cancelled() {
                    return Err(error);
                }
            }
            opened => return opened.map_err(|failure| failure.error),
        }
    }
}

/// The error of a source, and whether the source is merely missing.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) is_missing: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, is_missing: false }
    }
}

/// Returns the sources that the plan names now: its own, those of its file, and those that match its patterns.
pub(crate) fn named(plan: &Plan) -> Result<Vec<SourceSpec>, Error> {
    let mut given = plan.sources.clone();
    if let Some(file) = &plan.sources_file {
        given.extend(read_sources(file)?);
    }
    let mut all: Vec<SourceSpec> = Vec::new();
    for spec in given.iter().map(SourceSpec::expand).collect::<Result<Vec<_>, _>>()?.concat() {
        // A source that is named itself as well as by a pattern has the options of the first.
        if !all.iter().any(|other| other.path == spec.path) {
            all.push(spec);
        }
    }
    if let Some(upper) = &plan.upper {
        all.iter_mut().for_each(|spec| spec.access = SourceAccess::ReadOnly);
        all.insert(0, SourceSpec::plain(upper));
    }
    if all.len() > SOURCES_MAX {
        return Err(Error::plain(format_args!("more than {SOURCES_MAX} sources")));
    }
    Ok(all)
}

fn open_now(plan: &Plan, log: &Log) -> Result<OpenedSources, Failure> {
    let mut opened = OpenedSources { sources: Vec::new(), held: Vec::new() };
    let mut places: Vec<Place> = Vec::new();
    for spec in named(plan)? {
        let (folder, is_followed) = match open_one(plan, &spec.path) {
            Err(Failure { error, is_missing: true }) if plan.missing == OnMissing::Skip => {
                log.warn(format_args!("beginning without a source: {error}"));
                opened.sources.push((spec, Some(Place::missing())));
                continue;
            }
            found => found?,
        };
        let place = Place::of(&folder)
            .map_err(|errno| Error::new("cannot open the source", &spec.path, errno))?;
        if places.iter().any(|other| other.is_same_folder(&place)) {
            log.warn(format_args!(
                "ignoring {}: it is the same folder as an earlier source",
                printable::path(&spec.path)
            ));
            continue;
        }
        let is_upper = plan.upper.is_some() && places.is_empty();
        if let (Some(upper), false) = (&plan.upper, is_upper) {
            refuse_overlap(upper, &opened.held[0], (&spec.path, &folder))?;
        }
        // The work folder is on the mount of the upper source, which therefore stays as it is.
        let is_followed = is_followed && !is_upper;
        places.push(place);
        opened.sources.push((spec, is_followed.then_some(place)));
        opened.held.extend((!is_followed).then_some(folder));
    }
    if places.is_empty() {
        let error = Error::plain("none of the sources exists");
        return Err(Failure { error, is_missing: true });
    }
    Ok(opened)
}

/// Returns the present place of each source that is to be added to a mount.
pub(crate) fn places(
    specs: Vec<SourceSpec>,
    presence: &Presence,
) -> Vec<(SourceSpec, Option<Place>)> {
    let place = |spec: &SourceSpec| {
        Place::missing().find(&spec.path, presence).map_or(Place::missing(), |found| found.1)
    };
    specs
        .into_iter()
        .map(|spec| (place(&spec), spec))
        .map(|(place, spec)| (spec, Some(place)))
        .collect()
}

/// Checks that a folder can be added to the sources.
pub(crate) fn check_new(source: &Path, plan: &Plan) -> Result<(), Failure> {
    open_one(plan, source).map(drop)
}

/// Opens a source. Returns whether the source should be followed.
fn open_one(plan: &Plan, source: &Path) -> Result<(OwnedFd, bool), Failure> {
    let failed = |errno| {
        let error = Error::new("cannot open the source", source, errno);
        let error = match errno {
            Errno::NOTDIR => error.with_hint("a source must be a folder"),
            Errno::NOENT => error
                .with_hint("--missing wait waits for the source, --missing skip begins without it"),
            _ => error,
        };
        Failure { error, is_missing: errno == Errno::NOENT }
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, source, flags, Mode::empty()).map_err(failed)?;
    refuse_generated(source, &folder)?;
    let place = Place::of(&folder).map_err(failed)?;
    place.check(&folder, &plan.presence).map_err(|absence| Failure {
        error: Error::plain(format_args!(
            "the source {} is not present: {absence}",
            printable::path(&source)
        )),
        is_missing: true,
    })?;
    if let Some(times) = plan.access_times {
        // The kernel applies the options of the mount through which a backing file was opened.
        let copied = mount_copy::copy(folder.as_fd(), Some(times.flags())).map_err(|cause| {
            Error::new("cannot set the access times of", source, cause).with_hint(
                "--atime needs root and Linux 5.12; without it, the source's mount options apply",
            )
        })?;
        return Ok((copied, false));
    }
    let path = path_of(&folder).map_err(failed)?;
    if plan.target == path || !plan.target.starts_with(&path) {
        // A source whose path leads through the target must not be followed, since the path would lead into the mount
        // itself. A frozen source does not change.
        let is_followed = plan.mode == crate::Mode::Live && !path.starts_with(&plan.target);
        return Ok((folder, is_followed));
    }
    // A copy made before the new mount does not contain it. Without the copy, the daemon would send requests to itself.
    let copied = mount_copy::copy(folder.as_fd(), None).map_err(|cause| {
        Error::new("cannot mount below its own source", &plan.target, cause).with_hint(
            "mounting below a source needs root and Linux 5.12; otherwise choose another target",
        )
    })?;
    Ok((copied, false))
}

/// Refuses a source that contains the upper source, or is in it.
fn refuse_overlap(
    upper: &Path,
    upper_folder: &OwnedFd,
    (source, folder): (&Path, &OwnedFd),
) -> Result<(), Error> {
    let failed = |errno| Error::new("cannot open the source", source, errno);
    let is_in = |inner, outer| is_in(inner, outer).map_err(failed);
    if !is_in(upper_folder, folder)? && !is_in(folder, upper_folder)? {
        return Ok(());
    }
    let error = Error::plain(format_args!(
        "one of the upper source {} and the source {} contains the other",
        printable::path(&upper),
        printable::path(&source)
    ));
    Err(error.with_hint("choose an upper source outside of the others"))
}

/// Whether a folder is another one or below it.
fn is_in(inner: &OwnedFd, outer: &OwnedFd) -> Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let outer = Place::of(outer)?;
    let mut folder = openat(inner, c".", flags, Mode::empty())?;
    loop {
        let place = Place::of(&folder)?;
        if place.is_same_folder(&outer) {
            return Ok(true);
        }
        folder = openat(&folder, c"..", flags, Mode::empty())?;
        if Place::of(&folder)?.is_same_folder(&place) {
            return Ok(false);
        }
    }
}

/// Refuses sources such as `/proc`. The kernel reports their files as empty, so no data would be read. Also, opening
/// some of these files affects the opening process, which would be the daemon.
fn refuse_generated(source: &Path, folder: &OwnedFd) -> Result<(), Error> {
    let kind = fstatfs(folder).map(|stat| stat.f_type).unwrap_or_default();
    let generated = GENERATED.iter().find(|(number, _)| i128::from(kind) == i128::from(*number));
    let Some((_, name)) = generated else { return Ok(()) };
    let error =
        Error::plain(format_args!("cannot mount {}: it is {name}", printable::path(&source)));
    Err(error.with_hint(
        "the kernel generates such files as they are read; mount --bind shows them elsewhere",
    ))
}

/// Returns the path of an open folder, without symbolic links.
pub(crate) fn path_of(folder: &OwnedFd) -> Result<PathBuf, Errno> {
    let path = readlink(ProcPath::new(folder.as_fd()).as_c_str(), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}
