//! Chooses files to move between the sources of a mount, and moves them.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{XattrFlags, getxattr, setxattr, statvfs};
use rustix::io::Errno;
use thruway_sys::printable;

use crate::status::status;
use crate::{Error, SourceAccess, SourceSpec};

/// The difference in fill that a balance leaves, in percentage points.
const BALANCE_POINTS: f64 = 1.0;

/// The maximum length of a path in bytes, which the kernel sets (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;

/// The files to move.
#[derive(Debug, Clone, Default)]
pub struct MoveRequest {
    /// The sources to move files from; all that may be changed if there are none.
    pub from: Vec<PathBuf>,
    /// The sources to move files to, each while it has room; all others if there are none.
    pub to: Vec<PathBuf>,
    /// Only files that were not modified for this time.
    pub older_than: Option<Duration>,
    /// Only files of more than this number of bytes.
    pub larger_than: Option<u64>,
    /// Only files of less than this number of bytes.
    pub smaller_than: Option<u64>,
    /// Only until a source is filled to this percentage.
    pub until_fill: Option<f64>,
    /// From the fullest to the emptiest source, until all are filled alike.
    pub is_balance: bool,
}

/// A file to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMove {
    /// All names of the file, relative to the mount.
    pub names: Vec<PathBuf>,
    /// The source that has the file.
    pub from: PathBuf,
    /// The source that gets the file.
    pub to: PathBuf,
    /// The space that the file takes, in bytes.
    pub bytes: u64,
}

/// A source while moves are planned.
#[derive(Debug, Clone)]
struct Disk {
    path: PathBuf,
    device: u64,
    takes_files: bool,
    is_changeable: bool,
    free_min: u64,
    total: u64,
    /// The space that is available to files.
    free: u64,
}

impl Disk {
    fn fill(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a percentage")]
        let ratio = self.free as f64 / self.total.max(1) as f64;
        100.0 - 100.0 * ratio
    }
}

/// A file of a source.
#[derive(Debug)]
struct Candidate {
    names: Vec<PathBuf>,
    links: u64,
    bytes: u64,
    modified: SystemTime,
}

/// Plans moves in the mount at `target`: the files that were modified longest ago come first.
///
/// # Errors
/// There is no thruway mount at `target`, a source does not belong to it or cannot be read, or no source takes files.
pub fn plan_moves(target: &Path, request: &MoveRequest) -> Result<Vec<PlannedMove>, Error> {
    let mut disks = disks(target)?;
    for path in request.from.iter().chain(&request.to) {
        if !disks.iter().any(|disk| disk.path == *path) {
            return Err(Error::plain(format_args!(
                "{} is not a source of {} that is present",
                printable::path(&path),
                printable::path(&target)
            ))
            .with_hint("thruway mount status shows the sources"));
        }
    }
    let is_from = |disk: &Disk| {
        disk.is_changeable
            && if request.from.is_empty() {
                !request.to.contains(&disk.path)
            } else {
                request.from.contains(&disk.path)
            }
    };
    let mut sources: Vec<usize> = (0..disks.len()).filter(|&at| is_from(&disks[at])).collect();
    if request.is_balance {
        sources.sort_by(|&a, &b| disks[b].fill().total_cmp(&disks[a].fill()));
    }
    let mut planned = Vec::new();
    for at in sources {
        let mut candidates = candidates(&disks[at].path, request)?;
        candidates.sort_by_key(|candidate| candidate.modified);
        for candidate in candidates {
            if is_done(request, &disks, at) {
                break;
            }
            let from = disks[at].path.clone();
            let names = &candidate.names;
            let to = match half_moved(target, request, (&disks, at), names) {
                Some(to) => to,
                None => {
                    let to = destination(request, &disks, at, candidate.bytes);
                    // A hidden file has no name by which the mount could move the file.
                    let is_shown = || names.iter().all(|name| is_shown(target, &from, name));
                    let Some(to) = to.filter(|_| is_shown()) else { continue };
                    disks[to].free = disks[to].free.saturating_sub(candidate.bytes);
                    to
                }
            };
            disks[at].free += candidate.bytes;
            planned.push(PlannedMove {
                names: candidate.names,
                from,
                to: disks[to].path.clone(),
                bytes: candidate.bytes,
            });
        }
    }
    Ok(planned)
}

