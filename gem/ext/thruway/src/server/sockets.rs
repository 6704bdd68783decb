//! Upgraded connections, for Ruby: `Thruway::Sockets` and `Thruway::Client` are built on these methods.

use rb_sys::VALUE;
use thruway_serve::websocket::{self, CloseCode, Deflater};
use thruway_serve::{Ticket, UpgradeTo};

use super::rack_engine::{RackEngine, TYPE, ticket_of};
use super::request::end_fork;
use super::shared_engine::SharedEngine;
use super::work::ReadyEvent;
use crate::ruby::define::{self, Method};
use crate::ruby::{
    Gvl, NIL, NonLocalExit, ProtectedCall, RModule, RString, boolean, is_true, number, raise,
};

/// The number of clients of a broadcast that are served under one lock of the engine.
const BROADCAST_CLIENTS: usize = 64;

impl RackEngine {
    /// Passes an event to the application.
    pub(super) fn call_socket(
        &self,
        gvl: Gvl,
        me: usize,
        event: ReadyEvent,
    ) -> Result<(), NonLocalExit> {
        let waits = self.engine.lock().has_waiting();
        let entered_us = self.leadership.enter_application(waits);
        let ended = self.pass_event(gvl, event);
        if self.home.is_left() {
            return ended.and_then(|()| gvl.catch(|ruby| end_fork(ruby)));
        }
        self.leave_application(gvl, me, entered_us);
        self.end_event(me, event.ticket);
        ended
    }

    /// Calls the handler of an event.
    pub(super) fn pass_event(&self, gvl: Gvl, event: ReadyEvent) -> Result<(), NonLocalExit> {
        let ReadyEvent { ticket, kind, data } = event;
        let request = number::from_u64(gvl, ticket.request());
        let kind = number::from_u64(gvl, kind);
        gvl.catch(|ruby| self.callbacks.socket_event(ruby, [request, kind, data]))
    }

    /// Called when thread `me` has handled an event of a connection, which may have another one.
    pub(super) fn end_event(&self, me: usize, ticket: Ticket) {
        let has_work = self.engine.lock().socket(ticket).done();
        if has_work && !self.leadership.leads(me) {
            // No event of the kernel announces this one, so a leader that waits for events has to be woken.
            self.engine.wake();
        }
    }
}

/// Defines the methods of `Thruway::Engine` for upgraded connections.
pub(super) fn define(gvl: Gvl, class: RModule) {
    define::method(gvl, class, c"upgrade", Method::of_any(upgrade));
    define::method(gvl, class, c"socket_send", Method::of_any(socket_send));
    define::method(gvl, class, c"socket_broadcast", Method::of_any(socket_broadcast));
    define::method(gvl, class, c"socket_write", Method::of_2(socket_write));
    define::method(gvl, class, c"socket_close", Method::of_any(socket_close));
    define::method(gvl, class, c"socket_pending", Method::of_1(socket_pending));
}

fn arguments<const COUNT: usize>(ruby: ProtectedCall, given: &[VALUE]) -> [VALUE; COUNT] {
    given.try_into().unwrap_or_else(|_| {
        let text = format!("{} arguments given, {COUNT} expected", given.len());
        raise::argument_error(ruby, RString::binary(ruby.gvl(), text.as_bytes()))
    })
}

/// `engine.upgrade(ticket, head, is_websocket, is_compressed, wants_drained)`: returns whether the client is still
/// connected.
fn upgrade(ruby: ProtectedCall, this: VALUE, given: &[VALUE]) -> VALUE {
    let [ticket, head, is_websocket, is_compressed, wants_drained] = arguments(ruby, given);
    let engine = TYPE.get(ruby, &this);
    let (ticket, head) = (ticket_of(ruby, ticket), RString::convert(ruby, head));
    let to = if is_true(is_websocket) {
        UpgradeTo::WebSocket { is_compressed: is_true(is_compressed) }
    } else {
        UpgradeTo::Events
    };
    let (engine, wants_drained) = (&*engine.engine, is_true(wants_drained));
    boolean(
        head.read(ruby.gvl(), |head| {
            engine.lock().response(ticket).upgrade(head, to, wants_drained)
        }),
    )
}

