//! Turns by client, for clients with many connections and for proxies whose connections carry many clients.

use thruway_http1::Request;

use crate::events::clock::monotonic_us;
use crate::events::slab::EntryId;
use crate::queue::queue_position::QueuePosition;
use crate::store::entry_mut::EntryMut;

/// Records the client that has sent a request.
pub(crate) fn identify(entry: &mut EntryMut<'_>, request: &Request<'_>) {
    let id = entry.id();
    let store = &mut *entry.store;
    let entry = &mut store.slab[id];
    let parent = entry.carrier.stream().map(|link| link.parent);
    if !store.turns.by_client && parent.is_none() || entry.turn.position != QueuePosition::Unknown {
        return;
    }
    let peer = store.settings.client_of(request, entry.peer, entry.is_trusted);
    let name = store.settings.fair_by.name_of(request, peer);
    if let Some(name) = name.or_else(|| parent.map(name_of_connection)) {
        entry.turn.position = QueuePosition::Known(store.turns.clients.client(&name));
    }
}

/// Returns the name of a client that is a connection with several streams. The name is unique across all workers.
fn name_of_connection(id: EntryId) -> Vec<u8> {
    format!("connection {} of {}", id.to_word(), std::process::id()).into_bytes()
}

/// Whether a complete request is served now. Otherwise the request waits for its client's turn, or behind the client's
/// other requests.
pub(crate) fn has_turn(entry: &mut EntryMut<'_>) -> bool {
    let id = entry.id();
    let store = &mut *entry.store;
    let (clients, entry) = (&mut store.turns.clients, &mut store.slab[id]);
    let ready_us = entry.turn.ready_us;
    if let QueuePosition::Known(client) = entry.turn.position {
        let Some(key_us) = clients.enter(client, id, ready_us) else {
            entry.turn.position = QueuePosition::Parked(client);
            return false;
        };
        (entry.turn.position, entry.turn.key_us) = (QueuePosition::First(client), key_us);
    }
    let client = match entry.turn.position {
        QueuePosition::First(client) => client,
        QueuePosition::Parked(_) => return false,
        QueuePosition::Unknown | QueuePosition::Known(_) | QueuePosition::Withdrawn => return true,
    };
    // Another worker may have served the client in the meantime.
    let key_us = clients.key_us(client, entry.turn.key_us, ready_us);
    entry.turn.key_us = key_us;
    let is_due = store.turns.lowest_key_us().is_none_or(|lowest_us| key_us <= lowest_us);
    if is_due {
        store.turns.clients.note_turn(client, monotonic_us());
    } else {
        store.turns.requeue(id.slot(), key_us);
    }
    is_due
}
