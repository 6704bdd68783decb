//! Bodies on their way to a client.
//!
//! An Array of Strings leaves at once. Each piece that another body yields leaves at once, too: whether the next
//! one follows soon, nothing tells. Two kinds of bodies are different: one that is an Array ruby, and one whose
//! length is told. Their pieces are gathered, so that a short answer leaves in one write; they become a stream
//! when they are many, or when the application blocks between two of them. Only the leader gathers: when it
//! blocks, its successor sends what it has. Files are sent by the kernel.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use rb_sys::{VALUE, ruby_value_type};
use thruway_http1::response::{PartialHead, is_bodiless};
use thruway_http1::{BodyPlan, ResponseFraming, ResponseHead};
use thruway_serve::{Part, Payload, Response, SharedBytes, Ticket, Written, monotonic_us};

use super::RackEngine;
use super::context::{Context, Stage};
use super::gvl::{Gvl, NIL, Protected};
use super::roots::SentString;

/// Pieces of a body are gathered up to here, and sent one by one beyond.
const GATHERED_BYTES_MAX: usize = 64 << 10;

/// Pieces are gathered for so long: a body that computes each of them is a stream.
const GATHERED_US_MAX: u64 = 5_000;

/// A body up to here is copied behind its head, which is cheaper than to send two pieces.
const COPIED_BYTES_MAX: usize = 8 << 10;

/// Wrappers of a body that are looked into: each middleware may add one.
const WRAPPERS_MAX: usize = 32;

/// Between two looks at a client that is waited for: as late may its thread, or its time, be ended.
const LOOK_MS: i32 = 100;

impl RackEngine {
    /// A body that is an Array: its length is known.
    pub(super) fn send_array(
        &self,
        ruby: Protected,
        context: &Context,
        partial: PartialHead,
        body: VALUE,
    ) {
        let gvl = ruby.gvl();
        let count = gvl.array_length(body);
        let mut total = 0;
        for at in 0..count {
            let piece = gvl.element(body, at);
            if !gvl.is(piece, ruby_value_type::RUBY_T_STRING) {
                ruby.type_error("a body consists of Strings");
            }
            // SAFETY: only the length is looked at.
            total += unsafe { gvl.bytes(piece) }.len();
        }
        self.check_length(ruby, context, partial, total);
        // SAFETY: no Ruby code runs from here on, so the Strings stay as they are.
        let piece = |at| unsafe { gvl.bytes(gvl.element(body, at)) };
        match count {
            0 => self.send_bytes(context, partial, Some(0), &[]),
            1 if total <= GATHERED_BYTES_MAX => {
                self.send_bytes(context, partial, Some(total), piece(0));
            }
            _ if total <= GATHERED_BYTES_MAX => {
                // SAFETY: nothing else uses it meanwhile.
                let gathered = unsafe { context.gathered.get() };
                gathered.clear();
                (0..count).for_each(|at| gathered.extend_from_slice(piece(at)));
                self.send_bytes(context, partial, Some(total), gathered);
            }
            _ => self.send_shared(gvl, context, partial, total, body),
        }
    }

    /// Raises if a body that is sent is not as long as its head claims.
    fn check_length(&self, ruby: Protected, context: &Context, partial: PartialHead, bytes: usize) {
        let is_sent = !context.constraints.get().is_head && !is_bodiless(context.status.get());
        match partial.claimed_bytes() {
            Some(claimed) if is_sent && claimed != bytes as u64 => {
                raise_wrong_length(ruby, claimed, bytes)
            }
            _ => {}
        }
    }

    /// Large Strings are kept for a slow client without being copied.
    fn send_shared(
        &self,
        gvl: Gvl,
        context: &Context,
        partial: PartialHead,
        total: usize,
        body: VALUE,
    ) {
        let part = |at| {
            let string = SentString::new(gvl, &self.roots, gvl.element(body, at));
            Part::Shared(Box::new(string) as SharedBytes)
        };
        let parts = (0..gvl.array_length(body)).map(part).collect();
        self.send(context, partial, Some(total as u64), Payload::Parts(parts));
    }

