//! Changes a mount while it is in use, over a socket of its supervisor.
//!
//! The client sends one change, and closes its end for writing. The supervisor replies once the change is in effect.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::process::geteuid;
use thruway_sys::peer;

use crate::process::SourceChange;
use crate::{Error, mounts, status};

/// The time that a supervisor has to reply. A source may be on a disk that has to spin up.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// The time that a client has to send its change.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum length of a change in bytes.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// Changes the sources of the mount at `target`. Returns the sources after the change.
///
/// # Errors
/// There is no thruway mount at `target`, its daemon is not reachable, or it refuses the change.
pub fn change_sources(target: &Path, change: &SourceChange) -> Result<Vec<String>, Error> {
    let failed = |cause: io::Error| Error::new("cannot reach the daemon of", target, cause);
    let mounted = mounts::at(target).map_err(failed)?;
    let Some(mounted) = mounted.filter(mounts::MountInfo::is_ours) else {
        return Err(status::not_ours(target));
    };
    ask(&mounted.device, change).map_err(failed)?
}

fn ask(mount_device: &str, change: &SourceChange) -> io::Result<Result<Vec<String>, Error>> {
    let name = SocketAddr::from_abstract_name(socket_name(mount_device))?;
    let mut socket = UnixStream::connect_addr(&name)?;
    if !may_control(&socket)? {
        return Err(io::Error::other("the mount belongs to another user"));
    }
    socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
    socket.write_all(&serde_json::to_vec(change)?)?;
    socket.shutdown(Shutdown::Write)?;
    let mut text = Vec::new();
    socket.take(REQUEST_BYTES_MAX).read_to_end(&mut text)?;
    if text.is_empty() {
        return Err(io::Error::other("the mount belongs to another user, or its daemon has ended"));
    }
    Ok(serde_json::from_slice(&text)?)
}

/// Returns the socket's name in the abstract namespace.
pub(crate) fn socket_name(mount_device: &str) -> String {
    format!("thruway-mount-control-{mount_device}")
}

/// Receives a change over a new connection. Returns `None` if the client may not change the mount, or sends no change.
pub(crate) fn receive(socket: &UnixStream) -> Option<SourceChange> {
    if !may_control(socket).unwrap_or(false) {
        return None;
    }
    socket.set_read_timeout(Some(REQUEST_TIMEOUT)).ok()?;
    let mut text = Vec::new();
    socket.take(REQUEST_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Sends the reply to a change.
pub(crate) fn reply(mut socket: &UnixStream, reply: &Result<Vec<String>, Error>) {
    // A client that disconnects early is not an error.
    if let Ok(text) = serde_json::to_vec(reply) {
        let _ = socket.set_write_timeout(Some(REQUEST_TIMEOUT));
        let _ = socket.write_all(&text);
    }
}

/// Whether the process at the other end belongs to root or to this user.
fn may_control(socket: &UnixStream) -> io::Result<bool> {
    let other = peer::of(socket.as_fd())?.uid;
    Ok(other == 0 || other == geteuid().as_raw())
}
