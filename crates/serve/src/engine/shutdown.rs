//! The end of an engine's service: its connections are handed over or drained.

use thruway_websocket::CloseCode;

use crate::engine::acceptor::Acceptor;
use crate::engine::migration::Migration;
use crate::exchange::closing;
use crate::exchange::http2::output;
use crate::exchange::upgraded::planned_close::plan_all;
use crate::store::Store;
use crate::store::service_state::ServiceState;

/// The time until the next attempt to hand over connections that have found no room.
const HAND_OVER_AGAIN_MS: u64 = 2;

/// Stops accepting, and leaves the connections to other workers or to the next program.
pub(crate) fn hand_over(
    store: &mut Store,
    acceptor: &mut Acceptor,
    migration: Option<&mut Migration>,
) {
    // After a repeated call, a worker may have no thread left, and connections taken here would be lost.
    if !store.service.accepts() {
        return;
    }
    plan_all(store, CloseCode::RESTART);
    let Some(migration) = migration else {
        // Connections that wait at the listeners are left to the next program.
        acceptor.abandon(store);
        store.service = ServiceState::Suspended;
        output::leave_all(store);
        return;
    };
    migration.worker.drain();
    migration.take_all_messages(store);
    // The kernel wakes only one worker for waiting connections. If it woke this worker, no other would accept them, so
    // this worker accepts them and hands them over with the rest.
    acceptor.close(store, false);
    store.poller.remove(migration.worker.handover());
    migration.take_last(store);
    store.service = ServiceState::HandingOver;
}

/// Accepts the connections that already wait and no more, and closes each connection as soon as possible.
pub(crate) fn drain(
    store: &mut Store,
    acceptor: &mut Acceptor,
    migration: Option<&mut Migration>,
    closes_for_all: bool,
) {
    if has_handed_over(store) {
        return;
    }
    if let Some(migration) = migration {
        migration.worker.drain();
        migration.take_all_messages(store);
        migration.take_last(store);
    }
    acceptor.close(store, closes_for_all);
    let code = if closes_for_all { CloseCode::GOING_AWAY } else { CloseCode::RESTART };
    plan_all(store, code);
    closing::begin_drain(store);
    closing::close_idle(store);
}

/// Whether other workers have taken over all connections.
fn has_handed_over(store: &Store) -> bool {
    store.service == ServiceState::HandingOver && store.slab.len() == 0
}

/// Hands over connections while this worker retires. Returns the time until the next attempt, if any is needed. Once no
/// connection is left, the waiting thread is woken.
pub(crate) fn hand_over_ms(
    store: &mut Store,
    migration: Option<&mut Migration>,
    is_woken: &mut bool,
) -> Option<u64> {
    if store.service != ServiceState::HandingOver {
        return None;
    }
    let is_full = migration?.hand_over(store);
    closing::close_idle(store);
    *is_woken |= store.slab.len() == 0;
    if *is_woken { Some(0) } else { is_full.then_some(HAND_OVER_AGAIN_MS) }
}
