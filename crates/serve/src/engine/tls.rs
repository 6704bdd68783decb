//! TLS for an engine's owner: certificates and handshakes.

use crate::Error;
use crate::engine::Engine;
use crate::entry::State;
use crate::exchange::handler::Absent;

/// Reads all certificates of an engine again. If a certificate cannot be read, the previous certificate stays in use.
///
/// # Errors
/// A certificate or a key cannot be used.
pub fn reload_certificates(engine: &mut Engine) -> Result<(), Error> {
    engine.store.tls.reload()
}

/// Whether the next turn is a handshake's. A handshake computes for long and needs no handler.
#[must_use]
pub fn is_handshake_next(engine: &Engine) -> bool {
    let store = &engine.store;
    store.tls.is_used()
        && store.turns.find_oldest(|_| true).is_some_and(|(slot, _)| {
            let connection = store.in_slot(slot);
            connection.is_some_and(|connection| matches!(connection.state, State::Handshaking))
        })
}

/// Gives a handshake its turn, if the next turn is a handshake's.
pub fn handshake_turn(engine: &mut Engine) {
    if is_handshake_next(engine) {
        engine.turn(&mut Absent);
    }
}
