//! From what an application returns to the head of its answer.

use rb_sys::{VALUE, ruby_value_type};
use thruway_http1::ResponseHead;
use thruway_http1::response::{Draft, Terms, is_bodiless};

use super::Server;
use super::context::Context;
use super::lock::{Lock, NIL, Raising};

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
fn is_length(value: &[u8], draft: Draft) -> bool {
    let is_number = value.iter().all(u8::is_ascii_digit);
    let length = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
    is_number && length.is_some() && draft.claimed_bytes().is_none_or(|other| length == Some(other))
}

impl Server {
    /// Sends what the application returned. `context` says how far it got, if this raises.
    pub(super) fn reply(&self, inside: Raising, context: &Context, returned: VALUE) {
        let lock = inside.lock();
        let triple = inside.to_array(returned);
        if triple == NIL || lock.array_length(triple) < 3 {
            inside.type_error("an application returns an Array of status, headers and body");
        }
        context.returned.set(triple);
        context.body.set(lock.element(triple, 2));
        let status = self.status(inside, lock.element(triple, 0));
        context.status.set(status);
        // SAFETY: the head is left alone until it is finished: Ruby code in between (`to_s` of a
        // field) belongs to this request.
        let out = unsafe { context.head.get() };
        out.clear();
        let mut head = ResponseHead::new(out, status);
        let special = self.fields(inside, &mut head, lock.element(triple, 1));
        let draft = head.draft();
        if (100..=199).contains(&status) {
            // What comes next is of another protocol, or answers a client that waits for more.
            let terms = context.terms.get();
            context.terms.set(Terms { is_persistent: false, ..terms });
        }
        self.send_body(inside, context, draft, status, &special);
    }

    /// Whether a body writes by itself (Rack 3).
    fn is_stream(&self, lock: Lock, body: VALUE) -> bool {
        !lock.is_plain_array(body) && lock.responds_to(body, self.names.call)
    }

    /// A status as Rack has it: whatever answers to `to_i`.
    fn status(&self, inside: Raising, status: VALUE) -> u16 {
        let is_number = rb_sys::FIXNUM_P(status);
        let number = if is_number { status } else { inside.call(status, self.names.to_i, &[]) };
        match u16::try_from(inside.to_number(number)) {
            Ok(status @ 100..=999) => status,
            _ => inside.argument_error("the status is not a number of three digits"),
        }
    }

    fn send_body(
        &self,
        inside: Raising,
        context: &Context,
        draft: Draft,
        status: u16,
        special: &Special,
    ) {
        let (lock, body) = (inside.lock(), context.body.get());
        if special.hijack != NIL {
            self.give_away(inside, context, draft, special.hijack);
        } else if status == SWITCHING_PROTOCOLS && self.is_stream(lock, body) {
            self.give_away(inside, context, draft, body);
        } else if special.file != NIL {
            self.send_declared_file(inside, context, draft, special.file);
        } else if lock.is_plain_array(body) {
            self.send_array(inside, context, draft, body);
        } else if context.terms.get().is_head || is_bodiless(status) {
            self.send_bytes(context, draft, None, &[]);
        } else if self.send_file(inside, context, draft, body) {
            // The kernel does.
        } else if lock.responds_to(body, self.names.each) {
            self.send_pieces(inside, context, draft, body);
        } else if lock.responds_to(body, self.names.call) {
            self.send_stream(inside, context, draft, body);
        } else {
            inside.type_error("a body responds to each or to call");
        }
    }

    /// Writes the fields, and gives back those that are not for the client.
    fn fields(&self, inside: Raising, head: &mut ResponseHead<'_>, headers: VALUE) -> Special {
        let lock = inside.lock();
        let mut special = Special { file: NIL, hijack: NIL };
        let mut visit = |name: VALUE, value: VALUE| {
            if !self.field(inside, head, &mut special, name, value) {
                self.raise_bad_field(inside, name);
            }
        };
        if lock.is(headers, ruby_value_type::RUBY_T_HASH) {
            lock.each_pair(headers, &mut visit);
        } else if headers != NIL {
            inside.call_with_block(headers, self.names.each, |_, pair| {
                if lock.is(pair, ruby_value_type::RUBY_T_ARRAY) {
                    visit(lock.element(pair, 0), lock.element(pair, 1));
                }
            });
        }
        special
    }

    /// One field; false if it would break the head.
    fn field(
        &self,
        inside: Raising,
        head: &mut ResponseHead<'_>,
        special: &mut Special,
        name: VALUE,
        value: VALUE,
    ) -> bool {
        let lock = inside.lock();
        let name = self.text(inside, name);
        // SAFETY: `to_s` of the value may run Ruby code, but the header's Hash keeps its keys frozen.
        let name = unsafe { lock.bytes(name) };
        if name.starts_with(b"rack.") {
            if name == b"rack.hijack" {
                special.hijack = value;
            }
            return true;
        }
        if self.files.is_field(name) {
            special.file = self.text(inside, value);
            return true;
        }
        if !lock.is(value, ruby_value_type::RUBY_T_ARRAY) {
            return self.lines(inside, head, name, value);
        }
        let count = lock.array_length(value);
        (0..count).all(|at| self.lines(inside, head, name, lock.element(value, at)))
    }

    /// A value, which may be several lines (Rack 2): each is a field.
    fn lines(
        &self,
        inside: Raising,
        head: &mut ResponseHead<'_>,
        name: &[u8],
        value: VALUE,
    ) -> bool {
        let text = self.text(inside, value);
        // SAFETY: no Ruby code runs while the bytes are used.
        let text = unsafe { inside.lock().bytes(text) };
        if name.eq_ignore_ascii_case(b"content-length") && !is_length(text, head.draft()) {
            inside.argument_error("content-length is not a number of bytes, or not the same twice");
        }
        text.split(|byte| *byte == b'\n').all(|line| head.field(name, line).is_ok())
    }

    fn text(&self, inside: Raising, value: VALUE) -> VALUE {
        let is_string = inside.lock().is(value, ruby_value_type::RUBY_T_STRING);
        if is_string { value } else { inside.to_string(value) }
    }

    fn raise_bad_field(&self, inside: Raising, name: VALUE) -> ! {
        inside.call(self.helper.value(), self.names.bad_field, &[self.text(inside, name)]);
        inside.argument_error("a header holds a control character")
    }
}
