//! Response bodies on their way to the client.
//!
//! An Array of Strings is sent at once, and so is a body that converts to an Array. Each piece that another body
//! yields is sent at once, too, since nothing indicates whether the next one follows soon. A body with a declared
//! length is different: its pieces are gathered, so that a short response leaves in one write. The pieces become a
//! stream when there are many of them, or when the application blocks between two of them. Only the leader gathers:
//! when the leader blocks, its successor sends the gathered pieces. Files are sent by the kernel.

use std::os::fd::OwnedFd;

use rb_sys::VALUE;
use thruway_http1::response::{PartialHead, is_bodiless};
use thruway_serve::{Part, Payload, SharedBytes, are_chunks};

use super::body_block::{BodyBlock, GATHERED_BYTES_MAX};
use super::context::Stage;
use super::response::Responder;
use super::roots::SentString;
use super::sender::too_short;
use crate::ruby::block::call_with_block;
use crate::ruby::call::{call, responds_to};
use crate::ruby::object::variable;
use crate::ruby::value::class_name;
use crate::ruby::{NIL, RArray, RString, raise};

/// The number of nested wrappers of a body that are unwrapped. Each middleware may add one.
const WRAPPERS_MAX: usize = 32;

impl Responder<'_> {
    /// Sends an Array, whose length is known.
    pub(super) fn send_array(self, partial: PartialHead, body: RArray) {
        let gvl = self.ruby.gvl();
        let count = body.len(gvl);
        let string = |at| body.get(gvl, at).and_then(|piece| RString::of(gvl, piece));
        let mut total = 0;
        for at in 0..count {
            match string(at) {
                Some(piece) => total += piece.len(gvl),
                None => self.raise_bad_body("a body consists of Strings"),
            }
        }
        self.check_length(partial, total);
        // SAFETY: no Ruby code runs from here on, so the Strings do not change. Errors are raised after their last
        // use.
        let piece = |at| string(at).map_or(&[][..], |piece| unsafe { piece.bytes() });
        self.check_chunks(partial, (0..count).map(piece));
        match count {
            0 => self.sender().send_bytes(partial, Some(0), &[]),
            1 if total <= GATHERED_BYTES_MAX => {
                self.sender().send_bytes(partial, Some(total), piece(0));
            }
            _ if total <= GATHERED_BYTES_MAX => {
                // SAFETY: nothing else uses the buffer meanwhile.
                let gathered = unsafe { self.context.gathered.get() };
                gathered.clear();
                (0..count).for_each(|at| gathered.extend_from_slice(piece(at)));
                self.sender().send_bytes(partial, Some(total), gathered);
            }
            _ => {
                // Large Strings are kept for a slow client without being copied.
                let part = |string| {
                    let sent = SentString::new(gvl, &self.engine.roots, string);
                    Part::Shared(Box::new(sent) as SharedBytes)
                };
                let parts = (0..count).filter_map(string).map(part).collect();
                self.sender().send(partial, Some(total as u64), Payload::Parts(parts));
            }
        }
    }

    /// Sends a body that has a path; the kernel sends the file. Returns false if the path is not a regular file, or
    /// if the file has another length than the head declares.
    pub(super) fn send_file(self, partial: PartialHead, body: VALUE) -> bool {
        let to_path = self.engine.names.to_path;
        if partial.claims_chunks() || !responds_to(self.ruby, body, to_path) {
            return false;
        }
        let path = call(self.ruby, body, to_path, &[]);
        let Some(path) = self.path_of(path) else { return false };
        let opened = path.read(self.ruby.gvl(), super::files::open);
        let Some((file, size)) = opened else { return false };
        if partial.claimed_bytes().is_some_and(|claimed| claimed != size) {
            return false;
        }
        self.send_open_file(partial, file, size);
        true
    }

    /// Converts an object to a path: a String, or an object with `to_path` or `to_str`, such as a Pathname.
    fn path_of(self, path: VALUE) -> Option<RString> {
        let names = &self.engine.names;
        let is_path = |name| responds_to(self.ruby, path, name);
        RString::of(self.ruby.gvl(), path).or_else(|| {
            let is_path = is_path(names.to_path) || is_path(names.to_str);
            is_path.then(|| RString::from_path(self.ruby, path))
        })
    }

    /// Sends a file that a header field names, if the file lies in one of the declared folders.
    pub(super) fn send_declared_file(self, partial: PartialHead, path: RString) {
        let files = &self.engine.files;
        let opened = path.read(self.ruby.gvl(), |path| files.open(path));
        match opened {
            Some((file, size)) => self.send_open_file(partial.without_chunks(), file, size),
            None => self.respond_instead(self.engine.callbacks.no_file(self.ruby, path)),
        }
    }

    /// Sends a body that yields its pieces.
    pub(super) fn send_pieces(self, partial: PartialHead, body: VALUE) {
        let context = self.context;
        // SAFETY: nothing else uses the buffer meanwhile.
        unsafe { context.gathered.get() }.clear();
        context.partial.set(Some(partial));
        context.gathers.set(partial.claimed_bytes().is_some() || partial.claims_chunks());
        context.stage.set(Stage::Gathering);
        let block = BodyBlock::new(self.engine, context);
        call_with_block(self.ruby, body, self.engine.names.each, block);
        self.engine.check_fork(self.ruby);
        match context.stage.get() {
            Stage::Gathering => {
                // SAFETY: no Ruby code runs while the bytes are used.
                let gathered = unsafe { context.gathered.get() };
                self.check_length(partial, gathered.len());
                self.check_chunks(partial, [&gathered[..]]);
                self.sender().send_bytes(partial, Some(gathered.len()), gathered);
            }
            Stage::Streaming => {
                let missing = self.sender().finish_stream();
                if missing > 0 {
                    raise::runtime_error(self.ruby, too_short(self.ruby.gvl(), missing));
                }
            }
            Stage::Unsent | Stage::Done => {}
        }
    }

    /// Sends a body that writes to a stream, which the application closes (Rack 3).
    pub(super) fn send_stream(self, partial: PartialHead, body: VALUE) {
        let context = self.context;
        let Some(ticket) = context.ticket.get() else { return };
        // SAFETY: nothing else uses the buffer meanwhile.
        unsafe { context.gathered.get() }.clear();
        context.partial.set(Some(partial));
        self.sender().start_stream();
        let ticket = RString::binary(self.ruby.gvl(), &ticket.to_bytes());
        let arguments = [body, context.env.get(), context.input.get()];
        if self.engine.callbacks.stream(self.ruby, ticket, arguments) {
            // When the stream is closed, it closes the request's body.
            context.input.set(NIL);
        }
        context.stage.set(Stage::Done);
    }

    /// Sends the head, and passes the connection to the application: to its `rack.hijack` (partial hijack), or to a
    /// streaming body that switches protocols.
    pub(super) fn give_away(self, partial: PartialHead, hijack: VALUE) {
        self.sender().send_raw_head(self.ruby, partial);
        if let Some(taken) = self.sender().detach(self.ruby.gvl()) {
            self.engine.callbacks.give_away(self.ruby, hijack, taken);
        }
    }

    fn send_open_file(self, partial: PartialHead, file: OwnedFd, size: u64) {
        let payload = match size {
            0 => Payload::Empty,
            length => Payload::File { file, offset: 0, length },
        };
        self.sender().send(partial, Some(size), payload);
    }

    /// The Array with the same pieces that a body converts to (Rack 3). The body may be inside the wrappers of Rack's
    /// middleware. Some wrappers close on conversion; all bodies are closed once the response is sent.
    pub(super) fn array_inside(self, mut body: VALUE) -> Option<RArray> {
        let (gvl, names) = (self.ruby.gvl(), &self.engine.names);
        for _ in 0..WRAPPERS_MAX {
            if responds_to(self.ruby, body, names.to_ary) {
                return RArray::of(gvl, call(self.ruby, body, names.to_ary, &[]));
            }
            // Rack 2 hides the `to_ary` of the wrapped body.
            if class_name(gvl, body) != c"Rack::BodyProxy" {
                return None;
            }
            body = variable(gvl, body, names.of_body);
        }
        None
    }

    /// Raises if the length of a body differs from the length in its head.
    fn check_length(self, partial: PartialHead, bytes: usize) {
        match partial.claimed_bytes() {
            Some(claimed) if self.is_sent() && claimed != bytes as u64 => {
                self.raise_wrong_length(claimed, bytes)
            }
            _ => {}
        }
    }

    /// Raises if a body is not chunked although its head declares chunks.
    fn check_chunks<'a>(self, partial: PartialHead, pieces: impl IntoIterator<Item = &'a [u8]>) {
        if partial.claims_chunks() && self.is_sent() && !are_chunks(pieces) {
            let text = b"transfer-encoding is chunked, but the body is not in chunks";
            raise::runtime_error(self.ruby, RString::binary(self.ruby.gvl(), text))
        }
    }

    /// Whether the response has a body.
    fn is_sent(self) -> bool {
        !self.context.constraints.get().is_head && !is_bodiless(self.context.status.get())
    }

    /// Raises before any part of the response was sent.
    pub(super) fn raise_wrong_length(self, claimed: u64, bytes: usize) -> ! {
        let text = || format!("content-length is {claimed}, but the body has {bytes} bytes");
        let message = RString::binary(self.ruby.gvl(), text().as_bytes());
        raise::runtime_error(self.ruby, message)
    }
}
