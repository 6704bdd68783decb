//! Handshakes of connections that speak TLS.
//!
//! A handshake is made of turns, like requests. Two limits keep it from costing others theirs: its time
//! ([`Timeouts::handshake_ms`](crate::Timeouts)), and how many wait for their clients at once
//! ([`Settings::handshakes_max`](crate::Settings)).

use std::io;

use thruway_tls::ServerContext;

use crate::entry::{Phase, Received};
use crate::events::slab::ConnectionId;
use crate::exchange::closing;
use crate::exchange::http2::begin;
use crate::exchange::proxy_head;
use crate::store::Connections;

/// What a client is told that speaks plain HTTP where TLS is spoken.
const PLAIN: &str = "this port speaks HTTPS";

/// Goes on with a handshake, as far as the client has sent its part.
pub(crate) fn go_on(connections: &mut Connections, id: ConnectionId, inbox: &mut [u8]) {
    if !proxy_head::take_before_handshake(connections, id, inbox) {
        return;
    }
    if connections.slab.get(id).is_some_and(|connection| connection.tls.is_none()) {
        begin_handshake(connections, id);
    }
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let received = connection.receive(inbox);
    if connection.tls.as_ref().is_some_and(|session| session.is_plain()) {
        connection.tls = None;
        return closing::hang_up_with(connections, id, 400, PLAIN);
    }
    if received == Received::Ended {
        let refusal = connection.tls.as_ref().and_then(|session| session.certificate_failure());
        if let Some(why) = refusal.map(|why| format!("{}: {why}", connection.peer)) {
            connections.warn("let a client in", io::Error::other(why));
        }
        return drop(connections.close(id));
    }
    if connection.tls.as_ref().is_some_and(|session| !session.is_handshaking()) {
        connection.phase = Phase::Waiting;
        connection.since_ms = connections.clock.now_ms;
        let speaks_http2 = connection.tls.as_ref().is_some_and(|session| session.speaks_http2());
        let length = if let Received::Bytes(length) = received { length } else { 0 };
        if speaks_http2 {
            begin::begin(connections, id, &inbox[..length]);
        } else if length > 0 {
            connection.keep(&inbox[..length], 0);
        }
    }
}

fn begin_handshake(connections: &mut Connections, id: ConnectionId) {
    let now_ms = connections.clock.now_ms;
    if let Err(error) = connections.tls.look(now_ms) {
        connections.warn("take over changed certificates", io::Error::other(error));
    }
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let context = connections.tls.contexts.get(usize::from(connection.listener));
    match context.and_then(Option::as_ref).map(ServerContext::begin) {
        Some(Ok(session)) => connection.tls = Some(Box::new(session)),
        Some(Err(error)) => connections.warn("begin a handshake", io::Error::other(error)),
        None => {}
    }
    connections.tls.begun.push_back(id);
    if connections.tls.begun.len() > connections.settings.handshakes_max {
        end_oldest(connections);
    }
}

/// Forgets the handshakes that are over. If there are still too many, the oldest ends.
fn end_oldest(connections: &mut Connections) {
    let is_unfinished = |id: ConnectionId| {
        let connection = connections.slab.get(id);
        connection.is_some_and(|connection| matches!(connection.phase, Phase::Handshaking))
    };
    connections.tls.begun.retain(|id| is_unfinished(*id));
    let most = connections.settings.handshakes_max;
    if connections.tls.begun.len() > most
        && let Some(oldest) = connections.tls.begun.pop_front()
    {
        let many = format!("{most} others wait for their clients, and it is the oldest");
        connections.warn("finish a handshake", io::Error::other(many));
        connections.close(oldest);
    }
}
