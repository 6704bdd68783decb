//! Passes a response from its head to the engine.

use std::os::fd::{IntoRawFd, RawFd};

use rb_sys::VALUE;
use thruway_http1::response::PartialHead;
use thruway_http1::{BodyPlan, ResponseFraming, ResponseHead};
use thruway_roles::AwaitedEvent;
use thruway_serve::{Direction, Payload, Response, Ticket, WriteOutcome};

use super::context::{Context, Stage};
use super::fibers::scheduler::{self, FiberScheduler};
use super::shared_engine::SharedEngine;
use crate::ruby::{Gvl, NIL, ProtectedCall, RString, thread};

/// The size up to which a body is copied behind its head, which is cheaper than sending two pieces.
const COPIED_BYTES_MAX: usize = 8 << 10;

/// The time between two checks of a client that is waited for. An end of the thread, or a timeout, is noticed that
/// late.
const LOOK_MS: i32 = 100;
const LOOK_US: u64 = LOOK_MS as u64 * 1_000;

/// Sends the response to one thread's request.
#[derive(Clone, Copy)]
pub(super) struct Sender<'a> {
    engine: &'a SharedEngine,
    context: &'a Context,
}

impl<'a> Sender<'a> {
    pub(super) fn new(engine: &'a SharedEngine, context: &'a Context) -> Self {
        Self { engine, context }
    }

    /// Sends a head and a body of bytes. Without `length`, the head keeps its own.
    pub(super) fn send_bytes(self, partial: PartialHead, length: Option<usize>, body: &[u8]) {
        let length = length.map(|length| length as u64);
        if body.len() > COPIED_BYTES_MAX {
            return self.send(partial, length, Payload::Slices(&[body]));
        }
        let Some(plan) = self.finish_head(partial, length) else { return };
        // SAFETY: no Ruby code runs while the head is used.
        let out = unsafe { self.context.head.get() };
        if plan.framing.decodes() {
            let payload = Payload::Slices(&[body]);
            return self.hand_over(Response { head: out, plan, payload });
        }
        if plan.framing != ResponseFraming::Empty {
            out.extend_from_slice(body);
        }
        self.hand_over(Response { head: out, plan, payload: Payload::Empty });
    }

    /// Sends a head and a body.
    pub(super) fn send(self, partial: PartialHead, length: Option<u64>, payload: Payload<'_>) {
        let Some(plan) = self.finish_head(partial, length) else { return };
        // SAFETY: no Ruby code runs while the head is used.
        let head = unsafe { self.context.head.get() };
        self.hand_over(Response { head, plan, payload });
    }

    /// Sends an error response without calling Ruby.
    pub(super) fn send_bare_error(self) {
        let Some(ticket) = self.context.ticket.get() else { return };
        let mut engine = self.engine.lock();
        let mut writer = engine.response(ticket);
        let date = writer.date();
        let mut head = Vec::new();
        let constraints = self.context.constraints.get();
        let plan = ResponseHead::new(&mut head, 500).finish(constraints, Some(0), &date);
        writer.respond(Response { head: &head, plan, payload: Payload::Empty });
        self.context.stage.set(Stage::Done);
    }

    /// Sends the head and the gathered pieces as the start of a stream. If nothing is gathered, the head waits for
    /// the next piece.
    pub(super) fn begin_stream(self) {
        let Some(partial) = self.context.partial.take() else { return };
        let Some(ticket) = self.context.ticket.get() else { return };
        let Some(plan) = self.finish_head(partial, None) else { return };
        self.context.stage.set(Stage::Streaming);
        // SAFETY: no Ruby code runs while the bytes are used.
        let head = unsafe { self.context.head.get() };
        // SAFETY: as above.
        let gathered = unsafe { self.context.gathered.get() };
        let mut engine = self.engine.lock();
        let mut writer = engine.response(ticket);
        writer.begin(head, plan);
        if !gathered.is_empty() {
            writer.write(gathered);
        }
    }

    /// As [`begin_stream`](Self::begin_stream), but the head does not wait.
    pub(super) fn start_stream(self) {
        self.begin_stream();
        if let Some(ticket) = self.context.ticket.get() {
            self.engine.lock().response(ticket).flush();
        }
    }

    /// Ends a stream. Returns the number of missing bytes.
    pub(super) fn finish_stream(self) -> u64 {
        self.context.stage.set(Stage::Done);
        let ticket = self.context.ticket.get();
        ticket.map_or(0, |ticket| self.engine.lock().response(ticket).finish())
    }

    /// Ends the connection, unless the response was sent completely.
    pub(super) fn abort(self) {
        if let Some(ticket) = self.context.ticket.get()
            && self.context.stage.get() != Stage::Done
        {
            self.engine.lock().response(ticket).abort();
        }
        self.context.stage.set(Stage::Done);
    }

