//! Reads requests from clients, a head or a piece of a body in each turn.

use std::io;

use thruway_http1::response::ResponseConstraints;
use thruway_http1::{BodyDecoder, Head, Limits, ParseError, Piece, Request};

use crate::entry::upload::{Body, Spool, Upload};
use crate::entry::{Payload, ReadOutcome, State};
use crate::exchange::admission::{self, LATE};
use crate::exchange::cached::request::has_https_before;
use crate::exchange::cached::{departure, lookup};
use crate::exchange::closing;
use crate::exchange::counting;
use crate::exchange::fairness;
use crate::exchange::handler::{Exchange, Handler};
use crate::exchange::http2::begin;
use crate::exchange::observer;
use crate::exchange::proxy_head;
use crate::exchange::response::ResponseWriter;
use crate::exchange::secure_site;
use crate::output::QUANTUM_BYTES;
use crate::store::entry_mut::EntryMut;

/// The size of the inbox, the buffer of each read. A head that arrives complete is parsed in place.
const INBOX_BYTES: usize = 64 << 10;

/// The memory for reading requests, which all connections share.
#[derive(Debug)]
pub(crate) struct RequestReader {
    pub(crate) inbox: Vec<u8>,
    head: Head,
}

impl RequestReader {
    pub(crate) fn new() -> Self {
        Self { inbox: vec![0; INBOX_BYTES], head: Head::new() }
    }

    /// Reads a head, or a piece of a head, and continues with the request once the head is complete.
    pub(crate) fn read_head(&mut self, mut guard: EntryMut<'_>, handler: &mut impl Handler) {
        let now_ms = guard.store.clock.now_ms;
        let entry = &mut *guard;
        let mut own = std::mem::take(&mut entry.input.bytes);
        let was_whole = std::mem::take(&mut entry.input.has_head);
        let (seen, since_ms) = (entry.input.searched, entry.since_ms);
        if own.is_empty() {
            entry.since_ms = now_ms;
        }
        let bytes = if seen < own.len() {
            &own[..]
        } else {
            match entry.receive(&mut self.inbox) {
                ReadOutcome::Bytes(length) if own.is_empty() => &self.inbox[..length],
                ReadOutcome::Bytes(length) => {
                    own.extend_from_slice(&self.inbox[..length]);
                    &own[..]
                }
                ReadOutcome::Later => {
                    // A part of a TLS record is not yet a byte of a head. Only the first byte of a head restarts the
                    // time limit.
                    (entry.since_ms, entry.input.bytes) = (since_ms, own);
                    return;
                }
                ReadOutcome::Ended => return drop(guard.close()),
            }
        };
        if entry.awaits_proxy_head {
            entry.keep(bytes, bytes.len());
            if let Some(entry) = proxy_head::take_kept(guard) {
                self.read_head(entry, handler);
            }
            return;
        }
        let rest = match self.head.parse(bytes, seen, &guard.store.settings.limits) {
            Ok(true) => take_head(guard, &self.head, bytes, was_whole, handler),
            Ok(false) => {
                guard.keep(bytes, bytes.len());
                None
            }
            Err(error) => {
                if let Some(entry) = begin::take(guard, bytes) {
                    closing::refuse(entry, error);
                }
                None
            }
        };
        // The first bytes of a body often arrive in the same packet as the head.
        if let Some(entry) = rest {
            self.read_body(entry, handler);
        }
    }

    /// Reads a piece of a body, and hands over the request once the body is complete.
    pub(crate) fn read_body(&mut self, mut guard: EntryMut<'_>, handler: &mut impl Handler) {
        let entry = &mut *guard;
        if matches!(&entry.state, State::Receiving(upload) if upload.is_whole) {
            if fairness::has_turn(&mut guard) {
                depart(guard, handler);
            }
            return;
        }
        let own = std::mem::take(&mut entry.input.bytes);
        let bytes = if own.is_empty() {
            match entry.receive(&mut self.inbox) {
                ReadOutcome::Bytes(length) => &self.inbox[..length],
                ReadOutcome::Later => return,
                ReadOutcome::Ended => return drop(guard.close()),
            }
        } else {
            &own[..]
        };
        let (store, id) = guard.into_parts();
        let State::Receiving(upload) = &mut store.slab[id].state else {
            unreachable!("a body is read while a request is received");
        };
        let taken = upload.take(bytes, &store.settings.limits);
        if let Ok(Some(_)) = taken {
            upload.is_whole = true;
        }
        let mut guard = store.at(id);
        match taken {
            Err(BodyError::Refused(error)) => closing::refuse(guard, error),
            Err(BodyError::Disk(error)) => closing::give_up_body(guard, error),
            Ok(None) => {}
            Ok(Some(used)) => {
                guard.keep(&bytes[used..], 0);
                if handler.is_present() && fairness::has_turn(&mut guard) {
                    depart(guard, handler);
                } else {
                    admission::note_wait_of_body(&mut guard);
                }
            }
        }
    }
}

