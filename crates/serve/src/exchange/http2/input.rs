//! What comes in by HTTP/2: streams begin, and their requests become whole.

use thruway_http1::{BodyDecoder, Head, ParseError, RequestFraming};
use thruway_http2::{Incoming, Progress, Stream};

use crate::entry::socket_state::Upgraded;
use crate::entry::upload::{Spool, Upload};
use crate::entry::{self, Connection, Phase, Received};
use crate::events::slab::ConnectionId;
use crate::exchange::admission;
use crate::exchange::closing;
use crate::exchange::fairness;
use crate::exchange::observer;
use crate::store::Connections;

use super::output;

/// A connection's turn: takes what has come in, and sends some of what waits.
pub(crate) fn go_on(connections: &mut Connections, id: ConnectionId, inbox: &mut [u8]) {
    let has_output = |connections: &Connections| {
        connections.slab.get(id).is_some_and(|connection| connection.output.is_some())
    };
    if has_output(connections) {
        connections.flush(id);
        if has_output(connections) {
            return;
        }
    }
    if receive(connections, id, inbox) {
        advance(connections, id);
        output::pass_on(connections, id);
        output::send_some(connections, id);
    }
}

/// Reads what is there; false if the connection is over.
fn receive(connections: &mut Connections, id: ConnectionId, inbox: &mut [u8]) -> bool {
    let now_ms = connections.clock.now_ms;
    let Some(connection) = connections.slab.get_mut(id) else { return false };
    let own = std::mem::take(&mut connection.input);
    let bytes = if own.is_empty() {
        match connection.receive(inbox) {
            Received::Bytes(length) => &inbox[..length],
            Received::Later => return true,
            Received::Ended => {
                connections.close(id);
                return false;
            }
        }
    } else {
        &own[..]
    };
    let Some(multiplexer) = &mut connection.multiplexer else { return false };
    if let Err(excess) = multiplexer.session.receive(bytes, now_ms) {
        output::give_up(connections, id, &excess.to_string());
        return false;
    }
    let is_in_head = multiplexer.session.is_in_head();
    let since_ms = multiplexer.head_since_ms.unwrap_or(now_ms);
    multiplexer.head_since_ms = is_in_head.then_some(since_ms);
    true
}

/// Begins the streams that have come in, and goes on with those about which there is something new.
fn advance(connections: &mut Connections, id: ConnectionId) {
    loop {
        let multiplexer = connections.slab.get_mut(id).and_then(|it| it.multiplexer.as_mut());
        let Some(multiplexer) = multiplexer else { return };
        match multiplexer.session.progress() {
            Progress::Request(head, stream) => open(connections, id, head, *stream),
            Progress::Idle => break,
            Progress::Over => return,
        }
    }
    let multiplexer = connections.slab.get_mut(id).and_then(|it| it.multiplexer.as_mut());
    let Some(multiplexer) = multiplexer else { return };
    let woken = multiplexer.session.take_woken();
    let streams: Vec<_> = woken.iter().filter_map(|number| multiplexer.stream(*number)).collect();
    streams.into_iter().for_each(|stream| attend(connections, stream));
}

/// Begins a request.
fn open(
    connections: &mut Connections,
    parent: ConnectionId,
    head_bytes: Option<Vec<u8>>,
    stream: Stream,
) {
    if connections.stage.parts() {
        output::leave(connections, parent);
    }
    let (mut head, has_host) = (Head::new(), head_bytes.is_some());
    let (head_bytes, limits) = (head_bytes.unwrap_or_default(), &connections.settings.limits);
    let parsed = match head.parse(&head_bytes, 0, limits) {
        _ if !has_host => Err(ParseError::Host),
        Ok(true) => BodyDecoder::new(head.framing(), limits),
        Ok(false) => Err(ParseError::RequestLine),
        Err(error) => Err(error),
    };
    head.set_http2();
    let (decoder, error) = match parsed {
        Ok(decoder) => (Ok(decoder), None),
        Err(error) => (BodyDecoder::new(RequestFraming::None, limits), Some(error)),
    };
    // Without a body, there is nothing that could be too long.
    let Ok(decoder) = decoder else { return };
    let spool = Spool::keep(connections.settings.body_memory_bytes_max);
    // What comes behind the head of a WebSocket is no body.
    let is_whole = stream.opens_socket();
    let upload = Upload { head, head_bytes, decoder, spool, is_whole };
    let Some(id) = connections.open_stream(parent, stream, upload) else { return };
    match error {
        Some(error) => closing::refuse(connections, id, error),
        None => judge(connections, id),
    }
    if let Some(connection) = connections.slab.get_mut(parent) {
        connection.is_fresh = false;
    }
}

/// Goes on with a request whose head is right.
fn judge(connections: &mut Connections, id: ConnectionId) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let phase = std::mem::replace(&mut connection.phase, Phase::Waiting);
    let Phase::Receiving(upload) = phase else { return };
    let request = upload.head.request(&upload.head_bytes);
    if observer::is_observer(connections, id) {
        return observer::respond(connections, id, &request, &[]);
    }
    if admission::is_health_check(connections, &request) {
        return admission::tell_health(connections, id, &request, &[]);
    }
    fairness::identify(connections, id, &request);
    if request.expects_continue() {
        output::inform(connections, id, b"HTTP/1.1 100 Continue\r\n\r\n");
    }
    if let Some(connection) = connections.slab.get_mut(id) {
        connection.phase = Phase::Receiving(upload);
    }
    attend(connections, id);
}

/// Looks what is new about a stream.
fn attend(connections: &mut Connections, id: ConnectionId) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    if entry::upgraded(connection).is_some_and(Upgraded::is_over) {
        // Its owner is still to be told of its end.
        return;
    }
    connection.is_readable |= entry::upgraded(connection).is_some();
    let Some(link) = connection.carrier.stream_mut() else { return };
    if link.stream.is_gone() {
        return drop(connections.close(id));
    }
    if connection.output.is_some() {
        output::begin_sending(connections, id);
    }
    let was_whole = needs_handler(connections, id);
    take_body(connections, id);
    connections.settle(id);
    if !was_whole && needs_handler(connections, id) {
        admission::note_wait_of_body(connections, id);
    }
}

fn needs_handler(connections: &Connections, id: ConnectionId) -> bool {
    connections.slab.get(id).is_some_and(Connection::needs_handler)
}

/// Takes what is there of a request's body.
fn take_body(connections: &mut Connections, id: ConnectionId) {
    let most = connections.settings.limits.body_bytes_max;
    loop {
        let Some(connection) = connections.slab.get_mut(id) else { return };
        let Phase::Receiving(upload) = &mut connection.phase else { return };
        let Some(link) = connection.carrier.stream_mut().filter(|_| !upload.is_whole) else {
            return;
        };
        match link.stream.receive() {
            Incoming::Later => return,
            Incoming::End => upload.is_whole = true,
            Incoming::Gone => return drop(connections.close(id)),
            Incoming::Data(data) => {
                link.received_bytes += data.len() as u64;
                if link.received_bytes > most {
                    return closing::refuse(connections, id, ParseError::BodyTooLarge);
                }
                if let Err(error) = upload.spool.write(&data) {
                    return closing::give_up_body(connections, id, error);
                }
            }
        }
    }
}
