//! Keeps the connections of a process open when `exec` replaces its program.
//!
//! The sockets stay open. The state of each connection is written to an anonymous file, which stays open as well.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use rustix::fs::MemfdFlags;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::engine::Engine;
use crate::engine::migration::adopt;
use crate::entry::Entry;
use crate::events::clock::monotonic_us;
use crate::workers::{MESSAGE_BYTES, read_message, write_message};

/// Removes the connections that are between two requests from an engine that has finished, and lets them survive an
/// `exec`. Returns the file for [`import`], which also survives.
///
/// # Errors
/// The system has no memory or no descriptors left.
pub fn export(engine: &mut Engine) -> io::Result<OwnedFd> {
    let mut file =
        File::from(rustix::fs::memfd_create("thruway-connections", MemfdFlags::empty())?);
    let store = &mut engine.store;
    let ids: Vec<_> = store.slab.ids().collect();
    for id in ids {
        let Some(connection) = store.slab.get(id) else { continue };
        if !connection.awaits_request() || connection.readiness.is_ended {
            continue;
        }
        let Some(socket) = connection.carrier.socket() else { continue };
        fcntl_setfd(socket, FdFlags::empty())?;
        write_record(&mut file, connection, socket)?;
        store.poller.remove(socket);
        if let Some(socket) = store.close(id).and_then(|closed| closed.carrier.into_socket()) {
            // The descriptor stays open for the next program.
            let _ = socket.fd.into_raw_fd();
        }
    }
    file.rewind()?;
    Ok(file.into())
}

/// Adds the connections that are recorded in `file` to an engine. `take` converts a descriptor number to a socket.
///
/// # Errors
/// The file was not written by [`export`].
pub fn import(
    engine: &mut Engine,
    file: OwnedFd,
    take: impl Fn(RawFd) -> OwnedFd,
) -> io::Result<()> {
    let mut file = File::from(file);
    let now_ms = monotonic_us() / 1000;
    while let Some(connection) = read_record(&mut file, &take, now_ms)? {
        if let Some(socket) = connection.carrier.socket() {
            fcntl_setfd(socket, FdFlags::CLOEXEC)?;
        }
        adopt(connection, &mut engine.store);
    }
    Ok(())
}

/// Writes the socket's descriptor number, the length of the unparsed input, the message of a connection that migrates,
/// and the input.
fn write_record(file: &mut File, connection: &Entry, socket: BorrowedFd<'_>) -> io::Result<()> {
    let length = u32::try_from(connection.input.bytes.len()).map_err(io::Error::other)?;
    file.write_all(&socket.as_raw_fd().to_le_bytes())?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(&write_message(connection))?;
    file.write_all(&connection.input.bytes)
}

fn read_record(
    file: &mut File,
    take: impl Fn(RawFd) -> OwnedFd,
    now_ms: u64,
) -> io::Result<Option<Entry>> {
    let (mut number, mut length, mut message) = ([0; 4], [0; 4], [0; MESSAGE_BYTES]);
    if file.read(&mut number[..1])? == 0 {
        return Ok(None);
    }
    file.read_exact(&mut number[1..])?;
    file.read_exact(&mut length)?;
    file.read_exact(&mut message)?;
    let socket = take(RawFd::from_le_bytes(number));
    let mut connection = read_message(&message, socket, now_ms);
    let mut input = vec![0; u32::from_le_bytes(length) as usize];
    file.read_exact(&mut input)?;
    connection.keep(&input, 0);
    Ok(Some(connection))
}
