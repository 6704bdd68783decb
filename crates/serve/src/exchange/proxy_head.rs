//! PROXY heads, by which a trusted proxy names its client before the first request or before the TLS handshake.

use std::net::SocketAddr;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, recv};
use thruway_http1::proxy::parse_proxy_head;

use crate::entry::{Entry, ReadOutcome};
use crate::exchange::closing;
use crate::listen::listener::Peer;
use crate::store::entry_mut::EntryMut;

/// Removes the head from the connection's input. Returns the connection if the head is complete and more input follows.
pub(crate) fn take_kept(mut guard: EntryMut<'_>) -> Option<EntryMut<'_>> {
    let version = guard.store.settings.client_source.proxy_version()?;
    let connection = &mut *guard;
    match parse_proxy_head(&connection.input.bytes, version) {
        Ok(None) => return None,
        Err(error) => {
            closing::refuse(guard, error);
            return None;
        }
        Ok(Some(head)) => {
            let rest = connection.input.bytes.split_off(head.length_bytes);
            connection.keep(&rest, 0);
            begin_behind(connection, head.client);
        }
    }
    (!guard.input.bytes.is_empty()).then_some(guard)
}

/// Reads the head from the socket, if a head is expected before the handshake. Returns the connection if the handshake
/// can begin. Nothing behind the head is read, since the session itself reads the socket.
pub(crate) fn take_before_handshake<'a>(
    mut guard: EntryMut<'a>,
    inbox: &mut [u8],
) -> Option<EntryMut<'a>> {
    let version = guard.store.settings.client_source.proxy_version();
    let connection = &mut *guard;
    let Some(version) = version.filter(|_| connection.awaits_proxy_head) else {
        return Some(guard);
    };
    let length = match peek(connection, inbox) {
        ReadOutcome::Bytes(length) => length,
        ReadOutcome::Later => return None,
        ReadOutcome::Ended => {
            guard.close();
            return None;
        }
    };
    match parse_proxy_head(&inbox[..length], version) {
        Ok(None) if !connection.readiness.is_ended => {}
        Ok(Some(head)) if discard(connection, &mut inbox[..head.length_bytes]) => {
            begin_behind(connection, head.client);
            return Some(guard);
        }
        Ok(_) => drop(guard.close()),
        Err(error) => closing::refuse(guard, error),
    }
    None
}

/// Adopts the client that the proxy has named; none if the proxy speaks for itself.
fn begin_behind(connection: &mut Entry, client: Option<SocketAddr>) {
    connection.awaits_proxy_head = false;
    if let Some(client) = client {
        connection.peer = Peer::Tcp(client);
    }
}

/// Copies the available bytes without consuming them.
fn peek(connection: &mut Entry, inbox: &mut [u8]) -> ReadOutcome {
    // Further bytes cause a new event.
    if !std::mem::take(&mut connection.readiness.is_readable) {
        return ReadOutcome::Later;
    }
    let Some(socket) = connection.carrier.socket() else { return ReadOutcome::Ended };
    match retry_on_intr(|| recv(socket, &mut *inbox, RecvFlags::PEEK)) {
        Ok((length, _)) if length > 0 => ReadOutcome::Bytes(length),
        Err(Errno::AGAIN) => ReadOutcome::Later,
        Ok(_) | Err(_) => ReadOutcome::Ended,
    }
}

/// Consumes as many bytes as `seen` has, all of which have arrived. Returns whether the read succeeded.
fn discard(connection: &mut Entry, seen: &mut [u8]) -> bool {
    // More bytes may have arrived.
    connection.readiness.is_readable = true;
    let length = seen.len();
    let Some(socket) = connection.carrier.socket() else { return false };
    let taken = retry_on_intr(|| recv(socket, &mut *seen, RecvFlags::empty()));
    taken.is_ok_and(|(taken, _)| taken == length)
}
