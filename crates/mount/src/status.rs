//! Reports the status of a mount, over a socket that is named after the mount's device number.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use thruway_sys::peer;
use thruway_sys::printable;

use crate::{Error, mounts};

/// The hint for a target that is not a mount.
pub(crate) const LIST_HINT: &str = "thruway mount status lists all mounts";

/// The time that a daemon has to send its status.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum length of a status in bytes.
const STATUS_BYTES_MAX: u64 = 16 << 20;

/// The status of a mount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The folder where the view is mounted.
    pub target: String,
    /// The folders that the view shows.
    pub sources: Vec<String>,
    /// The same, with their options.
    #[serde(default)]
    pub source_specs: Vec<crate::SourceSpec>,
    /// The space that has to be free in a source without its own limit, for new files.
    #[serde(default)]
    pub free_min_bytes: u64,
    /// The process that keeps the mount alive, and that accepts signals.
    pub process: Option<i32>,
    /// Whether the supervisor is dead. Then `process` is the worker, which continues to serve but would not be
    /// restarted.
    pub is_orphaned: bool,
    /// `live` or `frozen`.
    pub mode: crate::Mode,
    /// How requests arrive.
    pub transport: String,
    /// Whether the kernel moves the data of files.
    pub passthrough: bool,
    /// The reasons for daemon I/O, with the number of times that each occurred.
    pub daemon_io_reasons: BTreeMap<String, u64>,
    /// The version of the protocol, `7.x`.
    pub protocol: String,
    /// The number of workers that were started after a worker had died.
    pub restarts: u64,
    /// How owners and modes are shown and written, if not as they are.
    #[serde(default)]
    pub owners: Option<String>,
    /// Whether links to regular files are shown as these files.
    #[serde(default)]
    pub follows_links: bool,
    /// How changes behind the mount are noticed.
    pub changes: crate::Changes,
    /// The number of folders whose changes are reported; `None` if the system reports no changes.
    pub watched_folders: Option<u64>,
    /// The number of merged folders that the kernel knows.
    pub merged_folders: usize,
    /// The number of names in the indexes of merged folders.
    pub merged_names: usize,
    /// The number of rules of the policy, if there is a policy.
    pub rules: Option<usize>,
    /// The errors of sources that cannot be read.
    pub failed_sources: BTreeMap<String, String>,
    /// The number of failed requests since the mount was made, by the source's error, such as those of a failing disk.
    pub source_errors: BTreeMap<String, u64>,
    /// The number of files that programs have open.
    #[serde(default)]
    pub open_files: u64,
    /// The number of inodes that the kernel knows.
    pub inodes: u64,
    /// Other counts since the mount was made.
    pub counts: BTreeMap<String, u64>,
    /// The number of requests by operation since the mount was made.
    pub requests: BTreeMap<String, u64>,
}

impl Status {
    /// Whether the supervisor is alive and no source fails.
    #[must_use]
    pub fn is_well(&self) -> bool {
        !self.is_orphaned && self.failed_sources.is_empty() && self.source_errors.is_empty()
    }
}

/// The status of a mount, or the reason why the status is not available.
#[derive(Debug)]
pub struct MountStatus {
    /// The folder where the view is mounted.
    pub target: PathBuf,
    /// The status, or the reason for its absence.
    pub status: Result<Status, String>,
}

/// Returns the status of all thruway mounts, or of the mount at `target`.
///
/// # Errors
/// The kernel's table cannot be read, or there is no thruway mount at `target`.
pub fn status(target: Option<&Path>) -> Result<Vec<MountStatus>, Error> {
    let all = mounts::all()
        .map_err(|cause| Error::new("cannot read", Path::new("/proc/self/mountinfo"), cause))?;
    let ours = all.into_iter().filter(mounts::MountInfo::is_ours);
    let chosen = ours.filter(|mounted| target.is_none_or(|target| mounted.target == target));
    let statuses: Vec<_> = chosen
        .map(|mounted| MountStatus {
            status: ask(&mounted.device).map_err(|cause| cause.to_string()),
            target: mounted.target,
        })
        .collect();
    match target {
        Some(target) if statuses.is_empty() => Err(not_ours(target)),
        _ => Ok(statuses),
    }
}

pub(crate) fn not_ours(target: &Path) -> Error {
    Error::plain(format_args!("{} is not a thruway mount", printable::path(&target)))
        .with_hint(LIST_HINT)
}

/// Returns the socket's name in the abstract namespace.
pub(crate) fn socket_name(mount_device: &str) -> String {
    format!("thruway-mount-{mount_device}")
}

/// Returns the supervisor's process id, even if the process hangs or has died meanwhile. Returns `None` if this process
/// cannot see the supervisor.
pub(crate) fn listener(mount_device: &str) -> io::Result<Option<i32>> {
    // The kernel reports the process that called listen(2), which is the supervisor and not the worker.
    Ok(peer::of(connect(mount_device)?.as_fd())?.pid)
}

fn connect(mount_device: &str) -> io::Result<UnixStream> {
    let name = SocketAddr::from_abstract_name(socket_name(mount_device))?;
    let socket = UnixStream::connect_addr(&name)?;
    if !is_trusted(&socket)? {
        return Err(io::Error::other("the status socket belongs to another user"));
    }
    Ok(socket)
}

/// Requests the status from the worker. If the worker dies before it replies, the next worker is asked.
fn ask(mount_device: &str) -> io::Result<Status> {
    let lost = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    ask_once(mount_device).or_else(|error| match lost(&error) {
        true => ask_once(mount_device),
        false => Err(error),
    })
}

fn ask_once(mount_device: &str) -> io::Result<Status> {
    let socket = connect(mount_device)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let mut text = Vec::new();
    socket.take(STATUS_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Whether the process at the other end may be trusted. Any user may bind any name in the abstract namespace, so each
/// end checks the other's user.
fn is_trusted(socket: &UnixStream) -> io::Result<bool> {
    let (other, own) = (peer::of(socket.as_fd())?.uid, geteuid());
    Ok(other == 0 || other == own.as_raw() || own.is_root())
}

/// Sends the status over each connection, until the listener is shut down.
pub(crate) fn serve(listener: &UnixListener, status: impl Fn() -> Status) {
    for socket in listener.incoming() {
        let Ok(mut socket) = socket else { return };
        // A client that disconnects early is not an error.
        let _ = socket.set_write_timeout(Some(TIMEOUT)).and_then(|()| {
            if !is_trusted(&socket)? {
                return Ok(());
            }
            socket.write_all(&serde_json::to_vec(&status())?)
        });
    }
}