    /// A head and a body of bytes; without a length, the one that the head claims stands.
    pub(super) fn send_bytes(
        &self,
        context: &Context,
        partial: PartialHead,
        length: Option<usize>,
        body: &[u8],
    ) {
        let length = length.map(|length| length as u64);
        if body.len() > COPIED_BYTES_MAX {
            return self.send(context, partial, length, Payload::Slices(&[body]));
        }
        let plan = self.finish_head(context, partial, length);
        // SAFETY: no Ruby code runs while the head is used.
        let out = unsafe { context.head.get() };
        if plan.framing == ResponseFraming::Decoded {
            let payload = Payload::Slices(&[body]);
            return self.hand_over(context, Response { head: out, plan, payload });
        }
        if plan.framing != ResponseFraming::Empty {
            out.extend_from_slice(body);
        }
        self.hand_over(context, Response { head: out, plan, payload: Payload::Empty });
    }

    fn send(
        &self,
        context: &Context,
        partial: PartialHead,
        length: Option<u64>,
        payload: Payload<'_>,
    ) {
        let plan = self.finish_head(context, partial, length);
        // SAFETY: no Ruby code runs while the head is used.
        let head = unsafe { context.head.get() };
        self.hand_over(context, Response { head, plan, payload });
    }

    fn finish_head(
        &self,
        context: &Context,
        partial: PartialHead,
        length: Option<u64>,
    ) -> BodyPlan {
        let date = self.engine().date();
        // SAFETY: no Ruby code runs while the head is used.
        let out = unsafe { context.head.get() };
        ResponseHead::resume(out, partial).finish(context.constraints.get(), length, &date)
    }

    fn hand_over(&self, context: &Context, answer: Response<'_>) {
        context.stage.set(Stage::Done);
        if let Some(ticket) = context.ticket.get() {
            self.engine().respond(ticket, answer);
        }
    }

    /// A body that has a path: the kernel sends it. False if it is no file, or another one than the
    /// head claims.
    pub(super) fn send_file(
        &self,
        ruby: Protected,
        context: &Context,
        partial: PartialHead,
        body: VALUE,
    ) -> bool {
        let gvl = ruby.gvl();
        if !gvl.responds_to(body, self.names.to_path) {
            return false;
        }
        let path = ruby.call(body, self.names.to_path, &[]);
        if !gvl.is(path, ruby_value_type::RUBY_T_STRING) {
            return false;
        }
        // SAFETY: no Ruby code runs while the bytes are used.
        let opened = super::files::open(unsafe { gvl.bytes(path) });
        let Some((file, size)) = opened else { return false };
        if partial.claimed_bytes().is_some_and(|claimed| claimed != size) {
            return false;
        }
        self.send_open_file(context, partial, file, size);
        true
    }

    /// A file that a field names, in one of the folders that are declared for it.
    pub(super) fn send_declared_file(
        &self,
        ruby: Protected,
        context: &Context,
        partial: PartialHead,
        path: VALUE,
    ) {
        // SAFETY: no Ruby code runs while the bytes are used.
        let opened = self.files.open(unsafe { ruby.gvl().bytes(path) });
        match opened {
            Some((file, size)) => self.send_open_file(context, partial, file, size),
            None => {
                let status = ruby.call(self.callbacks.value(), self.names.no_file, &[path]);
                self.respond(ruby, context, status);
            }
        }
    }

    fn send_open_file(&self, context: &Context, partial: PartialHead, file: OwnedFd, size: u64) {
        let payload = match size {
            0 => Payload::Empty,
            length => Payload::File { file, offset: 0, length },
        };
        self.send(context, partial, Some(size), payload);
    }

    /// A body that yields its pieces.
    pub(super) fn send_pieces(
        &self,
        ruby: Protected,
        context: &Context,
        partial: PartialHead,
        body: VALUE,
    ) {
        // SAFETY: nothing else uses it meanwhile.
        unsafe { context.gathered.get() }.clear();
        context.partial.set(Some(partial));
        let is_told = partial.claimed_bytes().is_some();
        context.gathers.set(is_told || self.is_array_inside(ruby.gvl(), body));
        context.stage.set(Stage::Gathering);
        ruby.call_with_block(body, self.names.each, |ruby, piece| {
            self.take_piece(ruby, context, piece);
        });
        match context.stage.get() {
            Stage::Gathering => {
                // SAFETY: no Ruby code runs while the bytes are used.
                let gathered = unsafe { context.gathered.get() };
                self.check_length(ruby, context, partial, gathered.len());
                self.send_bytes(context, partial, Some(gathered.len()), gathered);
            }
            Stage::Streaming => {
                context.stage.set(Stage::Done);
                let finish = |ticket| self.engine().finish(ticket);
                let missing = context.ticket.get().map_or(0, finish);
                if missing > 0 {
                    ruby.runtime_error(too_short(ruby.gvl(), missing));
                }
            }
            Stage::Unsent | Stage::Done => {}
        }
    }

