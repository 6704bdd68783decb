//! Ends connections before their clients do: expired deadlines, broken requests, drains.

use thruway_http1::ParseError;

use crate::entry::{ReadOutcome, State};
use crate::events::slab::EntryId;
use crate::exchange::counting;
use crate::exchange::http2::output;
use crate::exchange::response::ResponseWriter;
use crate::exchange::upgraded;
use crate::store::Store;
use crate::store::entry_mut::EntryMut;
use crate::store::service_state::ServiceState;

/// Reads the clock, and ends connections whose deadlines have expired.
pub(crate) fn tick(store: &mut Store) {
    store.clock.update();
    let now_ms = store.clock.now_ms;
    store.activity.advance(now_ms);
    let due = store.deadlines.take_due(now_ms);
    for slot in &due {
        // An entry may have been closed together with another entry whose deadline has expired as well.
        if let Some(entry) = store.slab.id_at(*slot).and_then(|id| store.find(id)) {
            expire(entry);
        }
    }
    store.deadlines.keep(due);
}

/// Handles an expired deadline.
fn expire(mut entry: EntryMut<'_>) {
    if entry.output.is_some() {
        return check_pace(entry);
    }
    if entry.has_work() || has_work_unseen(&mut entry) {
        // The connection waits for its turn, not for the client; the turn sets the next deadline.
        return;
    }
    match entry.state {
        State::Waiting if !entry.input.bytes.is_empty() => {
            hang_up_with(entry, 408, "the head took too long");
        }
        State::Receiving(_) => hang_up_with(entry, 408, "the body took too long"),
        // The deadline was set for the previous state.
        State::Handling if entry.store.settings.timeouts.request_ms.is_none() => {}
        State::Handling => hang_up_with(entry, 503, "the response took too long"),
        State::Multiplexing(ref multiplexer) if multiplexer.head_since_ms.is_some() => {
            output::give_up(entry, "a head takes too long");
        }
        State::Multiplexing(_) => output::close(entry),
        State::Upgraded(_) => upgraded::expire(entry),
        _ => end(entry),
    }
}

/// Whether the kernel holds bytes of the client that no poll has reported yet, because the process or its machine has
/// stalled, or because all threads were busy. If so, a turn reads the bytes.
fn has_work_unseen(entry: &mut EntryMut<'_>) -> bool {
    // A client that sends its head byte by byte has no more time for the head than any other client.
    if entry.has_deadline_for_all() && !entry.store.deadlines.is_overdue(entry) {
        return false;
    }
    let unread = |socket| rustix::io::ioctl_fionread(socket).unwrap_or(0);
    if entry.readiness.is_readable || entry.carrier.socket().map_or(0, unread) == 0 {
        return false;
    }
    entry.readiness.is_readable = true;
    let has_work = entry.has_work();
    if has_work {
        entry.enqueue();
    }
    has_work
}

/// Closes a connection between two requests.
fn end(mut entry: EntryMut<'_>) {
    entry.send_close_notify();
    entry.close();
}

/// Cuts off a client that takes too little of its response.
fn check_pace(mut entry: EntryMut<'_>) {
    let (now_ms, id) = (entry.store.clock.now_ms, entry.id());
    let taken = output::taken_bytes(&entry).unwrap_or_else(|| entry.taken_bytes());
    let store = &mut *entry.store;
    if store.deadlines.is_fast_enough(&mut store.slab[id], now_ms, taken) {
        return entry.set_deadline();
    }
    let parent = output::parent_of(&entry);
    match parent.and_then(|parent| entry.store.find(parent)) {
        Some(parent) => output::give_up(parent, "it takes too little of a response"),
        None => entry.reset(),
    }
}

/// Responds to a request that broke a rule, and closes the connection, because the end of the request is unknown.
pub(crate) fn refuse(entry: EntryMut<'_>, error: ParseError) {
    hang_up_with(entry, error.status(), error.text());
}

