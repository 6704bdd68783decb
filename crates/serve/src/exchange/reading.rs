//! What comes in becomes a request: heads and bodies, read a turn at a time.

use std::io;

use thruway_http1::field::members;
use thruway_http1::response::ResponseConstraints;
use thruway_http1::{
    BodyDecoder, Head, KnownField, Limits, ParseError, Piece, Request, RequestFraming,
};

use crate::entry::upload::{Body, Spool, Upload};
use crate::entry::{Connection, Payload, Phase, Received};
use crate::events::slab::ConnectionId;
use crate::exchange::admission::{self, LATE};
use crate::exchange::closing;
use crate::exchange::counting;
use crate::exchange::fairness;
use crate::exchange::handler::{Exchange, Handler};
use crate::exchange::http2::begin;
use crate::exchange::observer;
use crate::exchange::proxy_head;
use crate::exchange::response::ResponseWriter;
use crate::output::QUANTUM_BYTES;
use crate::store::Connections;

/// Bytes read at once. A head that has come whole is parsed where it was read.
const INBOX_BYTES: usize = 64 << 10;

/// Reads requests: the memory for it, which all connections share.
#[derive(Debug)]
pub(crate) struct RequestReader {
    pub(crate) inbox: Vec<u8>,
    head: Head,
}

impl RequestReader {
    pub(crate) fn new() -> Self {
        Self { inbox: vec![0; INBOX_BYTES], head: Head::new() }
    }

    /// Reads a head, or a piece of one, and goes on with the request when it is whole.
    pub(crate) fn read_head(
        &mut self,
        connections: &mut Connections,
        id: ConnectionId,
        handler: &mut impl Handler,
    ) {
        let Some(connection) = connections.slab.get_mut(id) else { return };
        let mut own = std::mem::take(&mut connection.input);
        let was_whole = std::mem::take(&mut connection.has_head);
        let (seen, since_ms) = (connection.seen, connection.since_ms);
        if own.is_empty() {
            connection.since_ms = connections.clock.now_ms;
        }
        let bytes = if seen < own.len() {
            &own[..]
        } else {
            match connection.receive(&mut self.inbox) {
                Received::Bytes(length) if own.is_empty() => &self.inbox[..length],
                Received::Bytes(length) => {
                    own.extend_from_slice(&self.inbox[..length]);
                    &own[..]
                }
                Received::Later => {
                    // A piece of a record is not yet a byte of a head, which alone begins another time.
                    (connection.since_ms, connection.input) = (since_ms, own);
                    return;
                }
                Received::Ended => return drop(connections.close(id)),
            }
        };
        if connection.awaits_proxy_head {
            connection.keep(bytes, bytes.len());
            if proxy_head::take_kept(connections, id) {
                self.read_head(connections, id, handler);
            }
            return;
        }
        match self.head.parse(bytes, seen, &connections.settings.limits) {
            Ok(false) => connection.keep(bytes, bytes.len()),
            Err(_) if begin::takes(connections, id, bytes) => {}
            Err(error) => closing::refuse(connections, id, error),
            Ok(true) => {
                let request = self.head.request(&bytes[..self.head.length_bytes()]);
                if observer::is_observer(connections, id) {
                    let rest = &bytes[self.head.length_bytes()..];
                    return observer::respond(connections, id, &request, rest);
                }
                if admission::is_health_check(connections, &request) {
                    let rest = &bytes[self.head.length_bytes()..];
                    return admission::tell_health(connections, id, &request, rest);
                }
                fairness::identify(connections, id, &request);
                // A body comes before the turn.
                let goes_on = has_body(&self.head, bytes)
                    || handler.is_present() && fairness::has_turn(connections, id);
                if goes_on {
                    begin_request(connections, id, &self.head, bytes, handler);
                } else if let Some(connection) = connections.slab.get_mut(id) {
                    connection.keep(bytes, 0);
                    connection.has_head = true;
                    if !was_whole {
                        admission::note_wait(connections, id, &request);
                    }
                }
            }
        }
        self.read_what_came_with_the_head(connections, id, handler);
    }

    /// A body's first bytes often come in one packet with the head.
    fn read_what_came_with_the_head(
        &mut self,
        connections: &mut Connections,
        id: ConnectionId,
        handler: &mut impl Handler,
    ) {
        let is_waiting = |connection: &Connection| {
            matches!(connection.phase, Phase::Receiving(_)) && connection.has_work()
        };
        if connections.slab.get(id).is_some_and(is_waiting) {
            self.read_body(connections, id, handler);
        }
    }

