//! How upgraded connections end when the server does.
//!
//! Their clients come back at once. Many of them are closed one after the other, so that the next server is not met by
//! all of them in one moment.

use thruway_websocket::CloseCode;

use crate::entry;
use crate::entry::socket_state::PlannedClose;
use crate::events::slab::EntryId;
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// Time for each connection.
const EACH_MS: u64 = 2;

/// Time for all of them: a server that stops does not wait for long.
const ALL_MS_MAX: u64 = 10_000;

/// Plans the end of every upgraded connection, with that code for their clients.
pub(crate) fn plan_all(store: &mut Store, code: CloseCode) {
    let is_upgraded = |id: &EntryId| store.slab.get(*id).and_then(entry::upgraded).is_some();
    let ids: Vec<_> = store.slab.ids().filter(is_upgraded).collect();
    let all_ms = if ids.len() > 1 { (ids.len() as u64 * EACH_MS).min(ALL_MS_MAX) } else { 0 };
    for (id, at) in ids.into_iter().zip(0_u32..) {
        // The multiples of the golden ratio are spread evenly, and in no order of the connections.
        let part = u64::from(at.wrapping_mul(0x9e37_79b9));
        if let Some(mut socket) = store.find(id) {
            plan(&mut socket, (part * all_ms) >> 32, code);
        }
    }
}

/// Plans the end of one connection in so many milliseconds, unless it is under way.
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