/// `engine.socket_send(ticket, message, is_text)`: sends a message; returns whether the socket is open.
fn socket_send(ruby: ProtectedCall, this: VALUE, given: &[VALUE]) -> VALUE {
    let [ticket, message, is_text] = arguments(ruby, given);
    let engine = TYPE.get(ruby, &this);
    let (ticket, message) = (ticket_of(ruby, ticket), RString::convert(ruby, message));
    let is_compressed = engine.engine.lock().socket(ticket).is_compressed();
    let mut deflater = engine.deflater.borrow_mut();
    let deflater = is_compressed.then(|| &mut **deflater.get_or_insert_default());
    let frame =
        message.read(ruby.gvl(), |message| websocket::message(is_true(is_text), message, deflater));
    boolean(send(&engine.engine, ticket, &frame))
}

/// `engine.socket_write(ticket, bytes)`: sends bytes without framing, as for server-sent events.
fn socket_write(ruby: ProtectedCall, this: VALUE, ticket: VALUE, bytes: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    let (ticket, bytes) = (ticket_of(ruby, ticket), RString::convert(ruby, bytes));
    let engine = &engine.engine;
    boolean(bytes.read(ruby.gvl(), |bytes| send(engine, ticket, bytes)))
}

/// `engine.socket_broadcast(tickets, message, is_text)`: sends a message to the clients of all tickets, which are
/// concatenated in one String. Returns the number of open sockets among them.
fn socket_broadcast(ruby: ProtectedCall, this: VALUE, given: &[VALUE]) -> VALUE {
    let [tickets, message, is_text] = arguments(ruby, given);
    let (gvl, engine) = (ruby.gvl(), TYPE.get(ruby, &this));
    let (tickets, message) = (RString::convert(ruby, tickets), RString::convert(ruby, message));
    let tickets = tickets.read(gvl, |tickets| tickets.as_chunks().0.to_vec());
    let frame = |deflater: Option<&mut Deflater>| {
        message.read(gvl, |message| websocket::message(is_true(is_text), message, deflater))
    };
    let plain = frame(None);
    // The deflater exists once a message was compressed for any client. Its borrow ends before other threads run.
    let compressed = engine.deflater.borrow_mut().as_mut().map(|deflater| frame(Some(deflater)));
    let shared = &*engine.engine;
    let (mut open, mut at) = (0, 0);
    let mut send_all = || {
        while at < tickets.len() {
            let chunk = &tickets[at..tickets.len().min(at + BROADCAST_CLIENTS)];
            let mut engine = shared.lock();
            for ticket in chunk {
                let mut socket = engine.socket(Ticket::from_bytes(*ticket));
                let frame =
                    compressed.as_ref().filter(|_| socket.is_compressed()).unwrap_or(&plain);
                open += u64::from(socket.send(frame));
            }
            at += chunk.len();
        }
    };
    gvl.release(&mut send_all, || ());
    // The function did not run if an interrupt is pending for this thread.
    send_all();
    engine.engine.wake();
    number::from_u64(gvl, open)
}

/// `engine.socket_close(ticket, code, reason)`: closes the socket.
fn socket_close(ruby: ProtectedCall, this: VALUE, given: &[VALUE]) -> VALUE {
    let [ticket, code, reason] = arguments(ruby, given);
    let engine = TYPE.get(ruby, &this);
    let (ticket, reason) = (ticket_of(ruby, ticket), RString::convert(ruby, reason));
    let code = u16::try_from(number::to_i64(ruby, code)).map_or(CloseCode::NORMAL, CloseCode::new);
    let reason = reason.to_text(ruby.gvl());
    engine.engine.lock().socket(ticket).close(code, &reason);
    engine.engine.wake();
    NIL
}

/// `engine.socket_pending(ticket)`: returns the number of bytes that wait for the client; nil if the socket is not
/// open.
fn socket_pending(ruby: ProtectedCall, this: VALUE, ticket: VALUE) -> VALUE {
    let engine = TYPE.get(ruby, &this);
    let ticket = ticket_of(ruby, ticket);
    let mut engine = engine.engine.lock();
    let socket = engine.socket(ticket);
    if socket.is_open() { number::from_u64(ruby.gvl(), socket.backlog_bytes()) } else { NIL }
}

fn send(engine: &SharedEngine, ticket: Ticket, bytes: &[u8]) -> bool {
    let is_open = engine.lock().socket(ticket).send(bytes);
    if !is_open {
        // The owner has to be notified, and the leader may be waiting for events.
        engine.wake();
    }
    is_open
}