    /// Reads a piece of a body, and hands the request on when it is whole.
    pub(crate) fn read_body(
        &mut self,
        connections: &mut Connections,
        id: ConnectionId,
        handler: &mut impl Handler,
    ) {
        let Some(connection) = connections.slab.get_mut(id) else { return };
        if matches!(&connection.phase, Phase::Receiving(upload) if upload.is_whole) {
            if fairness::has_turn(connections, id) {
                finish_upload(connections, id, handler);
            }
            return;
        }
        let own = std::mem::take(&mut connection.input);
        let bytes = if own.is_empty() {
            match connection.receive(&mut self.inbox) {
                Received::Bytes(length) => &self.inbox[..length],
                Received::Later => return,
                Received::Ended => return drop(connections.close(id)),
            }
        } else {
            &own[..]
        };
        let Phase::Receiving(upload) = &mut connection.phase else { return };
        match upload.take(bytes, &connections.settings.limits) {
            Err(BodyError::Refused(error)) => closing::refuse(connections, id, error),
            Err(BodyError::Disk(error)) => closing::give_up_body(connections, id, error),
            Ok(None) => {}
            Ok(Some(used)) => {
                upload.is_whole = true;
                connection.keep(&bytes[used..], 0);
                if handler.is_present() && fairness::has_turn(connections, id) {
                    finish_upload(connections, id, handler);
                } else {
                    admission::note_wait_of_body(connections, id);
                }
            }
        }
    }
}

/// Why a body was not taken.
enum BodyError {
    Refused(ParseError),
    Disk(io::Error),
}

impl Upload {
    /// Takes bytes of the body; how many of them belong to it, once it is whole.
    fn take(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, BodyError> {
        let mut at = 0;
        loop {
            let (used, piece) =
                self.decoder.next(&bytes[at..], limits).map_err(BodyError::Refused)?;
            at += used;
            match piece {
                Piece::Data(data) => self.spool.write(data).map_err(BodyError::Disk)?,
                Piece::More => return Ok(None),
                Piece::End => return Ok(Some(at)),
            }
        }
    }
}

fn has_body(head: &Head, bytes: &[u8]) -> bool {
    let request = head.request(&bytes[..head.length_bytes()]);
    !matches!(request.framing(), RequestFraming::None | RequestFraming::Length(0))
}

/// Goes on with a request whose head is whole: to its handler, or to its body first.
fn begin_request(
    connections: &mut Connections,
    id: ConnectionId,
    head: &Head,
    bytes: &[u8],
    handler: &mut impl Handler,
) {
    let (head_bytes, rest) = bytes.split_at(head.length_bytes());
    let request = head.request(head_bytes);
    let decoder = match BodyDecoder::new(request.framing(), &connections.settings.limits) {
        Ok(decoder) => decoder,
        Err(error) => return closing::refuse(connections, id, error),
    };
    let Some(connection) = connections.slab.get_mut(id) else { return };
    connection.keep(rest, 0);
    if matches!(request.framing(), RequestFraming::None | RequestFraming::Length(0)) {
        return hand_over(connections, id, &request, Body::empty(), handler);
    }
    let spool = if handler.wants_body() {
        Spool::keep(connections.settings.body_memory_bytes_max)
    } else {
        Spool::Discard
    };
    let upload = Upload {
        head: head.clone(),
        head_bytes: head_bytes.to_vec(),
        decoder,
        spool,
        is_whole: false,
    };
    connection.phase = Phase::Receiving(Box::new(upload));
    if request.expects_continue() && rest.is_empty() {
        let go_on =
            connection.deliver(b"HTTP/1.1 100 Continue\r\n\r\n", Payload::Empty, QUANTUM_BYTES);
        connections.after_flush(id, go_on);
    }
}

/// Hands a request to its handler when its body is whole.
fn finish_upload(connections: &mut Connections, id: ConnectionId, handler: &mut impl Handler) {
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let Phase::Receiving(upload) = std::mem::replace(&mut connection.phase, Phase::Waiting) else {
        return;
    };
    let Upload { head, head_bytes, spool, .. } = *upload;
    match spool.finish() {
        Ok(body) => hand_over(connections, id, &head.request(&head_bytes), body, handler),
        Err(error) => closing::give_up_body(connections, id, error),
    }
}

fn hand_over(
    connections: &mut Connections,
    id: ConnectionId,
    request: &Request<'_>,
    body: Body,
    handler: &mut impl Handler,
) {
    let mut constraints = ResponseConstraints::of(request);
    constraints.is_persistent &= !connections.parts_with(id);
    let now_ms = connections.clock.now_ms;
    let is_late = admission::is_late(connections, id, request);
    let Some(ticket) = connections.begin_request(id) else { return };
    counting::begin(connections, id, request);
    let Some(connection) = connections.slab.get_mut(id) else { return };
    connection.since_ms = now_ms;
    let (peer, listener, is_trusted) =
        (connection.peer, connection.listener, connection.is_trusted);
    let source = connections.settings.client_source;
    let is_https = is_trusted && (source.is_https(request) || has_https_before(request));
    let peer = connections.settings.client_of(request, peer, is_trusted);
    let writer = ResponseWriter::new(connections, ticket);
    let mut exchange =
        Exchange { writer, constraints, peer, is_https, listener, body, is_taken: false };
    if is_late {
        return exchange.respond_text(503, LATE);
    }
    handler.handle(request, &mut exchange);
    if !exchange.is_taken {
        exchange.respond_text(500, "there is no response");
    }
}

/// Whether a proxy says that the client speaks TLS.
fn has_https_before(request: &Request<'_>) -> bool {
    let proto = request.known(KnownField::ForwardedProto);
    let first = proto.and_then(|proto| members(proto).next());
    first.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
}
