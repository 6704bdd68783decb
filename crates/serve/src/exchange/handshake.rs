//! Handshakes of connections that speak TLS.
//!
//! A handshake consists of turns, like requests. Two limits keep handshakes from delaying requests: the time of each
//! handshake ([`Timeouts::handshake_ms`](crate::Timeouts)), and the number of handshakes that wait for their clients at
//! once ([`Settings::handshakes_max`](crate::Settings)).

use std::io;

use thruway_tls::ServerContext;

use crate::entry::{ReadOutcome, State};
use crate::events::slab::EntryId;
use crate::exchange::closing;
use crate::exchange::http2::begin;
use crate::exchange::proxy_head;
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// The response to a client that speaks plain HTTP on a TLS listener.
const PLAIN: &str = "this port speaks HTTPS";

/// Continues a handshake with the bytes that the client has sent.
pub(crate) fn go_on(connection: EntryMut<'_>, inbox: &mut [u8]) {
    let Some(mut connection) = proxy_head::take_before_handshake(connection, inbox) else { return };
    if connection.session().is_none() {
        begin_handshake(&mut connection);
    }
    // If there were too many handshakes, the server may have ended this connection as the oldest.
    let Some(mut guard) = connection.if_open() else { return };
    let now_ms = guard.store.clock.now_ms;
    let connection = &mut *guard;
    let received = connection.receive(inbox);
    let session = connection.session();
    if session.is_some_and(|session| session.is_plain()) {
        connection.set_session(None);
        return closing::hang_up_with(guard, 400, PLAIN);
    }
    if received == ReadOutcome::Ended {
        let refusal = session.and_then(|session| session.certificate_failure());
        if let Some(why) = refusal.map(|why| format!("{}: {why}", connection.peer)) {
            guard.store.warn("complete a TLS handshake", io::Error::other(why));
        }
        return drop(guard.close());
    }
    let Some(session) = session.filter(|session| !session.is_handshaking()) else { return };
    if session.is_acme_challenge() {
        return drop(guard.close());
    }
    let speaks_http2 = session.speaks_http2();
    connection.state = State::Waiting;
    connection.since_ms = now_ms;
    let length = if let ReadOutcome::Bytes(length) = received { length } else { 0 };
    if speaks_http2 {
        begin::begin(guard, &inbox[..length]);
    } else if length > 0 {
        connection.keep(&inbox[..length], 0);
    }
}

fn begin_handshake(connection: &mut EntryMut<'_>) {
    let (id, listener) = (connection.id(), connection.listener);
    let store = &mut *connection.store;
    store.look_at_certificates();
    let context = store.tls.contexts.get(usize::from(listener)).and_then(Option::as_ref);
    match context.map(ServerContext::begin) {
        Some(Ok(session)) => store.slab[id].set_session(Some(session)),
        Some(Err(error)) => store.warn("begin a handshake", io::Error::other(error)),
        None => {}
    }
    store.tls.begun.push_back(id);
    if store.tls.begun.len() > store.settings.handshakes_max {
        end_oldest(store);
    }
}

/// Forgets the handshakes that are over. If too many are left, the oldest ends.
fn end_oldest(store: &mut Store) {
    let is_unfinished = |id: EntryId| {
        let connection = store.slab.get(id);
        connection.is_some_and(|connection| matches!(connection.state, State::Handshaking))
    };
    store.tls.begun.retain(|id| is_unfinished(*id));
    let most = store.settings.handshakes_max;
    if store.tls.begun.len() > most
        && let Some(oldest) = store.tls.begun.pop_front()
    {
        let many = format!("{most} newer handshakes wait for their clients");
        store.warn("finish a handshake", io::Error::other(many));
        store.close(oldest);
    }
}
