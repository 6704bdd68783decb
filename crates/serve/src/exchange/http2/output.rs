//! Output of HTTP/2: responses go to their streams, and streams go to the socket.

use std::io;

use thruway_http2::{Priority, UNSENT_BYTES_MAX};

use crate::entry::carrier::Carrier;
use crate::entry::{Entry, Payload, State};
use crate::events::slab::EntryId;
use crate::output::{FlushOutcome, Output, QUANTUM_BYTES};
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// The number of bytes of a stream that are sent before another stream has its turn.
const SLICE_BYTES: usize = 64 << 10;

/// The maximum size of a response that is corked. A longer response is sent immediately, since a call costs less than
/// its bytes do.
const CORKED_BYTES_MAX: i64 = 8 << 10;

/// The maximum time for which a response waits for other responses.
const CORKED_US_MAX: u64 = 500;

/// Returns the connection of a stream; none if the entry is not a stream.
pub(crate) fn parent_of(entry: &Entry) -> Option<EntryId> {
    entry.carrier.stream().map(|link| link.parent)
}

/// Sends the waiting output of a stream, as far as the client takes it now.
pub(crate) fn flush(stream: EntryMut<'_>) {
    let Some(parent) = parent_of(&stream) else { return };
    let (store, id) = stream.into_parts();
    hand_to_session(store.at(id), parent);
    pass_on_by_id(store, parent);
    settle(store, parent, id);
}

/// Sends a complete response, like [`flush`]. If the response is short and other responses of the connection are still
/// to come, the response waits until [`send_corked`].
pub(crate) fn cork(stream: EntryMut<'_>) {
    let Some(parent) = parent_of(&stream) else { return };
    if left_bytes(&stream.output) > CORKED_BYTES_MAX {
        return flush(stream);
    }
    let (store, id) = stream.into_parts();
    hand_to_session(store.at(id), parent);
    if store.find_multiplexer(parent).is_none_or(|multiplexer| multiplexer.is_idle()) {
        pass_on_by_id(store, parent);
    } else if !store.corked.contains(&parent) {
        if store.corked.is_empty() {
            store.corked_us = store.clock.now_us;
        }
        store.corked.push(parent);
    }
    settle(store, parent, id);
}

/// Sends the corked responses.
pub(crate) fn send_corked(store: &mut Store) {
    while let Some(parent) = store.corked.pop() {
        pass_on_by_id(store, parent);
        store.settle(parent);
    }
}

/// Sends the corked responses, if the first of them has waited for long enough.
pub(crate) fn send_corked_if_due(store: &mut Store) {
    if store.clock.now_us >= store.corked_us + CORKED_US_MAX {
        send_corked(store);
    }
}

/// Hands the waiting output of a stream to the session, if the stream has its turn.
fn hand_to_session(stream: EntryMut<'_>, parent: EntryId) {
    if takes_more(stream.store, parent) && !is_outranked(&stream) {
        feed(stream, QUANTUM_BYTES);
    } else if let Some(mut stream) = stream.account_held(true) {
        begin_sending(&mut stream);
    }
}

fn settle(store: &mut Store, parent: EntryId, id: EntryId) {
    store.settle(id);
    store.settle(parent);
    store.has_news = true;
}

/// Sends an interim response.
pub(crate) fn inform(mut stream: EntryMut<'_>, head: &[u8]) {
    let link = stream.carrier.stream_mut();
    let Some(link) = link.filter(|link| link.is_fresh()) else { return };
    let parent = link.parent;
    link.stream.inform(head);
    pass_on_by_id(stream.store, parent);
}

/// Sends some of the streams' waiting output, each stream in its turn.
pub(crate) fn send_some(connection: EntryMut<'_>) {
    let (store, parent) = connection.into_parts();
    let mut left = store.turn_bytes();
    while left > 0 && takes_more(store, parent) {
        let multiplexer = store.find_multiplexer(parent);
        let Some(next) = multiplexer.and_then(|multiplexer| multiplexer.next_sending()) else {
            return;
        };
        left = left.saturating_sub(SLICE_BYTES);
        // The order may still contain a stream that has ended.
        let fed = store.find(next).and_then(|stream| feed(stream, SLICE_BYTES));
        if let Some(mut stream) = fed {
            stream.set_deadline();
        }
        pass_on_by_id(store, parent);
    }
}