/// Moves a file. Programs that use the file go on.
///
/// # Errors
/// `BUSY` if a program has the file open for writing, `EXIST` if another source has another file of the name, `MLINK`
/// if the file has further names, and any error of the sources.
pub fn move_file(target: &Path, planned: &PlannedMove) -> Result<(), Errno> {
    let first = planned.names.first().ok_or(Errno::INVAL)?;
    // The mount may still know the file by another of its names.
    fs::symlink_metadata(target.join(first))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let is_left = |name: &PathBuf| is_shown(target, &planned.to, name);
    let unmoved = planned.names.iter().find(|name| is_shown(target, &planned.from, name));
    let (name, attribute, source) = match unmoved {
        Some(name) => (name, c"user.thruway.source", &planned.to),
        // An interrupted move has left the file where the other one hides it.
        None => (first, c"user.thruway.left_copy", &planned.from),
    };
    if !planned.names.iter().all(|name| is_shown(target, &planned.from, name) || is_left(name)) {
        return Err(Errno::EXIST);
    }
    let mut value = source.as_os_str().as_bytes().to_vec();
    for name in &planned.names {
        value.push(0);
        value.extend(name.as_os_str().as_bytes());
    }
    setxattr(target.join(name), attribute, &value, XattrFlags::empty())
}

/// Returns the earlier source to which an interrupted move has moved the file in part: the same file has some of the
/// names there, or all, and hides them.
fn half_moved(
    target: &Path,
    request: &MoveRequest,
    (disks, at): (&[Disk], usize),
    names: &[PathBuf],
) -> Option<usize> {
    let from = &disks[at].path;
    let is_same = |to: &Path, name: &Path| {
        let there = KeptAttributes::of(&to.join(name));
        there.is_some() && there == KeptAttributes::of(&from.join(name))
    };
    let is_half_moved = |to: &Path| {
        let is_moved = |name: &Path| is_same(to, name) && is_shown(target, to, name);
        names.iter().any(|name| is_same(to, name))
            && names.iter().all(|name| is_moved(name) || is_shown(target, from, name))
    };
    let mut earlier = (0..at).filter(|&to| is_wanted_move(request, from, &disks[to].path));
    earlier.find(|&to| is_half_moved(&disks[to].path))
}

/// Whether the user has asked for a move from one source to the other by name. Only then is a file removed that another
/// source has as well: the two may be copies that somebody made.
fn is_wanted_move(request: &MoveRequest, from: &Path, to: &Path) -> bool {
    let has = |all: &[PathBuf], path: &Path| all.iter().any(|other| other == path);
    has(&request.to, to) || request.to.is_empty() && has(&request.from, from)
}

/// The attributes of a file that a move keeps.
#[derive(PartialEq, Eq)]
struct KeptAttributes {
    bytes: u64,
    mode: u32,
    owners: (u32, u32),
    modified: (i64, i64),
}

impl KeptAttributes {
    fn of(path: &Path) -> Option<Self> {
        let stat = fs::symlink_metadata(path).ok()?;
        Some(Self {
            bytes: stat.size(),
            mode: stat.mode(),
            owners: (stat.uid(), stat.gid()),
            modified: (stat.mtime(), stat.mtime_nsec()),
        })
    }
}

/// Whether the name in the mount leads to the source's file, and not to one of another source.
fn is_shown(target: &Path, source: &Path, name: &Path) -> bool {
    shown_source(target, name).is_some_and(|shown| shown == source)
}

/// Returns the source of the file to which the name in the mount leads.
fn shown_source(target: &Path, name: &Path) -> Option<PathBuf> {
    let mut value = vec![0; PATH_BYTES_MAX];
    let source = c"user.thruway.source";
    let length = getxattr(target.join(name), source, value.as_mut_slice()).ok()?;
    value.truncate(length);
    Some(OsString::from_vec(value).into())
}

/// Returns the reason why a file was not moved, as a user can understand it.
#[must_use]
pub fn move_error(errno: Errno) -> String {
    let known = match errno {
        Errno::BUSY => "it is open for writing, or it was changed meanwhile",
        Errno::EXIST => "another source has another file of that name",
        Errno::MLINK => "it has further names",
        Errno::NOTDIR | Errno::LOOP => "the other source has a file in the place of a folder",
        Errno::INVAL => "the mount has one source, or the source is not one of the mount",
        Errno::PERM => {
            "only root and the user who mounted may move files, and chattr may forbid it"
        }
        _ => return std::io::Error::from(errno).to_string(),
    };
    known.into()
}

fn disks(target: &Path) -> Result<Vec<Disk>, Error> {
    let statuses = status(Some(target))?;
    let failed = |cause: &str| {
        Error::plain(format_args!("{} does not reply: {cause}", printable::path(&target)))
    };
    let mount = statuses.into_iter().next().ok_or_else(|| failed("no status"))?;
    let status = mount.status.map_err(|cause| failed(&cause))?;
    let mut disks = Vec::new();
    for source in &status.source_specs {
        if status.failed_sources.contains_key(&source.path.display().to_string()) {
            continue;
        }
        disks.push(disk(source, status.free_min_bytes)?);
    }
    Ok(disks)
}

