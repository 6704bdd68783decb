//! What an engine does at the end of its service.

use thruway_websocket::CloseCode;

use crate::engine::acceptor::Acceptor;
use crate::engine::migration::Migration;
use crate::exchange::closing;
use crate::exchange::http2::output;
use crate::exchange::upgraded::farewell::say_farewell;
use crate::store::Connections;
use crate::store::stage::Stage;

/// Until connections are handed over again that have found no room.
const HAND_OVER_AGAIN_MS: u64 = 2;

/// Accepts nothing more, and leaves the connections to other workers, or to the next program.
pub(crate) fn retire(
    connections: &mut Connections,
    acceptor: &mut Acceptor,
    migration: Option<&mut Migration>,
) {
    // A worker that is told again may have no thread left: what it took would be lost.
    if !connections.stage.accepts() {
        return;
    }
    say_farewell(connections, CloseCode::RESTART);
    let Some(migration) = migration else {
        // What waits at the listeners is for the next program.
        acceptor.abandon(connections);
        connections.stage = Stage::Holding;
        output::leave_all(connections);
        return;
    };
    migration.worker.drain();
    migration.take_all_messages(connections);
    // The kernel tells one worker of what waits. If it was this one, no other would look: so that is taken, and handed
    // over with the rest.
    acceptor.close(connections, false);
    connections.poller.remove(migration.worker.handover());
    migration.take_last(connections);
    connections.stage = Stage::Retiring;
}

/// Takes what waits and then nothing more, and parts with each connection when it can.
pub(crate) fn drain(
    connections: &mut Connections,
    acceptor: &mut Acceptor,
    migration: Option<&mut Migration>,
    closes_for_all: bool,
) {
    if has_retired(connections) {
        return;
    }
    if let Some(migration) = migration {
        migration.worker.drain();
        migration.take_all_messages(connections);
        migration.take_last(connections);
    }
    acceptor.close(connections, closes_for_all);
    let code = if closes_for_all { CloseCode::GOING_AWAY } else { CloseCode::RESTART };
    say_farewell(connections, code);
    closing::begin_drain(connections);
    closing::close_idle(connections);
}

/// Whether other workers have all that it had.
fn has_retired(connections: &Connections) -> bool {
    connections.stage == Stage::Retiring && connections.slab.len() == 0
}

/// Hands over what can be, if this worker retires; when to go on with that. The thread that waits is woken when
/// nothing is left.
pub(crate) fn hand_over_ms(
    connections: &mut Connections,
    migration: Option<&mut Migration>,
    is_woken: &mut bool,
) -> Option<u64> {
    if connections.stage != Stage::Retiring {
        return None;
    }
    let is_full = migration?.hand_over(connections);
    closing::close_idle(connections);
    *is_woken |= connections.slab.len() == 0;
    if *is_woken { Some(0) } else { is_full.then_some(HAND_OVER_AGAIN_MS) }
}