/// Whether the socket has taken all output so far.
fn takes_more(store: &Store, parent: EntryId) -> bool {
    let parent = store.slab.get(parent);
    parent.is_some_and(|connection| connection.readiness.is_writable && connection.output.is_none())
}

/// Lets a stream send when its turn comes.
pub(crate) fn begin_sending(stream: &mut EntryMut<'_>) {
    let Some((parent, priority)) = connection_and_priority(stream) else { return };
    let id = stream.id();
    if let Some(multiplexer) = stream.store.find_multiplexer(parent) {
        multiplexer.begin_sending(priority, id);
    }
}

/// Whether another stream of the connection must send first.
fn is_outranked(stream: &EntryMut<'_>) -> bool {
    let Some((parent, priority)) = connection_and_priority(stream) else { return false };
    let multiplexer = stream.store.slab.get(parent).and_then(Entry::multiplexer);
    multiplexer.is_some_and(|multiplexer| multiplexer.is_outranked(priority))
}

/// Returns the connection of a stream, and the stream's priority.
fn connection_and_priority(stream: &Entry) -> Option<(EntryId, Priority)> {
    stream.carrier.stream().map(|link| (link.parent, link.stream.priority()))
}

/// Hands the waiting output of a stream to the session, as far as the client's windows permit. The end of a complete
/// response ends the stream.
fn feed(mut guard: EntryMut<'_>, most: usize) -> Option<EntryMut<'_>> {
    let stream = &mut *guard;
    let is_complete = matches!(stream.state, State::Responding);
    let is_upgraded = matches!(stream.state, State::Upgraded(_));
    let Carrier::Stream(link) = &mut stream.carrier else {
        unreachable!("only streams are fed to a session");
    };
    let (parent, before) = (link.parent, left_bytes(&stream.output));
    let fed = link.feed(&mut stream.output, is_complete, most);
    let fed_bytes = before - left_bytes(&stream.output);
    if let Some(multiplexer) = guard.store.find_multiplexer(parent) {
        multiplexer.fed_bytes = multiplexer.fed_bytes.saturating_add(fed_bytes);
    }
    if fed == Ok(FlushOutcome::Quantum) {
        begin_sending(&mut guard);
    }
    match fed {
        fed if is_upgraded => guard.after_flush(fed),
        Ok(flushed) if !is_complete || flushed != FlushOutcome::Done => {
            guard.account_held(flushed == FlushOutcome::Blocked)
        }
        Ok(_) | Err(_) => {
            guard.close();
            None
        }
    }
}

/// Returns the number of waiting bytes.
fn left_bytes(output: &Option<Box<Output>>) -> i64 {
    let waiting = output.as_ref().map_or(0, |output| output.waiting_bytes());
    i64::try_from(waiting).unwrap_or(i64::MAX)
}

/// Calls [`pass_on`] for a connection, unless the connection is closed.
fn pass_on_by_id(store: &mut Store, parent: EntryId) {
    if let Some(connection) = store.find(parent) {
        pass_on(connection);
    }
}

/// Sends the session's output, and ends the connection once the session is over. Returns the connection if it is still
/// open.
pub(crate) fn pass_on(mut guard: EntryMut<'_>) -> Option<EntryMut<'_>> {
    loop {
        let connection = &mut *guard;
        if connection.output.is_some() {
            return Some(guard);
        }
        let Some(multiplexer) = connection.multiplexer_mut() else { return Some(guard) };
        multiplexer.needs_flush = false;
        multiplexer.session.flush();
        let bytes = multiplexer.session.take_unsent();
        if bytes.is_empty() {
            break;
        }
        let flushed = connection.deliver(&bytes, Payload::Empty, bytes.len());
        guard = guard.after_flush(flushed)?;
        if bytes.len() < UNSENT_BYTES_MAX {
            // The session has no further output.
            break;
        }
    }
    let connection = &mut *guard;
    let is_sent = connection.readiness.is_writable && connection.output.is_none();
    let multiplexer = connection.multiplexer_mut().filter(|_| is_sent);
    let Some(multiplexer) = multiplexer.filter(|it| it.session.is_over()) else {
        return Some(guard);
    };
    let fault = multiplexer.session.take_fault();
    multiplexer.is_faulty |= fault.is_some();
    if let Some(fault) = fault {
        blame(&mut guard, fault);
    }
    end(guard)
}

/// Records that a connection ends because its client broke a rule or a limit.
fn blame(connection: &mut EntryMut<'_>, why: String) {
    let peer = connection.peer;
    let store = &mut *connection.store;
    store.faulty_peers.note(peer, store.clock.now_ms);
    store.warn("continue an HTTP/2 connection", io::Error::other(why));
}

/// Ends a connection whose last bytes are sent. Returns the connection if it lingers.
fn end(mut guard: EntryMut<'_>) -> Option<EntryMut<'_>> {
    let now_ms = guard.store.clock.now_ms;
    let connection = &mut *guard;
    let Some(multiplexer) = connection.take_multiplexer() else { return Some(guard) };
    let is_expected = multiplexer.session.is_leaving() && !multiplexer.is_faulty;
    if !is_expected {
        // The client may be sending. An immediate close could reset the connection, and the client could lose the last
        // frames.
        connection.linger(now_ms);
    }
    let (store, id) = guard.into_parts();
    for stream in multiplexer.streams() {
        store.close(stream);
    }
    let mut connection = store.at(id);
    if is_expected {
        return connection.hang_up();
    }
    connection.settle();
    Some(connection)
}

/// Ends a connection whose client costs too much, and reports the reason in the log.
pub(crate) fn give_up(mut connection: EntryMut<'_>, why: &str) {
    blame(&mut connection, why.to_owned());
    if let Some(multiplexer) = connection.multiplexer_mut() {
        multiplexer.is_faulty = true;
        multiplexer.session.give_up();
    }
    pass_on(connection);
}

/// Ends an idle connection.
pub(crate) fn close(mut connection: EntryMut<'_>) {
    if let Some(multiplexer) = connection.multiplexer_mut() {
        multiplexer.session.close();
    }
    pass_on(connection);
}

/// Returns the number of bytes that the stream's client has taken of all its responses, from an arbitrary origin.
/// Returns none if the entry is not a stream.
pub(crate) fn taken_bytes(entry: &EntryMut<'_>) -> Option<i64> {
    let parent = entry.store.slab.get(parent_of(entry)?)?;
    parent.multiplexer().map(|multiplexer| multiplexer.fed_bytes)
}

/// Begins the graceful shutdown of a connection: the client sends its next requests elsewhere.
pub(crate) fn leave(mut guard: EntryMut<'_>) {
    let now_ms = guard.store.clock.now_ms;
    let connection = &mut *guard;
    let multiplexer = connection.multiplexer_mut();
    let Some(multiplexer) = multiplexer.filter(|it| !it.session.is_leaving()) else { return };
    multiplexer.session.leave();
    connection.since_ms = now_ms;
    if let Some(mut connection) = pass_on(guard) {
        connection.settle();
    }
}

/// Begins the graceful shutdown of all HTTP/2 connections.
pub(crate) fn leave_all(store: &mut Store) {
    let is_parent =
        |id: &EntryId| store.slab.get(*id).is_some_and(|entry| entry.multiplexer().is_some());
    let parents: Vec<_> = store.slab.ids().filter(is_parent).collect();
    for id in parents {
        if let Some(connection) = store.find(id) {
            leave(connection);
        }
    }
}
