//! What leaves by HTTP/2: responses go to their streams, and those go to the socket.

use std::io;

use thruway_http2::{Priority, UNSENT_BYTES_MAX};

use crate::entry::carrier::Carrier;
use crate::entry::multiplexer::Multiplexer;
use crate::entry::{Payload, Phase};
use crate::events::slab::ConnectionId;
use crate::output::{Flushed, Output, QUANTUM_BYTES};
use crate::store::Connections;

/// Bytes of one stream before another has its turn.
const SLICE_BYTES: usize = 64 << 10;

/// A longer response is sent at once: a call costs less than its bytes do.
const CORKED_BYTES_MAX: i64 = 8 << 10;

/// A response waits for others for so long.
const CORKED_US_MAX: u64 = 500;

/// The connection of a stream.
pub(crate) fn parent_of(connections: &Connections, id: ConnectionId) -> Option<ConnectionId> {
    place_of(connections, id).map(|(parent, _)| parent)
}

/// Sends what waits on a stream, as far as the client takes it now.
pub(crate) fn flush(connections: &mut Connections, id: ConnectionId) {
    let Some(parent) = parent_of(connections, id) else { return };
    hand_to_session(connections, parent, id);
    pass_on(connections, parent);
    settle(connections, parent, id);
}

/// The same for a whole response. If it is short, and others of its connection are still to come, it waits for them
/// until [`send_corked`].
pub(crate) fn cork(connections: &mut Connections, id: ConnectionId) {
    let Some(parent) = parent_of(connections, id) else { return };
    let output = connections.slab.get(id).map(|connection| &connection.output);
    if output.is_none_or(|output| left_bytes(output) > CORKED_BYTES_MAX) {
        return flush(connections, id);
    }
    hand_to_session(connections, parent, id);
    if multiplexer_of(connections, parent).is_none_or(|multiplexer| multiplexer.is_idle()) {
        pass_on(connections, parent);
    } else if !connections.corked.contains(&parent) {
        if connections.corked.is_empty() {
            connections.corked_us = connections.clock.now_us;
        }
        connections.corked.push(parent);
    }
    settle(connections, parent, id);
}

/// Sends the responses that wait for others of their connection.
pub(crate) fn send_corked(connections: &mut Connections) {
    while let Some(parent) = connections.corked.pop() {
        pass_on(connections, parent);
        connections.settle(parent);
    }
}

/// The same, if the first of them has waited for long.
pub(crate) fn send_corked_if_due(connections: &mut Connections) {
    if connections.clock.now_us >= connections.corked_us + CORKED_US_MAX {
        send_corked(connections);
    }
}

/// Hands what waits on a stream to the session, if its turn has come.
fn hand_to_session(connections: &mut Connections, parent: ConnectionId, id: ConnectionId) {
    if takes_more(connections, parent) && !is_outranked(connections, id) {
        feed(connections, id, QUANTUM_BYTES);
    } else {
        connections.hold(id, true);
        begin_sending(connections, id);
    }
}

fn settle(connections: &mut Connections, parent: ConnectionId, id: ConnectionId) {
    connections.settle(id);
    connections.settle(parent);
    connections.has_news = true;
}

/// Sends an interim response.
pub(crate) fn inform(connections: &mut Connections, id: ConnectionId, head: &[u8]) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let Some(link) = connection.carrier.stream_mut().filter(|link| link.is_fresh()) else { return };
    let parent = link.parent;
    link.stream.inform(head);
    pass_on(connections, parent);
}

/// Sends some of what streams have waiting, each in its turn.
pub(crate) fn send_some(connections: &mut Connections, parent: ConnectionId) {
    let mut left = connections.turn_bytes();
    while left > 0 && takes_more(connections, parent) {
        let multiplexer = multiplexer_of(connections, parent);
        let Some(next) = multiplexer.and_then(|multiplexer| multiplexer.next_sending()) else {
            return;
        };
        left = left.saturating_sub(SLICE_BYTES);
        feed(connections, next, SLICE_BYTES);
        connections.set_deadline(next);
        pass_on(connections, parent);
    }
}

/// Whether the socket has taken all so far.
fn takes_more(connections: &Connections, parent: ConnectionId) -> bool {
    let parent = connections.slab.get(parent);
    parent.is_some_and(|connection| connection.is_writable && connection.output.is_none())
}

/// Notes that a stream sends when its turn comes.
pub(crate) fn begin_sending(connections: &mut Connections, id: ConnectionId) {
    let Some((parent, priority)) = place_of(connections, id) else { return };
    if let Some(multiplexer) = multiplexer_of(connections, parent) {
        multiplexer.begin_sending(priority, id);
    }
}

/// Whether another stream of the connection is to send first.
fn is_outranked(connections: &Connections, id: ConnectionId) -> bool {
    let Some((parent, priority)) = place_of(connections, id) else { return false };
    let multiplexer = connections.slab.get(parent).and_then(|it| it.multiplexer.as_ref());
    multiplexer.is_some_and(|multiplexer| multiplexer.is_outranked(priority))
}

/// The connection of a stream, and its priority there.
fn place_of(connections: &Connections, id: ConnectionId) -> Option<(ConnectionId, Priority)> {
    let link = connections.slab.get(id)?.carrier.stream()?;
    Some((link.parent, link.stream.priority()))
}

