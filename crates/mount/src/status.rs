//! How a mount is doing: asked over a socket whose name is the mount's device number.

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

use crate::{Error, mounts};

/// Where to look for the mount that was meant.
pub(crate) const LIST_HINT: &str = "thruway mount status lists them";

/// How long a daemon may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest answer in bytes.
const STATUS_BYTES_MAX: u64 = 16 << 20;

/// How one mount is doing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Where it is.
    pub target: String,
    /// What it shows.
    pub sources: Vec<String>,
    /// The number of the process that keeps the mount alive; signals go there.
    pub process: Option<i32>,
    /// That process has died, and `process` is the worker: it goes on, and nobody would follow it.
    pub is_orphaned: bool,
    /// `live` or `frozen`.
    pub mode: crate::Mode,
    /// How requests arrive.
    pub transport: String,
    /// Whether the kernel moves the data of files.
    pub passthrough: bool,
    /// Why it does not, where it does not, and how often that was so.
    pub daemon_io_reasons: BTreeMap<String, u64>,
    /// Version of the protocol, `7.x`.
    pub protocol: String,
    /// Workers that were started after one had died.
    pub restarts: u64,
    /// How changes behind the mount are noticed.
    pub changes: crate::Changes,
    /// Folders in which we are told what others change; `None` if the system tells us nothing.
    pub watched_folders: Option<u64>,
    /// Folders of a view of several sources that are known.
    pub merged_folders: usize,
    /// Names in the indexes of merged folders.
    pub merged_names: usize,
    /// Rules of the policy, if there is one.
    pub rules: Option<usize>,
    /// Sources that could not be read, and why.
    pub failed_sources: BTreeMap<String, String>,
    /// Requests that a source could not answer since the mount was made, by its error: a disk that fails.
    pub source_errors: BTreeMap<String, u64>,
    /// Inodes that the kernel knows.
    pub inodes: u64,
    /// What was counted since the mount was made.
    pub counts: BTreeMap<String, u64>,
    /// Requests by operation since the mount was made.
    pub requests: BTreeMap<String, u64>,
}

impl Status {
    /// Whether all is as it should be.
    #[must_use]
    pub fn is_well(&self) -> bool {
        !self.is_orphaned && self.failed_sources.is_empty() && self.source_errors.is_empty()
    }
}

/// One mount and what its daemon says; `Err` is why it says nothing.
#[derive(Debug)]
pub struct MountStatus {
    /// Where it is.
    pub target: PathBuf,
    /// How it is doing.
    pub status: Result<Status, String>,
}

/// How our mounts are doing: all of them, or the one at `target`.
///
/// # Errors
/// The kernel's table cannot be read, or there is no mount of ours at `target`.
pub fn status(target: Option<&Path>) -> Result<Vec<MountStatus>, Error> {
    let all = mounts::all()
        .map_err(|cause| Error::new("cannot read", Path::new("/proc/self/mountinfo"), cause))?;
    let ours = all.into_iter().filter(mounts::Mounted::is_ours);
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
    Error::plain(format_args!("{} is no thruway mount", target.display())).with_hint(LIST_HINT)
}

/// The name of the socket of the mount with this device number, in the abstract namespace.
pub(crate) fn socket_name(mount_device: &str) -> String {
    format!("thruway-mount-{mount_device}")
}

/// The number of the process that began to keep the mount alive, whether it answers or not; `None` if this process
/// cannot see it. It may have died since.
pub(crate) fn listener(mount_device: &str) -> io::Result<Option<i32>> {
    // The kernel notes who listens, and that is not the worker.
    Ok(peer::of(connect(mount_device)?.as_fd())?.pid)
}

fn connect(mount_device: &str) -> io::Result<UnixStream> {
    let name = SocketAddr::from_abstract_name(socket_name(mount_device))?;
    let socket = UnixStream::connect_addr(&name)?;
    if !is_trusted(&socket)? {
        return Err(io::Error::other("another user answers in its place"));
    }
    Ok(socket)
}

/// A worker that is about to die may take the question with it, and the next one is asked.
fn ask(mount_device: &str) -> io::Result<Status> {
    let lost = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    ask_once(mount_device).or_else(|error| match lost(&error) {
        true => ask_once(mount_device),
        false => Err(error),
    })
}

fn ask_once(mount_device: &str) -> io::Result<Status> {
    let socket = connect(mount_device)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    socket.take(STATUS_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Anyone may take a name in the abstract namespace, so both ends look who the other one is.
fn is_trusted(socket: &UnixStream) -> io::Result<bool> {
    let (other, own) = (peer::of(socket.as_fd())?.uid, geteuid());
    Ok(other == 0 || other == own.as_raw() || own.is_root())
}

/// Answers everyone who asks, until the listener is shut down.
pub(crate) fn serve(listener: &UnixListener, status: impl Fn() -> Status) {
    for socket in listener.incoming() {
        let Ok(mut socket) = socket else { return };
        // Who asks and goes away is not waited for.
        let statuses = socket.set_write_timeout(Some(PATIENCE)).and_then(|()| {
            if !is_trusted(&socket)? {
                return Ok(());
            }
            socket.write_all(&serde_json::to_vec(&status())?)
        });
        drop(statuses);
    }
}
