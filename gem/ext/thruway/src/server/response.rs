//! Turns the result of an application into a response: the status, the head, and the kind of body.

use rb_sys::VALUE;
use thruway_http1::response::{PartialHead, ResponseConstraints, is_bodiless};
use thruway_http1::{ResponseHead, Version};

use super::context::{Context, Stage};
use super::head_fields::{HeadFields, Special};
use super::rack_engine::RackEngine;
use super::sender::Sender;
use crate::ruby::call::{call, responds_to};
use crate::ruby::{NIL, ProtectedCall, RArray, RString, number, raise};

/// The status after which the connection belongs to a streaming body.
const SWITCHING_PROTOCOLS: u16 = 101;

/// The lowest final status. Below it, another response follows.
const FINAL: u16 = 200;

/// The lowest status by which an application refuses an upgrade.
const REDIRECT: u16 = 300;

/// Responds to the request of one thread. `context` records the progress of the response, in case a method raises.
#[derive(Clone, Copy)]
pub(super) struct Responder<'a> {
    pub(super) engine: &'a RackEngine,
    pub(super) context: &'a Context,
    pub(super) ruby: ProtectedCall,
}

impl<'a> Responder<'a> {
    pub(super) fn new(engine: &'a RackEngine, context: &'a Context, ruby: ProtectedCall) -> Self {
        Self { engine, context, ruby }
    }

    pub(super) fn sender(self) -> Sender<'a> {
        Sender::new(&self.engine.engine, self.context)
    }

    /// Sends the result of the application.
    pub(super) fn respond(self, returned: VALUE) {
        let gvl = self.ruby.gvl();
        let triple = RArray::convert(self.ruby, returned).filter(|triple| triple.len(gvl) >= 3);
        let Some(triple) = triple else {
            let text = b"an application returns an Array of status, headers and body";
            raise::type_error(self.ruby, RString::binary(gvl, text));
        };
        let at = |index| triple.get(gvl, index).unwrap_or(NIL);
        self.context.returned.set(triple.value());
        self.context.body.set(at(2));
        let status = self.status(at(0));
        self.context.status.set(status);
        if self.context.upgrades.get() && self.upgrade(status, at(1)) {
            return;
        }
        // SAFETY: the head is not used elsewhere until it is finished: Ruby code that runs in between (`to_s` of a
        // field) belongs to this request.
        let out = unsafe { self.context.head.get() };
        out.clear();
        let head = ResponseHead::new(out, status);
        let (partial, special) = HeadFields::new(self.engine, self.ruby, head).write(at(1));
        if status < FINAL {
            self.check_interim(status, special);
            // The next bytes are of another protocol, or the client waits for a further response.
            let constraints = self.context.constraints.get();
            let closing = ResponseConstraints { is_persistent: false, ..constraints };
            self.context.constraints.set(closing);
        }
        self.send_body(partial, status, special);
    }

    /// Upgrades the connection if the application has named a handler for its events; otherwise returns false.
    fn upgrade(self, status: u16, headers: VALUE) -> bool {
        let (gvl, env) = (self.ruby.gvl(), self.context.env.get());
        let handler = self.engine.environments.borrow().upgrade_handler(gvl, env);
        let Some(ticket) = self.context.ticket.get().filter(|_| handler != NIL) else {
            return false;
        };
        if status >= REDIRECT {
            return false;
        }
        self.context.upgrades.set(false);
        let ticket = RString::binary(gvl, &ticket.to_bytes());
        let refusal = self.engine.callbacks.upgrade(self.ruby, ticket, [env, headers, handler]);
        if refusal == NIL {
            self.context.stage.set(Stage::Done);
        } else {
            self.respond_instead(refusal);
        }
        true
    }

    /// Sends another response than the application's, whose body is closed first.
    pub(super) fn respond_instead(self, returned: VALUE) {
        self.close_body();
        self.respond(returned);
    }

    /// Closes the application's body once, if it can be closed.
    pub(super) fn close_body(self) {
        let body = self.context.body.replace(NIL);
        let close = self.engine.names.close;
        if body != NIL && responds_to(self.ruby, body, close) {
            call(self.ruby, body, close, &[]);
        }
    }

    /// Raises TypeError with a description of the error in a body.
    pub(super) fn raise_bad_body(self, text: &'static str) -> ! {
        raise::type_error(self.ruby, RString::binary(self.ruby.gvl(), text.as_bytes()))
    }

    /// The status in the sense of Rack: the result of an object's `to_i`.
    fn status(self, status: VALUE) -> u16 {
        let is_number = rb_sys::FIXNUM_P(status);
        let to_i = || call(self.ruby, status, self.engine.names.to_i, &[]);
        let number = if is_number { status } else { to_i() };
        match u16::try_from(number::to_i64(self.ruby, number)) {
            Ok(status @ 100..=999) => status,
            _ => {
                let text = b"the status is not a number of three digits";
                raise::argument_error(self.ruby, RString::binary(self.ruby.gvl(), text))
            }
        }
    }

    /// Raises if the application returns an interim response without taking the connection: the client would wait for
    /// the final response.
    fn check_interim(self, status: u16, special: Special) {
        let body = self.context.body.get();
        let is_stream = || {
            RArray::plain(self.ruby.gvl(), body).is_none()
                && responds_to(self.ruby, body, self.engine.names.call)
        };
        let is_taken = special.hijack != NIL || status == SWITCHING_PROTOCOLS && is_stream();
        if self.is_shared() || !is_taken {
            let text = format!(
                "{status} is not a final status, and the application does not take the connection"
            );
            raise::argument_error(self.ruby, RString::binary(self.ruby.gvl(), text.as_bytes()))
        }
    }

    /// Whether other requests share the connection (HTTP/2).
    fn is_shared(self) -> bool {
        self.context.constraints.get().version == Version::Http2
    }

    fn send_body(self, partial: PartialHead, status: u16, special: Special) {
        let body = self.context.body.get();
        let array = RArray::plain(self.ruby.gvl(), body);
        let names = &self.engine.names;
        if special.hijack != NIL && self.is_shared() {
            // The connection is shared, but the hijack can write to a stream as well.
            self.send_stream(partial, special.hijack);
        } else if special.hijack != NIL {
            self.give_away(partial, special.hijack);
        } else if status == SWITCHING_PROTOCOLS {
            // The body writes to the connection itself (Rack 3).
            self.give_away(partial, body);
        } else if let Some(path) = special.file {
            self.send_declared_file(partial, path);
        } else if let Some(array) = array {
            self.send_array(partial, array);
        } else if self.context.constraints.get().is_head || is_bodiless(status) {
            self.sender().send_bytes(partial, None, &[]);
        } else if self.send_file(partial, body) {
            // The kernel sends the file.
        } else if let Some(array) = self.array_inside(body) {
            self.send_array(partial, array);
        } else if responds_to(self.ruby, body, names.each) {
            self.send_pieces(partial, body);
        } else if responds_to(self.ruby, body, names.call) {
            self.send_stream(partial, body);
        } else {
            self.raise_bad_body("a body responds to each or to call");
        }
    }
}
