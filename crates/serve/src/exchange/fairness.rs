//! Turns by client, where one client has many connections, or where all connections are a proxy's.

use thruway_http1::Request;

use crate::events::clock::monotonic_us;
use crate::events::slab::ConnectionId;
use crate::queue::standing::Standing;
use crate::store::Connections;

/// Notes which client has sent a request.
pub(crate) fn identify(connections: &mut Connections, id: ConnectionId, request: &Request<'_>) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let parent = connection.carrier.stream().map(|link| link.parent);
    if !connections.turns.by_client && parent.is_none() || connection.standing != Standing::Unknown
    {
        return;
    }
    let peer = connections.settings.client_of(request, connection.peer, connection.is_trusted);
    let name = connections.settings.fair_by.name_of(request, peer);
    if let Some(name) = name.or_else(|| parent.map(name_of_connection)) {
        connection.standing = Standing::Known(connections.turns.clients.client(&name));
    }
}

/// The name of a client that is a connection with several streams: that of no other one in any worker.
fn name_of_connection(id: ConnectionId) -> Vec<u8> {
    format!("connection {} of {}", id.to_word(), std::process::id()).into_bytes()
}

/// Whether a whole request is served now. Otherwise it waits: for its client's turn, or behind the client's
/// other requests.
pub(crate) fn has_turn(connections: &mut Connections, id: ConnectionId) -> bool {
    let clients = &mut connections.turns.clients;
    let Some(connection) = connections.slab.get_mut(id) else { return true };
    let ready_us = connection.ready_us;
    if let Standing::Known(client) = connection.standing {
        let Some(key_us) = clients.enter(client, id, ready_us) else {
            connection.standing = Standing::Parked(client);
            return false;
        };
        (connection.standing, connection.key_us) = (Standing::First(client), key_us);
    }
    let client = match connection.standing {
        Standing::First(client) => client,
        Standing::Parked(_) => return false,
        Standing::Unknown | Standing::Known(_) | Standing::TakenOut => return true,
    };
    // Another worker may have served the client meanwhile.
    let key_us = clients.key_us(client, connection.key_us, ready_us);
    connection.key_us = key_us;
    let is_due = connections.turns.lowest_key_us().is_none_or(|lowest_us| key_us <= lowest_us);
    if is_due {
        connections.turns.clients.note_turn(client, monotonic_us());
    } else {
        connections.turns.requeue(id.slot(), key_us);
    }
    is_due
}