/// Responds to the connection's current request, even if the request is incomplete, and closes the connection.
pub(crate) fn hang_up_with(mut entry: EntryMut<'_>, status: u16, text: &str) {
    counting::refuse(&entry, status);
    let ticket = entry.begin_request();
    let (store, _) = entry.into_parts();
    ResponseWriter::new(store, ticket).respond_broken(status, text);
}

/// Refuses a request whose body cannot be stored: the disk is full, or no folder for anonymous files exists.
pub(crate) fn give_up_body(entry: EntryMut<'_>, error: std::io::Error) {
    entry.store.warn("store a request's body", error);
    hang_up_with(entry, 507, "the body cannot be kept");
}

/// Reads and discards input. Closes the connection once the client has closed its side or has sent too much.
pub(crate) fn drain_input<'a>(mut entry: EntryMut<'a>, inbox: &mut [u8]) -> Option<EntryMut<'a>> {
    let received = entry.receive(inbox);
    let State::Lingering { bytes_left } = &mut entry.state else { return Some(entry) };
    match received {
        ReadOutcome::Later => Some(entry),
        ReadOutcome::Bytes(length) if (length as u64) < u64::from(*bytes_left) => {
            *bytes_left -= u32::try_from(length).unwrap_or(*bytes_left);
            Some(entry)
        }
        ReadOutcome::Bytes(_) | ReadOutcome::Ended => {
            entry.close();
            None
        }
    }
}

/// Begins a drain: connections without a request get less time for their first request.
pub(crate) fn begin_drain(store: &mut Store) {
    store.service = ServiceState::Draining;
    store.deadlines.drain();
    let ids: Vec<_> = store.slab.ids().collect();
    for id in ids {
        if let Some(mut entry) = store.find(id).filter(|entry| entry.is_fresh) {
            entry.set_deadline();
        }
    }
}

/// Closes connections that are between two requests, unless another process takes them over. A fresh connection has a
/// moment for its first request.
pub(crate) fn close_idle(store: &mut Store) {
    output::leave_all(store);
    let is_idle = |id: &EntryId| {
        store.slab.get(*id).is_some_and(|entry| {
            let goes_on = store.service.hands_over() && !entry.is_bound();
            entry.awaits_event() && !entry.is_fresh && !goes_on
        })
    };
    let idle: Vec<_> = store.slab.ids().filter(is_idle).collect();
    idle.into_iter().for_each(|id| {
        store.find(id).map(end);
    });
}

/// Ends all connections immediately. A request without a response yet gets 503.
pub(crate) fn give_up(store: &mut Store, inbox: &mut [u8]) {
    let mut ids: Vec<_> = store.slab.ids().collect();
    // Streams are closed before their connections.
    ids.sort_by_key(|id| store.slab.get(*id).is_some_and(|entry| entry.multiplexer().is_some()));
    for id in ids {
        if let Some(entry) = store.find(id) {
            give_up_one(entry, inbox);
        }
    }
}

fn give_up_one(mut entry: EntryMut<'_>, inbox: &mut [u8]) {
    let has_asked = match entry.state {
        State::Waiting => !entry.is_idle() || entry.has_bytes(),
        State::Receiving(_) | State::AwaitingOther(_) | State::Handling => true,
        State::Multiplexing(_) => return output::close(entry),
        State::Handshaking
        | State::Streaming(_)
        | State::Responding
        | State::Lingering { .. }
        | State::Upgraded(_) => false,
    };
    if !has_asked || entry.output.is_some() {
        entry.close();
        return;
    }
    // Unread bytes would reset the connection, and the client could lose the response.
    entry.readiness.is_readable = true;
    hang_up_with(entry.reborrow(), 503, "the server is stopping");
    let lingers = |entry: &EntryMut<'_>| {
        entry.readiness.is_readable && matches!(entry.state, State::Lingering { .. })
    };
    let mut rest = entry.if_open();
    while let Some(entry) = rest.take_if(|entry| lingers(entry)) {
        rest = drain_input(entry, inbox);
    }
    if let Some(entry) = rest {
        entry.close();
    }
}