/// Hands what waits on a stream to the session, as far as the client's windows let it. With all of a whole response the
/// stream ends.
fn feed(connections: &mut Connections, id: ConnectionId, most: usize) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let is_complete = matches!(connection.phase, Phase::Responding);
    let is_upgraded = matches!(connection.phase, Phase::Upgraded(_));
    let Carrier::Stream(link) = &mut connection.carrier else { return };
    let (parent, before) = (link.parent, left_bytes(&connection.output));
    let fed = link.feed(&mut connection.output, is_complete, most);
    let fed_bytes = before - left_bytes(&connection.output);
    if let Some(multiplexer) = multiplexer_of(connections, parent) {
        multiplexer.fed_bytes = multiplexer.fed_bytes.saturating_add(fed_bytes);
    }
    if fed == Ok(Flushed::Quantum) {
        begin_sending(connections, id);
    }
    match fed {
        fed if is_upgraded => connections.after_flush(id, fed),
        Ok(Flushed::Done) if is_complete => drop(connections.close(id)),
        Ok(flushed) => connections.hold(id, flushed == Flushed::Blocked),
        Err(_) => drop(connections.close(id)),
    }
}

/// Bytes that wait.
fn left_bytes(output: &Option<Box<Output>>) -> i64 {
    let waiting = output.as_ref().map_or(0, |output| output.waiting_bytes());
    i64::try_from(waiting).unwrap_or(i64::MAX)
}

fn multiplexer_of(connections: &mut Connections, id: ConnectionId) -> Option<&mut Multiplexer> {
    connections.slab.get_mut(id)?.multiplexer.as_deref_mut()
}

/// Sends what the session has written, and ends the connection when that is over.
pub(crate) fn pass_on(connections: &mut Connections, parent: ConnectionId) {
    loop {
        let Some(connection) = connections.slab.get_mut(parent) else { return };
        let Some(multiplexer) = connection.multiplexer.as_mut() else { return };
        if connection.output.is_some() {
            return;
        }
        multiplexer.needs_flush = false;
        multiplexer.session.flush();
        let bytes = multiplexer.session.take_unsent();
        if bytes.is_empty() {
            break;
        }
        let flushed = connection.deliver(&bytes, Payload::Empty, bytes.len());
        connections.after_flush(parent, flushed);
        if bytes.len() < UNSENT_BYTES_MAX {
            // That was all.
            break;
        }
    }
    let is_sent = takes_more(connections, parent);
    let multiplexer = multiplexer_of(connections, parent).filter(|_| is_sent);
    if let Some(multiplexer) = multiplexer.filter(|multiplexer| multiplexer.session.is_over()) {
        let fault = multiplexer.session.take_fault();
        multiplexer.is_faulty |= fault.is_some();
        if let Some(fault) = fault {
            blame(connections, parent, fault);
        }
        end(connections, parent);
    }
}

/// What its client has sent ends a connection.
fn blame(connections: &mut Connections, parent: ConnectionId, why: String) {
    if let Some(connection) = connections.slab.get(parent) {
        connections.faulty_peers.note(connection.peer, connections.clock.now_ms);
    }
    connections.warn("go on with a connection of HTTP/2", io::Error::other(why));
}

/// Ends a connection whose last bytes are sent.
fn end(connections: &mut Connections, id: ConnectionId) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let Some(multiplexer) = connection.multiplexer.take() else { return };
    let now_ms = connections.clock.now_ms;
    let is_expected = multiplexer.session.is_leaving() && !multiplexer.is_faulty;
    if !is_expected {
        // The client may be sending: a close at once could take back from it what it was told.
        connection.linger(now_ms);
    }
    for stream in multiplexer.streams() {
        connections.close(stream);
    }
    if is_expected {
        return connections.hang_up(id);
    }
    connections.settle(id);
}

/// Ends a connection whose client costs too much, and says so in the log.
pub(crate) fn give_up(connections: &mut Connections, parent: ConnectionId, why: &str) {
    blame(connections, parent, why.to_owned());
    if let Some(multiplexer) = multiplexer_of(connections, parent) {
        multiplexer.is_faulty = true;
        multiplexer.session.give_up();
    }
    pass_on(connections, parent);
}

/// Ends a connection on which nothing happens.
pub(crate) fn close(connections: &mut Connections, parent: ConnectionId) {
    if let Some(multiplexer) = multiplexer_of(connections, parent) {
        multiplexer.session.close();
    }
    pass_on(connections, parent);
}

/// Bytes that the client of a stream has taken of all its responses, from an arbitrary start. None if it is no stream.
pub(crate) fn taken_bytes(connections: &Connections, id: ConnectionId) -> Option<i64> {
    let parent = connections.slab.get(parent_of(connections, id)?)?;
    parent.multiplexer.as_ref().map(|multiplexer| multiplexer.fed_bytes)
}

/// Tells a client to ask elsewhere from now on.
pub(crate) fn leave(connections: &mut Connections, parent: ConnectionId) {
    let now_ms = connections.clock.now_ms;
    let Some(connection) = connections.slab.get_mut(parent) else { return };
    let multiplexer = connection.multiplexer.as_mut();
    let Some(multiplexer) = multiplexer.filter(|it| !it.session.is_leaving()) else { return };
    multiplexer.session.leave();
    connection.since_ms = now_ms;
    pass_on(connections, parent);
    connections.settle(parent);
}

/// Tells all clients that speak HTTP/2.
pub(crate) fn leave_all(connections: &mut Connections) {
    let is_parent = |id: &ConnectionId| {
        connections.slab.get(*id).is_some_and(|connection| connection.multiplexer.is_some())
    };
    let parents: Vec<_> = connections.slab.ids().filter(is_parent).collect();
    parents.into_iter().for_each(|id| leave(connections, id));
}
