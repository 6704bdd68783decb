//! From what an application returns to the head of its answer.

use rb_sys::{VALUE, ruby_value_type};
use thruway_http1::ResponseHead;
use thruway_http1::response::{PartialHead, ResponseConstraints, is_bodiless};

use super::RackEngine;
use super::context::Context;
use super::gvl::{Gvl, NIL, Protected};

/// The status with which the connection becomes the body's, if that is a stream.
const SWITCHING_PROTOCOLS: u16 = 101;

/// Values that are for the server, not for the client.
struct Special {
    /// Of `X-Sendfile` or `X-Accel-Redirect`, if folders are declared for them.
    file: VALUE,
    /// Of `rack.hijack`.
    hijack: VALUE,
}

/// Whether a value is a length in bytes, and the one that an earlier field claims.
fn is_length(value: &[u8], partial: PartialHead) -> bool {
    let is_number = value.iter().all(u8::is_ascii_digit);
    let length = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
    is_number
        && length.is_some()
        && partial.claimed_bytes().is_none_or(|other| length == Some(other))
}

impl RackEngine {
    /// Sends what the application returned. `context` says how far it got, if this raises.
    pub(super) fn respond(&self, ruby: Protected, context: &Context, returned: VALUE) {
        let gvl = ruby.gvl();
        let triple = ruby.to_array(returned);
        if triple == NIL || gvl.array_length(triple) < 3 {
            ruby.type_error("an application returns an Array of status, headers and body");
        }
        context.returned.set(triple);
        context.body.set(gvl.element(triple, 2));
        let status = self.status(ruby, gvl.element(triple, 0));
        context.status.set(status);
        // SAFETY: the head is left alone until it is finished: Ruby code in between (`to_s` of a
        // field) belongs to this request.
        let out = unsafe { context.head.get() };
        out.clear();
        let mut head = ResponseHead::new(out, status);
        let special = self.fields(ruby, &mut head, gvl.element(triple, 1));
        let partial = head.partial();
        if (100..=199).contains(&status) {
            // What comes next is of another protocol, or answers a client that waits for more.
            let constraints = context.constraints.get();
            context.constraints.set(ResponseConstraints { is_persistent: false, ..constraints });
        }
        self.send_body(ruby, context, partial, status, &special);
    }

    /// Whether a body writes by itself (Rack 3).
    fn is_stream(&self, gvl: Gvl, body: VALUE) -> bool {
        !gvl.is_plain_array(body) && gvl.responds_to(body, self.names.call)
    }

    /// A status as Rack has it: whatever answers to `to_i`.
    fn status(&self, ruby: Protected, status: VALUE) -> u16 {
        let is_number = rb_sys::FIXNUM_P(status);
        let number = if is_number { status } else { ruby.call(status, self.names.to_i, &[]) };
        match u16::try_from(ruby.to_number(number)) {
            Ok(status @ 100..=999) => status,
            _ => ruby.argument_error("the status is not a number of three digits"),
        }
    }

    fn send_body(
        &self,
        ruby: Protected,
        context: &Context,
        partial: PartialHead,
        status: u16,
        special: &Special,
    ) {
        let (gvl, body) = (ruby.gvl(), context.body.get());
        if special.hijack != NIL {
            self.give_away(ruby, context, partial, special.hijack);
        } else if status == SWITCHING_PROTOCOLS && self.is_stream(gvl, body) {
            self.give_away(ruby, context, partial, body);
        } else if special.file != NIL {
            self.send_declared_file(ruby, context, partial, special.file);
        } else if gvl.is_plain_array(body) {
            self.send_array(ruby, context, partial, body);
        } else if context.constraints.get().is_head || is_bodiless(status) {
            self.send_bytes(context, partial, None, &[]);
        } else if self.send_file(ruby, context, partial, body) {
            // The kernel does.
        } else if gvl.responds_to(body, self.names.each) {
            self.send_pieces(ruby, context, partial, body);
        } else if gvl.responds_to(body, self.names.call) {
            self.send_stream(ruby, context, partial, body);
        } else {
            ruby.type_error("a body responds to each or to call");
        }
    }

    /// Writes the fields, and gives back those that are not for the client.
    fn fields(&self, ruby: Protected, head: &mut ResponseHead<'_>, headers: VALUE) -> Special {
        let gvl = ruby.gvl();
        let mut special = Special { file: NIL, hijack: NIL };
        let mut visit = |name: VALUE, value: VALUE| {
            if !self.field(ruby, head, &mut special, name, value) {
                self.raise_bad_field(ruby, name);
            }
        };
        if gvl.is(headers, ruby_value_type::RUBY_T_HASH) {
            gvl.each_pair(headers, &mut visit);
        } else if headers != NIL {
            ruby.call_with_block(headers, self.names.each, |_, pair| {
                if gvl.is(pair, ruby_value_type::RUBY_T_ARRAY) {
                    visit(gvl.element(pair, 0), gvl.element(pair, 1));
                }
            });
        }
        special
    }

    /// One field; false if it would break the head.
    fn field(
        &self,
        ruby: Protected,
        head: &mut ResponseHead<'_>,
        special: &mut Special,
        name: VALUE,
        value: VALUE,
    ) -> bool {
        let gvl = ruby.gvl();
        let name = self.text(ruby, name);
        // SAFETY: `to_s` of the value may run Ruby code, but the header's Hash keeps its keys frozen.
        let name = unsafe { gvl.bytes(name) };
        if name.starts_with(b"rack.") {
            if name == b"rack.hijack" {
                special.hijack = value;
            }
            return true;
        }
        if self.files.is_field(name) {
            special.file = self.text(ruby, value);
            return true;
        }
        if !gvl.is(value, ruby_value_type::RUBY_T_ARRAY) {
            return self.lines(ruby, head, name, value);
        }
        let count = gvl.array_length(value);
        (0..count).all(|at| self.lines(ruby, head, name, gvl.element(value, at)))
    }

    /// A value, which may be several lines (Rack 2): each is a field.
    fn lines(
        &self,
        ruby: Protected,
        head: &mut ResponseHead<'_>,
        name: &[u8],
        value: VALUE,
    ) -> bool {
        let text = self.text(ruby, value);
        // SAFETY: no Ruby code runs while the bytes are used.
        let text = unsafe { ruby.gvl().bytes(text) };
        if name.eq_ignore_ascii_case(b"content-length") && !is_length(text, head.partial()) {
            ruby.argument_error("content-length is not a number of bytes, or not the same twice");
        }
        text.split(|byte| *byte == b'\n').all(|line| head.field(name, line).is_ok())
    }

    fn text(&self, ruby: Protected, value: VALUE) -> VALUE {
        let is_string = ruby.gvl().is(value, ruby_value_type::RUBY_T_STRING);
        if is_string { value } else { ruby.to_string(value) }
    }

    fn raise_bad_field(&self, ruby: Protected, name: VALUE) -> ! {
        ruby.call(self.callbacks.value(), self.names.bad_field, &[self.text(ruby, name)]);
        ruby.argument_error("a header holds a control character")
    }
}
