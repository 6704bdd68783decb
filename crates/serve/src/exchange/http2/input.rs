//! Input of HTTP/2: streams begin, and their requests are received.

use thruway_http1::{BodyDecoder, Head, ParseError, RequestFraming};
use thruway_http2::{BodyPart, Progress, Stream};

use crate::entry::socket_state::UpgradedSocket;
use crate::entry::upload::{Spool, Upload};
use crate::entry::{self, ReadOutcome, State};
use crate::exchange::admission;
use crate::exchange::cached::lookup;
use crate::exchange::closing;
use crate::exchange::fairness;
use crate::exchange::observer;
use crate::exchange::secure_site;
use crate::store::entry_mut::EntryMut;

use super::output;

/// Performs a connection's turn: processes the input, and sends some of the waiting output.
pub(crate) fn go_on(mut connection: EntryMut<'_>, inbox: &mut [u8]) {
    if connection.output.is_some() {
        let Some(flushed) = connection.flush() else { return };
        if flushed.output.is_some() {
            return;
        }
        connection = flushed;
    }
    let Some(connection) = receive(connection, inbox) else { return };
    let Some(connection) = advance(connection) else { return };
    if let Some(connection) = output::pass_on(connection) {
        output::send_some(connection);
    }
}

/// Reads the available input. Returns the connection unless it is over.
fn receive<'a>(mut guard: EntryMut<'a>, inbox: &mut [u8]) -> Option<EntryMut<'a>> {
    let now_ms = guard.store.clock.now_ms;
    let connection = &mut *guard;
    let own = std::mem::take(&mut connection.input.bytes);
    let bytes = if own.is_empty() {
        match connection.receive(inbox) {
            ReadOutcome::Bytes(length) => &inbox[..length],
            ReadOutcome::Later => return Some(guard),
            ReadOutcome::Ended => {
                guard.close();
                return None;
            }
        }
    } else {
        &own[..]
    };
    let multiplexer = connection.multiplexer_mut()?;
    if let Err(excess) = multiplexer.session.receive(bytes, now_ms) {
        output::give_up(guard, &excess.to_string());
        return None;
    }
    let is_in_head = multiplexer.session.is_in_head();
    let since_ms = multiplexer.head_since_ms.unwrap_or(now_ms);
    multiplexer.head_since_ms = is_in_head.then_some(since_ms);
    Some(guard)
}

/// Begins the new streams, and attends to the streams with news. Returns the connection unless it is over.
fn advance(connection: EntryMut<'_>) -> Option<EntryMut<'_>> {
    let (store, id) = connection.into_parts();
    loop {
        let Some(multiplexer) = store.find_multiplexer(id) else { return store.find(id) };
        match multiplexer.session.progress() {
            Progress::Request(head, stream) => open(store.at(id), head, *stream),
            Progress::Idle => break,
            Progress::Over => return store.find(id),
        }
    }
    let Some(multiplexer) = store.find_multiplexer(id) else { return store.find(id) };
    let woken = multiplexer.session.take_woken();
    let streams: Vec<_> = woken.iter().filter_map(|number| multiplexer.stream(*number)).collect();
    for stream in streams {
        // A stream may have ended together with the previous stream.
        if let Some(stream) = store.find(stream) {
            attend(stream);
        }
    }
    store.find(id)
}

/// Begins a request.
fn open(mut connection: EntryMut<'_>, head_bytes: Option<Vec<u8>>, stream: Stream) {
    if connection.store.service.closes_after_response() {
        output::leave(connection.reborrow());
    }
    let Some(connection) = connection.if_open() else { return };
    let (store, parent) = connection.into_parts();
    let (mut head, has_host) = (Head::new(), head_bytes.is_some());
    let (head_bytes, limits) = (head_bytes.unwrap_or_default(), &store.settings.limits);
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
    // An empty body cannot exceed a limit.
    let Ok(decoder) = decoder else { unreachable!("a request without a body was refused") };
    let spool = Spool::keep(store.settings.body_memory_bytes_max);
    // The bytes behind the head of a WebSocket are not a body.
    let is_whole = stream.opens_websocket();
    let upload = Upload { head, head_bytes, decoder, spool, is_whole };
    let stream = store.open_stream(parent, stream, upload);
    match error {
        Some(error) => closing::refuse(stream, error),
        None => judge(stream),
    }
    if let Some(mut connection) = store.find(parent) {
        connection.is_fresh = false;
    }
}

/// Continues with a request whose head is valid.
fn judge(mut stream: EntryMut<'_>) {
    let upload = stream.take_upload();
    let request = upload.head.request(&upload.head_bytes);
    if observer::is_observer(&stream) {
        return observer::respond(stream, &request, &[]);
    }
    if admission::is_health_check(stream.store, &request) {
        return admission::respond_health(stream, &request, &[]);
    }
    if let Some(own) = secure_site::response_to(&mut stream, &request) {
        return secure_site::respond(stream, &request, &[], &own);
    }
    if stream.store.cache.is_some() {
        let Some(left) = lookup::respond(stream, &request, &[]) else { return };
        stream = left;
    }
    fairness::identify(&mut stream, &request);
    if request.expects_continue() {
        output::inform(stream.reborrow(), b"HTTP/1.1 100 Continue\r\n\r\n");
    }
    if let Some(mut stream) = stream.if_open() {
        stream.state = State::Receiving(upload);
        attend(stream);
    }
}

/// Processes the news of a stream.
fn attend(mut guard: EntryMut<'_>) {
    let stream = &mut *guard;
    if entry::upgraded(stream).is_some_and(UpgradedSocket::is_over) {
        // The stream's owner has not been notified of the end yet.
        return;
    }
    stream.readiness.is_readable |= entry::upgraded(stream).is_some();
    let Some(link) = stream.carrier.stream_mut() else {
        unreachable!("a session has woken an entry that is no stream");
    };
    if link.stream.is_gone() {
        return drop(guard.close());
    }
    if stream.output.is_some() {
        output::begin_sending(&mut guard);
    }
    let was_whole = guard.needs_handler();
    let Some(mut stream) = take_body(guard) else { return };
    stream.settle();
    if !was_whole && stream.needs_handler() {
        admission::note_wait_of_body(&mut stream);
    }
}

/// Reads the available part of a request's body.
fn take_body(mut guard: EntryMut<'_>) -> Option<EntryMut<'_>> {
    let most = guard.store.settings.limits.body_bytes_max;
    loop {
        let stream = &mut *guard;
        let (State::Receiving(upload), Some(link)) =
            (&mut stream.state, stream.carrier.stream_mut())
        else {
            return Some(guard);
        };
        if upload.is_whole {
            return Some(guard);
        }
        match link.stream.receive() {
            BodyPart::Later => return Some(guard),
            BodyPart::End => upload.is_whole = true,
            BodyPart::Gone => {
                guard.close();
                return None;
            }
            BodyPart::Data(data) => {
                link.received_bytes += data.len() as u64;
                if link.received_bytes > most {
                    closing::refuse(guard.reborrow(), ParseError::BodyTooLarge);
                    return guard.if_open();
                }
                if let Err(error) = upload.spool.write(&data) {
                    closing::give_up_body(guard.reborrow(), error);
                    return guard.if_open();
                }
            }
        }
    }
}
