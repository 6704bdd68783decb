//! PROXY heads, by which a trusted proxy names its client: before the first request, or before the handshake of TLS.

use std::net::SocketAddr;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, recv};
use thruway_http1::proxy::parse_proxy_head;

use crate::entry::{Connection, Received};
use crate::events::slab::ConnectionId;
use crate::exchange::closing;
use crate::listen::listener::Peer;
use crate::store::Connections;

/// Takes the head out of what is kept; true if it is whole and more came behind it.
pub(crate) fn take_kept(connections: &mut Connections, id: ConnectionId) -> bool {
    let Some(version) = connections.settings.client_source.proxy_version() else { return false };
    let Some(connection) = connections.slab.get_mut(id) else { return false };
    match parse_proxy_head(&connection.input, version) {
        Ok(None) => return false,
        Err(error) => {
            closing::refuse(connections, id, error);
            return false;
        }
        Ok(Some(head)) => {
            let rest = connection.input.split_off(head.length_bytes);
            connection.keep(&rest, 0);
            begin_behind(connection, head.client);
        }
    }
    !connection.input.is_empty()
}

/// Takes the head from the socket, if one is to come before the handshake; false if that cannot begin yet. Behind the
/// head nothing is read: the session reads the socket by itself.
pub(crate) fn take_before_handshake(
    connections: &mut Connections,
    id: ConnectionId,
    inbox: &mut [u8],
) -> bool {
    let version = connections.settings.client_source.proxy_version();
    let Some(connection) = connections.slab.get_mut(id) else { return false };
    let Some(version) = version.filter(|_| connection.awaits_proxy_head) else { return true };
    let length = match peek(connection, inbox) {
        Received::Bytes(length) => length,
        Received::Later => return false,
        Received::Ended => return hang_up(connections, id),
    };
    match parse_proxy_head(&inbox[..length], version) {
        Ok(None) if !connection.is_ended => false,
        Ok(Some(head)) if discard(connection, &mut inbox[..head.length_bytes]) => {
            begin_behind(connection, head.client);
            true
        }
        Ok(_) => hang_up(connections, id),
        Err(error) => {
            closing::refuse(connections, id, error);
            false
        }
    }
}

/// The proxy has named its client; none if it speaks for itself.
fn begin_behind(connection: &mut Connection, client: Option<SocketAddr>) {
    connection.awaits_proxy_head = false;
    if let Some(client) = client {
        connection.peer = Peer::Tcp(client);
    }
}

fn hang_up(connections: &mut Connections, id: ConnectionId) -> bool {
    connections.close(id);
    false
}

/// Reads what is there, and leaves it there.
fn peek(connection: &mut Connection, inbox: &mut [u8]) -> Received {
    // More of it is a new event.
    if !std::mem::take(&mut connection.is_readable) {
        return Received::Later;
    }
    let Some(socket) = connection.carrier.socket() else { return Received::Ended };
    match retry_on_intr(|| recv(socket, &mut *inbox, RecvFlags::PEEK)) {
        Ok((length, _)) if length > 0 => Received::Bytes(length),
        Err(Errno::AGAIN) => Received::Later,
        Ok(_) | Err(_) => Received::Ended,
    }
}

/// Reads as many bytes as `seen` has, which are there. Whether that was done.
fn discard(connection: &mut Connection, seen: &mut [u8]) -> bool {
    // There may be more.
    connection.is_readable = true;
    let length = seen.len();
    let Some(socket) = connection.carrier.socket() else { return false };
    let taken = retry_on_intr(|| recv(socket, &mut *seen, RecvFlags::empty()));
    taken.is_ok_and(|(taken, _)| taken == length)
}