    fn take_piece(&self, ruby: Protected, context: &Context, piece: VALUE) {
        let gvl = ruby.gvl();
        if !gvl.is(piece, ruby_value_type::RUBY_T_STRING) {
            ruby.type_error("a body consists of Strings");
        }
        // SAFETY: no Ruby code runs while the bytes are used.
        let bytes = unsafe { gvl.bytes(piece) };
        if context.stage.get() == Stage::Gathering {
            if self.gather(ruby, context, bytes) {
                return;
            }
            self.begin_stream(context);
        }
        let Some(ticket) = context.ticket.get() else { return };
        let written = self.engine().write(ticket, bytes);
        if written == Written::Excess {
            ruby.runtime_error(too_long(gvl));
        }
        if !self.wait_for_client(ruby, ticket, written) {
            ruby.leave_block();
        }
    }

    /// Keeps a piece for the next one; false if what is gathered should leave now, and the piece with it.
    fn gather(&self, ruby: Protected, context: &Context, piece: &[u8]) -> bool {
        // SAFETY: no Ruby code runs while the bytes are used.
        let gathered = unsafe { context.gathered.get() };
        let total = gathered.len() + piece.len();
        let claimed = context.partial.get().and_then(|partial| partial.claimed_bytes());
        if let Some(claimed) = claimed.filter(|claimed| *claimed < total as u64) {
            raise_wrong_length(ruby, claimed, total);
        }
        if !context.gathers.get() || is_late(context, gathered.is_empty()) {
            return false;
        }
        if total > GATHERED_BYTES_MAX || !self.is_watched(context) {
            return false;
        }
        gathered.extend_from_slice(piece);
        self.leadership.signal().note_gathering();
        true
    }

    /// Whether a body has all its pieces already, and yields them without a wait: it is an Array, or would turn
    /// into one, within the wrappers that Rack's middleware puts around it.
    fn is_array_inside(&self, gvl: Gvl, mut body: VALUE) -> bool {
        for _ in 0..WRAPPERS_MAX {
            if gvl.responds_to(body, self.names.to_ary) {
                return true;
            }
            // Rack 2 hides `to_ary` of what is ruby.
            if gvl.class_name(body) != c"Rack::BodyProxy" {
                return false;
            }
            body = gvl.variable(body, self.names.of_body);
        }
        false
    }

    /// Whether pieces can be gathered: the thread's successor will send them, should it block before the
    /// next one. Nobody would for a thread that has lost the lead, or while all others are busy.
    fn is_watched(&self, context: &Context) -> bool {
        self.leadership.has_successor(context.number, self.contexts.len())
    }

    /// Sends the head and what is gathered as the start of a stream.
    pub(super) fn start_stream(&self, context: &Context) {
        self.begin_stream(context);
        if let Some(ticket) = context.ticket.get() {
            self.engine().flush(ticket);
        }
    }

    /// Sends what is gathered as the start of a stream. Without that, the head waits for the next piece.
    fn begin_stream(&self, context: &Context) {
        let (Some(partial), Some(ticket)) = (context.partial.take(), context.ticket.get()) else {
            return;
        };
        let plan = self.finish_head(context, partial, None);
        context.stage.set(Stage::Streaming);
        // SAFETY: no Ruby code runs while the bytes are used.
        let head = unsafe { context.head.get() };
        // SAFETY: as above.
        let gathered = unsafe { context.gathered.get() };
        let mut engine = self.engine();
        engine.begin(ticket, head, plan);
        if !gathered.is_empty() {
            engine.write(ticket, gathered);
        }
    }

    /// Sends what every other thread has gathered: it blocks, and its next piece may be far.
    pub(super) fn flush_gathered(&self) {
        for context in &self.contexts {
            if context.stage.get() == Stage::Gathering {
                self.start_stream(context);
            }
        }
    }