fn disk(source: &SourceSpec, free_min_bytes: u64) -> Result<Disk, Error> {
    let failed = |cause: std::io::Error| Error::new("cannot read", &source.path, cause);
    let space = statvfs(&source.path).map_err(|errno| failed(errno.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let used = space.f_blocks.saturating_sub(space.f_bfree).saturating_mul(space.f_frsize);
    Ok(Disk {
        device: fs::metadata(&source.path).map_err(failed)?.dev(),
        path: source.path.clone(),
        takes_files: source.access == SourceAccess::ReadWrite,
        is_changeable: source.access != SourceAccess::ReadOnly,
        free_min: source.free_min_bytes.unwrap_or(free_min_bytes),
        total: used.saturating_add(free),
        free,
    })
}

/// Whether no more files should leave this source.
fn is_done(request: &MoveRequest, disks: &[Disk], from: usize) -> bool {
    let fill = disks[from].fill();
    if request.until_fill.is_some_and(|until| fill <= until) {
        return true;
    }
    let others = disks.iter().enumerate().filter(|(at, disk)| *at != from && disk.takes_files);
    let least = others.map(|(_, disk)| disk.fill()).fold(f64::INFINITY, f64::min);
    request.is_balance && fill - least <= BALANCE_POINTS
}

/// Returns the source for a file of this size: the first requested source with room or, without a request, the source
/// that is least full.
fn destination(request: &MoveRequest, disks: &[Disk], from: usize, bytes: u64) -> Option<usize> {
    let fits = |&at: &usize| {
        let disk = &disks[at];
        let is_other = disk.takes_files && disk.device != disks[from].device;
        is_other && disk.free > bytes.saturating_add(disk.free_min)
    };
    if !request.to.is_empty() {
        let at = |path: &PathBuf| disks.iter().position(|disk| disk.path == *path);
        return request.to.iter().filter_map(at).find(fits);
    }
    let all = (0..disks.len()).filter(|at| *at != from).filter(fits);
    let best = all.min_by(|&a, &b| disks[a].fill().total_cmp(&disks[b].fill()))?;
    // A balance must not go beyond its aim.
    let would_swap = request.is_balance && {
        let mut after = [disks[from].clone(), disks[best].clone()];
        after[0].free += bytes;
        after[1].free = after[1].free.saturating_sub(bytes);
        after[1].fill() > after[0].fill() + BALANCE_POINTS
    };
    (!would_swap).then_some(best)
}

/// Returns the files of a source that may be moved. A file with several names is one file.
fn candidates(source: &Path, request: &MoveRequest) -> Result<Vec<Candidate>, Error> {
    let mut found: HashMap<(u64, u64), Candidate> = HashMap::new();
    let device =
        fs::metadata(source).map_err(|cause| Error::new("cannot read", source, cause))?.dev();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let path = source.join(&folder);
        let entries = match fs::read_dir(&path) {
            // A folder may be removed meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(|cause| Error::new("cannot read", &path, cause))?,
        };
        let sorted: BTreeMap<_, _> =
            entries.flatten().map(|entry| (entry.file_name(), entry)).collect();
        for (name, entry) in sorted {
            let Ok(stat) = entry.metadata() else { continue };
            let below = folder.join(OsStr::new(&name));
            // A mount below a source belongs to another file system.
            if stat.dev() != device {
                continue;
            }
            if stat.is_dir() {
                folders.push(below);
            } else if stat.is_file() {
                let candidate =
                    found.entry((stat.dev(), stat.ino())).or_insert_with(|| Candidate {
                        names: Vec::new(),
                        links: stat.nlink(),
                        bytes: stat.blocks().saturating_mul(512),
                        modified: stat.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                    });
                candidate.names.push(below);
            }
        }
    }
    let now = SystemTime::now();
    let is_wanted = |candidate: &Candidate| {
        let age = now.duration_since(candidate.modified).unwrap_or_default();
        // A file with a name outside of the source cannot be moved with all its names.
        candidate.links == candidate.names.len() as u64
            && request.older_than.is_none_or(|least| age > least)
            && request.larger_than.is_none_or(|least| candidate.bytes > least)
            && request.smaller_than.is_none_or(|most| candidate.bytes < most)
    };
    Ok(found.into_values().filter(is_wanted).collect())
}
