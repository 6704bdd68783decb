//! The end of upgraded connections when the server stops.
//!
//! The clients reconnect immediately. The server therefore closes many connections one after the other, so that the
//! clients do not reach the next server all at once.

use thruway_websocket::CloseCode;

use crate::entry;
use crate::entry::socket_state::PlannedClose;
use crate::events::slab::EntryId;
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// The time for each connection.
const EACH_MS: u64 = 2;

/// The maximum time for all connections, since a stopping server does not wait for long.
const ALL_MS_MAX: u64 = 10_000;

/// Plans the end of every upgraded connection, with the given code for the clients.
pub(crate) fn plan_all(store: &mut Store, code: CloseCode) {
    let is_upgraded = |id: &EntryId| store.slab.get(*id).and_then(entry::upgraded).is_some();
    let ids: Vec<_> = store.slab.ids().filter(is_upgraded).collect();
    let all_ms = if ids.len() > 1 { (ids.len() as u64 * EACH_MS).min(ALL_MS_MAX) } else { 0 };
    for (id, at) in ids.into_iter().zip(0_u32..) {
        // The multiples of the golden ratio are evenly distributed, in an order unrelated to that of the connections.
        let part = u64::from(at.wrapping_mul(0x9e37_79b9));
        if let Some(mut socket) = store.find(id) {
            plan(&mut socket, (part * all_ms) >> 32, code);
        }
    }
}

/// Plans the end of a connection in `in_ms` milliseconds, unless an end is already planned.
pub(crate) fn plan(socket: &mut EntryMut<'_>, in_ms: u64, code: CloseCode) {
    let at_ms = socket.store.clock.now_ms + in_ms;
    if let Some(upgraded) = entry::upgraded_mut(socket)
        && upgraded.planned_close == PlannedClose::None
    {
        upgraded.planned_close = if in_ms == 0 {
            PlannedClose::Due(code)
        } else {
            PlannedClose::Scheduled { at_ms, code }
        };
    }
    socket.settle();
}
