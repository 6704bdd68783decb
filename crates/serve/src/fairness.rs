//! Turns by client, where one client has many connections, or where all connections are a proxy's.

use thruway_http1::Request;

use crate::clock::monotonic_us;
use crate::connections::Connections;
use crate::queue::standing::Standing;
use crate::slab::ConnectionId;

/// Notes which client has sent a request.
pub(crate) fn identify(connections: &mut Connections, id: ConnectionId, request: &Request<'_>) {
    let Some(clients) = &connections.turns.clients else { return };
    let Some(connection) = connections.slab.get_mut(id) else { return };
    if connection.standing != Standing::Unknown {
        return;
    }
    let peer = connections.settings.client_of(request, connection.peer, connection.is_trusted);
    if let Some(name) = connections.settings.fair_by.name_of(request, peer) {
        connection.standing = Standing::Known(clients.client(&name));
    }
}

/// Whether a whole request is served now. Otherwise it waits: for its client's turn, or behind the client's
/// other requests.
pub(crate) fn has_turn(connections: &mut Connections, id: ConnectionId) -> bool {
    let Some(clients) = &mut connections.turns.clients else { return true };
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
    match &mut connections.turns.clients {
        Some(clients) if is_due => clients.note_turn(client, monotonic_us()),
        _ => connections.turns.requeue(id.slot(), key_us),
    }
    is_due
}