/// Continues with a request whose head is complete: the server itself responds, the request begins, or the request
/// waits for its turn. `was_whole` tells whether the head was already complete at an earlier turn. Returns the
/// connection if a part of the body has already arrived.
fn take_head<'a>(
    mut entry: EntryMut<'a>,
    head: &Head,
    bytes: &[u8],
    was_whole: bool,
    handler: &mut impl Handler,
) -> Option<EntryMut<'a>> {
    let (head_bytes, rest) = bytes.split_at(head.length_bytes());
    let request = head.request(head_bytes);
    if observer::is_observer(&entry) {
        observer::respond(entry, &request, rest);
        return None;
    }
    if admission::is_health_check(entry.store, &request) {
        admission::respond_health(entry, &request, rest);
        return None;
    }
    if let Some(own) = secure_site::response_to(&mut entry, &request) {
        secure_site::respond(entry, &request, rest, &own);
        return None;
    }
    if entry.store.cache.is_some() {
        entry = lookup::respond(entry, &request, rest)?;
    }
    fairness::identify(&mut entry, &request);
    // The body is read before the request's turn.
    if request.has_body() {
        return begin_request(entry, head, bytes, handler);
    }
    if handler.is_present() && fairness::has_turn(&mut entry) {
        match departure::departs(&mut entry, &request) {
            Ok(()) => return begin_request(entry, head, bytes, handler),
            Err(tag) => {
                entry.keep(bytes, 0);
                entry.input.has_head = true;
                departure::wait(entry, tag);
                return None;
            }
        }
    }
    entry.keep(bytes, 0);
    entry.input.has_head = true;
    if !was_whole {
        admission::note_wait(&mut entry, &request);
    }
    None
}

/// The reason why a body was not accepted.
enum BodyError {
    Refused(ParseError),
    Disk(io::Error),
}

impl Upload {
    /// Adds bytes to the body. Returns the number of bytes that belong to the body, once the body is complete.
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

/// Continues with a request whose head is complete: the handler gets the request, or the body is read first. Returns
/// the connection if a part of the body can be read now.
fn begin_request<'a>(
    mut guard: EntryMut<'a>,
    head: &Head,
    bytes: &[u8],
    handler: &mut impl Handler,
) -> Option<EntryMut<'a>> {
    let (head_bytes, rest) = bytes.split_at(head.length_bytes());
    let request = head.request(head_bytes);
    let decoder = match BodyDecoder::new(request.framing(), &guard.store.settings.limits) {
        Ok(decoder) => decoder,
        Err(error) => {
            closing::refuse(guard, error);
            return None;
        }
    };
    guard.keep(rest, 0);
    if !request.has_body() {
        hand_over(guard, &request, Body::empty(), handler);
        return None;
    }
    let spool = if handler.wants_body() {
        Spool::keep(guard.store.settings.body_memory_bytes_max)
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
    let entry = &mut *guard;
    entry.state = State::Receiving(Box::new(upload));
    if request.expects_continue() && rest.is_empty() {
        let go_on = entry.deliver(b"HTTP/1.1 100 Continue\r\n\r\n", Payload::Empty, QUANTUM_BYTES);
        guard = guard.after_flush(go_on)?;
    }
    guard.has_work().then_some(guard)
}

/// Hands a request whose body is complete to its handler, or lets the request wait for another request's response.
fn depart(mut entry: EntryMut<'_>, handler: &mut impl Handler) {
    if entry.store.cache.is_none() {
        return finish_upload(entry, handler);
    }
    let upload = entry.take_upload();
    let request = upload.head.request(&upload.head_bytes);
    if !entry.is_background() {
        // Another request may have stored the response in the meantime. The cache does not answer requests with bodies.
        let Some(left) = lookup::respond(entry, &request, &[]) else { return };
        entry = left;
    }
    let departed = departure::departs(&mut entry, &request);
    entry.state = State::Receiving(upload);
    match departed {
        Ok(()) => finish_upload(entry, handler),
        Err(tag) => departure::wait(entry, tag),
    }
}

/// Hands a request whose body is complete to its handler.
fn finish_upload(mut entry: EntryMut<'_>, handler: &mut impl Handler) {
    let upload = entry.take_upload();
    let Upload { head, head_bytes, spool, .. } = *upload;
    match spool.finish() {
        Ok(body) => hand_over(entry, &head.request(&head_bytes), body, handler),
        Err(error) => closing::give_up_body(entry, error),
    }
}

fn hand_over(
    mut guard: EntryMut<'_>,
    request: &Request<'_>,
    body: Body,
    handler: &mut impl Handler,
) {
    let mut constraints = ResponseConstraints::of(request);
    constraints.is_persistent &= !guard.closes_after_response();
    let now_ms = guard.store.clock.now_ms;
    let is_late = admission::is_late(&guard, request);
    let validating = departure::validating(&guard, request);
    let ticket = guard.begin_request();
    counting::begin(&mut guard, request);
    let entry = &mut *guard;
    entry.since_ms = now_ms;
    let (peer, listener, is_trusted) = (entry.peer, entry.listener, entry.is_trusted);
    let (store, _) = guard.into_parts();
    let source = store.settings.client_source;
    let is_https = is_trusted && (source.is_https(request) || has_https_before(request));
    let peer = store.settings.client_of(request, peer, is_trusted);
    let writer = ResponseWriter::new(store, ticket);
    let mut exchange =
        Exchange { writer, constraints, peer, is_https, listener, body, is_taken: false };
    if is_late {
        return exchange.respond_text(503, LATE);
    }
    match &validating {
        None => handler.handle(request, &mut exchange),
        Some((head, bytes)) => handler.handle(&head.request(bytes), &mut exchange),
    }
    if !exchange.is_taken {
        exchange.respond_text(500, "the application sent no response");
    }
}
