//! What comes in becomes a request: heads and bodies, read a turn at a time.

use std::io;

use thruway_http1::response::Terms;
use thruway_http1::{BodyDecoder, Framing, Head, Limits, Piece, Refusal, Request};

use crate::connection::{Connection, Payload, Phase, Received};
use crate::core::Core;
use crate::engine::Engine;
use crate::exchange::{Exchange, Handler};
use crate::output::QUANTUM_BYTES;
use crate::table::Key;
use crate::upload::{Body, Spool, Upload};

impl Engine {
    /// Reads a head, or a piece of one, and goes on with the request when it is whole.
    pub(crate) fn read_head(&mut self, key: Key, handler: &mut impl Handler) {
        let Some(connection) = self.core.table.get_mut(key) else { return };
        let mut own = std::mem::take(&mut connection.input);
        connection.has_head = false;
        let seen = connection.seen;
        if own.is_empty() {
            connection.since_ms = self.core.now_ms;
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
                Received::Later => return connection.input = own,
                Received::Ended => return drop(self.core.close(key)),
            }
        };
        match self.head.parse(bytes, seen, &self.core.settings.limits) {
            Ok(false) => connection.keep(bytes, bytes.len()),
            Err(refusal) => self.core.refuse(key, refusal),
            Ok(true) if handler.is_present() || has_body(&self.head, bytes) => {
                begin(&mut self.core, key, &self.head, bytes, handler);
            }
            Ok(true) => {
                connection.keep(bytes, 0);
                connection.has_head = true;
            }
        }
        self.read_what_came_with_the_head(key, handler);
    }

    /// A body's first bytes often come in one packet with the head.
    fn read_what_came_with_the_head(&mut self, key: Key, handler: &mut impl Handler) {
        let connection = self.core.table.get(key);
        let is_waiting = |connection: &Connection| {
            matches!(connection.phase, Phase::Receiving(_)) && connection.has_work()
        };
        if connection.is_some_and(is_waiting) {
            self.read_body(key, handler);
        }
    }

    /// Reads a piece of a body, and hands the request on when it is whole.
    pub(crate) fn read_body(&mut self, key: Key, handler: &mut impl Handler) {
        let Some(connection) = self.core.table.get_mut(key) else { return };
        if matches!(&connection.phase, Phase::Receiving(upload) if upload.is_whole) {
            return finish_upload(&mut self.core, key, handler);
        }
        let own = std::mem::take(&mut connection.input);
        let bytes = if own.is_empty() {
            match connection.receive(&mut self.inbox) {
                Received::Bytes(length) => &self.inbox[..length],
                Received::Later => return,
                Received::Ended => return drop(self.core.close(key)),
            }
        } else {
            &own[..]
        };
        let Phase::Receiving(upload) = &mut connection.phase else { return };
        match upload.take(bytes, &self.core.settings.limits) {
            Err(Trouble::Refused(refusal)) => self.core.refuse(key, refusal),
            Err(Trouble::Disk(error)) => give_up_body(&mut self.core, key, error),
            Ok(None) => {}
            Ok(Some(used)) => {
                upload.is_whole = true;
                connection.keep(&bytes[used..], 0);
                if handler.is_present() {
                    finish_upload(&mut self.core, key, handler);
                }
            }
        }
    }
}

/// Why a body was not taken.
enum Trouble {
    Refused(Refusal),
    Disk(io::Error),
}

impl Upload {
    /// Takes bytes of the body; how many of them belong to it, once it is whole.
    fn take(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Trouble> {
        let mut at = 0;
        loop {
            let (used, piece) =
                self.decoder.next(&bytes[at..], limits).map_err(Trouble::Refused)?;
            at += used;
            match piece {
                Piece::Data(data) => self.spool.write(data).map_err(Trouble::Disk)?,
                Piece::More => return Ok(None),
                Piece::End => return Ok(Some(at)),
            }
        }
    }
}

fn has_body(head: &Head, bytes: &[u8]) -> bool {
    let request = head.request(&bytes[..head.length_bytes()]);
    !matches!(request.framing(), Framing::None | Framing::Length(0))
}

/// Goes on with a request whose head is whole: to its handler, or to its body first.
fn begin(core: &mut Core, key: Key, head: &Head, bytes: &[u8], handler: &mut impl Handler) {
    let (head_bytes, rest) = bytes.split_at(head.length_bytes());
    let request = head.request(head_bytes);
    let decoder = match BodyDecoder::new(request.framing(), &core.settings.limits) {
        Ok(decoder) => decoder,
        Err(refusal) => return core.refuse(key, refusal),
    };
    let Some(connection) = core.table.get_mut(key) else { return };
    connection.keep(rest, 0);
    if matches!(request.framing(), Framing::None | Framing::Length(0)) {
        return hand_over(core, key, &request, Body::empty(), handler);
    }
    let spool = if handler.wants_body() {
        Spool::keep(core.settings.body_memory_bytes_max)
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
        core.after_flush(key, go_on);
    }
}

/// Hands a request to its handler when its body is whole.
fn finish_upload(core: &mut Core, key: Key, handler: &mut impl Handler) {
    let Some(connection) = core.table.get_mut(key) else { return };
    let Phase::Receiving(upload) = std::mem::replace(&mut connection.phase, Phase::Waiting) else {
        return;
    };
    let Upload { head, head_bytes, spool, .. } = *upload;
    match spool.finish() {
        Ok(body) => hand_over(core, key, &head.request(&head_bytes), body, handler),
        Err(error) => give_up_body(core, key, error),
    }
}

/// The disk is full, or there is no folder for files without names.
fn give_up_body(core: &mut Core, key: Key, error: io::Error) {
    core.note_trouble("keep a request's body", error);
    core.hang_up_with(key, 507, "the body cannot be kept");
}

fn hand_over(
    core: &mut Core,
    key: Key,
    request: &Request<'_>,
    body: Body,
    handler: &mut impl Handler,
) {
    let mut terms = Terms::of(request);
    terms.is_persistent &= !core.is_draining;
    let now_ms = core.now_ms;
    let Some(ticket) = core.begin_request(key) else { return };
    let Some(connection) = core.table.get_mut(key) else { return };
    connection.since_ms = now_ms;
    let (peer, listener) = (connection.peer, connection.listener);
    let mut exchange = Exchange { core, ticket, terms, peer, listener, body, is_taken: false };
    handler.handle(request, &mut exchange);
    if !exchange.is_taken {
        exchange.answer_text(500, "nobody answered");
    }
}