    /// A body that writes by itself, through a stream that the application closes (Rack 3).
    pub(super) fn send_stream(
        &self,
        ruby: Protected,
        context: &Context,
        partial: PartialHead,
        body: VALUE,
    ) {
        let Some(ticket) = context.ticket.get() else { return };
        // SAFETY: nothing else uses it meanwhile.
        unsafe { context.gathered.get() }.clear();
        context.partial.set(Some(partial));
        self.start_stream(context);
        let ticket = ruby.gvl().string(&ticket.to_bytes());
        let arguments = [ticket, body, context.env.get(), context.input.get()];
        let goes_on = ruby.call(self.callbacks.value(), self.names.stream, &arguments);
        if rb_sys::TEST(goes_on) {
            // The stream closes the request's body, when it is closed itself.
            context.input.set(NIL);
        }
        context.stage.set(Stage::Done);
    }

    /// Sends the head, and gives the connection to the application: to its `rack.hijack` (partial
    /// hijack), or to a streaming body that switches protocols.
    pub(super) fn give_away(
        &self,
        ruby: Protected,
        context: &Context,
        partial: PartialHead,
        hijack: VALUE,
    ) {
        let Some(ticket) = context.ticket.get() else { return };
        let date = self.engine().date();
        // SAFETY: no Ruby code runs while the head is used.
        let head = unsafe { context.head.get() };
        let plan = ResponseHead::resume(head, partial).finish_raw(&date);
        self.engine().begin(ticket, head, plan);
        let written = self.engine().flush(ticket);
        context.stage.set(Stage::Streaming);
        self.wait_below(ruby, ticket, written, 0);
        context.stage.set(Stage::Done);
        if let Some((socket, input)) = self.detach(ruby.gvl(), ticket) {
            let arguments = [hijack, socket, input];
            ruby.call(self.callbacks.value(), self.names.give_away, &arguments);
        }
    }

    /// Takes a connection out of the engine: its descriptor, and what was read ahead, as Ruby objects.
    pub(super) fn detach(&self, gvl: Gvl, ticket: Ticket) -> Option<(VALUE, VALUE)> {
        let (socket, input) = self.engine().detach(ticket)?;
        let number = rb_sys::LONG2NUM(socket.into_raw_fd().into());
        Some((number, gvl.string(&input)))
    }

    /// Waits while more of the answer waits for the client than is kept in memory and in files; false if
    /// the client is gone. There is nothing to wait for, but with an endless body.
    pub(super) fn wait_for_client(
        &self,
        ruby: Protected,
        ticket: Ticket,
        written: Written,
    ) -> bool {
        let most = self.engine().backlog_bytes_max();
        self.wait_below(ruby, ticket, written, most)
    }

    fn wait_below(
        &self,
        ruby: Protected,
        ticket: Ticket,
        mut written: Written,
        bytes_max: u64,
    ) -> bool {
        while let Written::Backlog(bytes) = written {
            if bytes <= bytes_max {
                return true;
            }
            let socket = self.engine().socket(ticket).map(|socket| socket.as_raw_fd());
            let Some(socket) = socket else { return false };
            ruby.gvl().release(|| wait_writable(socket), || ());
            ruby.check_interrupts();
            let mut engine = self.engine();
            // All threads may be waiting here, so that none looks at the time.
            engine.tick();
            written = engine.flush(ticket);
        }
        false
    }
}

/// Raises, before anything of the answer was sent.
fn raise_wrong_length(ruby: Protected, claimed: u64, bytes: usize) -> ! {
    let text = || format!("content-length is {claimed}, but the body has {bytes} bytes");
    let message = ruby.gvl().string(text().as_bytes());
    ruby.runtime_error(message)
}

/// What is said of a body that was broken off because it is longer than was claimed.
pub(super) fn too_long(gvl: Gvl) -> VALUE {
    gvl.string(b"the body is longer than its content-length: the response was broken off")
}

/// What is said of one that is shorter.
pub(super) fn too_short(gvl: Gvl, missing: u64) -> VALUE {
    let text = format!(
        "the body is {missing} bytes shorter than its content-length: the response was broken off"
    );
    gvl.string(text.as_bytes())
}

/// Whether a piece comes long after the first one that was gathered: the body takes its time.
fn is_late(context: &Context, is_first: bool) -> bool {
    let now_us = monotonic_us();
    if is_first {
        context.gathered_us.set(now_us);
    }
    now_us > context.gathered_us.get() + GATHERED_US_MAX
}

/// Waits until `socket` takes bytes. Should it be closed meanwhile, the wait ends with the next look.
fn wait_writable(socket: RawFd) {
    let mut polled = libc::pollfd { fd: socket, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the pointer is to one entry; a descriptor that is closed is reported, not touched.
    unsafe { libc::poll(&raw mut polled, 1, LOOK_MS) };
}