    /// Sends a head after which the connection belongs to the application, and waits until the head is sent.
    pub(super) fn send_raw_head(self, ruby: ProtectedCall, partial: PartialHead) {
        let Some(ticket) = self.context.ticket.get() else { return };
        let written = self.begin_raw(partial, ticket);
        self.context.stage.set(Stage::Streaming);
        wait_below(ruby, self.engine, ticket, written, 0);
        self.context.stage.set(Stage::Done);
    }

    /// Takes the connection out of the engine. Returns its descriptor, and the bytes that were read ahead.
    pub(super) fn detach(self, gvl: Gvl) -> Option<[VALUE; 2]> {
        let ticket = self.context.ticket.get()?;
        let (socket, input) = self.engine.lock().response(ticket).detach()?;
        let number = rb_sys::LONG2NUM(socket.into_raw_fd().into());
        Some([number, RString::binary(gvl, &input).value()])
    }

    fn begin_raw(self, partial: PartialHead, ticket: Ticket) -> WriteOutcome {
        let mut engine = self.engine.lock();
        let mut writer = engine.response(ticket);
        // SAFETY: no Ruby code runs while the head is used.
        let head = unsafe { self.context.head.get() };
        let plan = ResponseHead::resume(head, partial).finish_raw(&writer.date());
        writer.begin(head, plan);
        writer.flush()
    }

    fn finish_head(self, partial: PartialHead, length: Option<u64>) -> Option<BodyPlan> {
        let date = self.engine.lock().response(self.context.ticket.get()?).date();
        // SAFETY: no Ruby code runs while the head is used.
        let out = unsafe { self.context.head.get() };
        let constraints = self.context.constraints.get();
        Some(ResponseHead::resume(out, partial).finish(constraints, length, &date))
    }

    fn hand_over(self, response: Response<'_>) {
        self.context.stage.set(Stage::Done);
        if let Some(ticket) = self.context.ticket.get() {
            let mut engine = self.engine.lock();
            let writer = engine.response(ticket);
            let mut writer = if self.context.corks.get() { writer.corked() } else { writer };
            writer.respond(response);
        }
    }
}

/// Waits while more of a response waits for the client than may be kept in memory and in files. Returns false if the
/// client has disconnected. Only an endless body has to wait.
pub(super) fn wait_for_client(
    ruby: ProtectedCall,
    engine: &SharedEngine,
    ticket: Ticket,
    written: WriteOutcome,
) -> bool {
    let most = engine.lock().response(ticket).backlog_bytes_max();
    wait_below(ruby, engine, ticket, written, most)
}

fn wait_below(
    ruby: ProtectedCall,
    engine: &SharedEngine,
    ticket: Ticket,
    mut written: WriteOutcome,
    bytes_max: u64,
) -> bool {
    while let WriteOutcome::Backlog(bytes) = written {
        if bytes <= bytes_max {
            return true;
        }
        let Some((socket, direction)) = engine.socket(ticket) else { return false };
        let mut object = NIL;
        match scheduler::current(ruby, &mut object) {
            Some(scheduler) => wait_in_fiber(ruby, scheduler, socket, direction),
            None => ruby.gvl().release(|| wait_for(socket, direction), || ()),
        }
        thread::check_interrupts(ruby);
        let mut engine = engine.lock();
        // All threads may be waiting here, so that none of them advances the engine's clock.
        engine.tick();
        written = engine.response(ticket).flush();
    }
    false
}

/// As [`wait_for`], but other fibers run meanwhile.
fn wait_in_fiber(
    ruby: ProtectedCall,
    scheduler: &FiberScheduler,
    descriptor: RawFd,
    direction: Direction,
) {
    let events = u32::from(events_of(direction).unsigned_abs());
    scheduler.suspend(ruby, AwaitedEvent::Io { descriptor, events }, Some(LOOK_US));
}

fn events_of(direction: Direction) -> i16 {
    match direction {
        Direction::In => libc::POLLIN,
        Direction::Out => libc::POLLOUT,
    }
}

/// Waits until `socket` is writable, or readable, as `direction` states. If the socket is closed, or another thread
/// reads its bytes, the wait ends with the next check.
fn wait_for(socket: RawFd, direction: Direction) {
    let mut polled = libc::pollfd { fd: socket, events: events_of(direction), revents: 0 };
    // SAFETY: the pointer is to one entry; a closed descriptor is reported, not touched.
    unsafe { libc::poll(&raw mut polled, 1, LOOK_MS) };
}

/// The message for a body that was cut off because it is longer than its declared length.
pub(super) fn too_long(gvl: Gvl) -> RString {
    let text = b"the body is longer than its content-length: the response was broken off";
    RString::binary(gvl, text)
}

/// The message for a body that is shorter than its declared length.
pub(super) fn too_short(gvl: Gvl, missing: u64) -> RString {
    let text = format!(
        "the body is {missing} bytes shorter than its content-length: the response was broken off"
    );
    RString::binary(gvl, text.as_bytes())
}
