//! Responses: complete ones, and those whose body is written piece by piece.

use std::borrow::Cow;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use thruway_cache::StoredResponse;
use thruway_http1::date::DATE_BYTES;
use thruway_http1::response::{CHUNK_END, CHUNKS_END, ResponseConstraints, chunk_start, reason};
use thruway_http1::{BodyPlan, ResponseFraming, ResponseHead};

use crate::entry::carrier::Socket;
use crate::entry::ticket::Ticket;
use crate::entry::{Entry, Payload, State, Stream};
use crate::exchange::cached::capture::{self, Passage};
use crate::exchange::cached::reply::Reply;
use crate::exchange::counting;
use crate::exchange::http2::output;
use crate::output::unchunk::Unchunk;
use crate::output::{FlushOutcome, Part, QUANTUM_BYTES};
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// A response that is ready to be sent.
#[derive(Debug)]
pub struct Response<'a> {
    /// The head, as written by a [`ResponseHead`].
    pub head: &'a [u8],
    /// The framing and length of the body, as announced by the head.
    pub plan: BodyPlan,
    /// The body, whose length must match the plan. The body is not sent if the response must not have one.
    pub payload: Payload<'a>,
}

/// The event for which a thread waits at a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The socket is readable.
    In,
    /// The socket is writable.
    Out,
}

/// The result of writing a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteOutcome {
    /// The piece is sent or kept, and this number of bytes waits for the client. The writer waits before the next piece
    /// if the number is too large.
    Backlog(u64),
    /// The piece exceeds the length that the head has announced, and the connection is reset.
    Excess,
    /// The client is gone, or the request is over: nothing would read further pieces.
    Gone,
}

/// Writes the response to a single request. Once the request is over, nothing is written.
#[derive(Debug)]
pub struct ResponseWriter<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) ticket: Ticket,
    /// Whether a short complete response of HTTP/2 may wait for other responses of its connection.
    corks: bool,
}

impl<'a> ResponseWriter<'a> {
    pub(crate) fn new(store: &'a mut Store, ticket: Ticket) -> Self {
        Self { store, ticket, corks: false }
    }

    /// Lets a short complete response of HTTP/2 leave together with later responses of its connection. The response
    /// waits for half a millisecond, or until the engine is about to wait. Meant for a caller that polls soon.
    #[must_use]
    pub fn corked(self) -> Self {
        Self { corks: true, ..self }
    }

    /// Returns the date for the response.
    pub fn date(&mut self) -> [u8; DATE_BYTES] {
        self.store.clock.date()
    }

    /// Returns the connection's socket, and the event after which the client may take more bytes. A response of HTTP/2
    /// can also wait for window updates from the client, and then until the socket is readable.
    #[must_use]
    pub fn socket(self) -> Option<(BorrowedFd<'a>, Direction)> {
        let store: &'a Store = self.store;
        let connection = store.slab.get(self.ticket.connection);
        let connection = connection.filter(|found| found.is_of(self.ticket))?;
        let Some(link) = connection.carrier.stream() else {
            return Some((connection.carrier.socket()?, Direction::Out));
        };
        let parent = store.slab.get(link.parent)?;
        let direction = if parent.readiness.is_writable { Direction::In } else { Direction::Out };
        Some((parent.carrier.socket()?, direction))
    }

    /// Whether the client can receive nothing more of the response, or the request is over.
    #[must_use]
    pub fn is_gone(&mut self) -> bool {
        self.store.find_request(self.ticket).is_none()
    }

    /// Whether the connection needs a turn, for example for its next request. May be true even after the response.
    #[must_use]
    pub fn has_work(&mut self) -> bool {
        let has_news = std::mem::take(&mut self.store.has_news);
        let connection = self.store.slab.get(self.ticket.connection);
        has_news || connection.is_some_and(Entry::has_work)
    }

    /// Sends a complete response. Does nothing if the client is gone.
    pub fn respond(&mut self, response: Response<'_>) {
        if !response.plan.framing.decodes() {
            return match self.store.cache {
                None => self.send(response),
                Some(_) => self.pass_by_cache(response),
            };
        }
        self.begin(response.head, response.plan);
        match response.payload {
            Payload::Slices(slices) => slices.iter().for_each(|slice| {
                self.write(slice);
            }),
            Payload::Parts(parts) => parts.iter().filter_map(Part::bytes).for_each(|bytes| {
                self.write(bytes);
            }),
            Payload::Empty | Payload::File { .. } => {}
        }
        self.finish();
    }

    /// Sends an interim response, such as 103 (Early Hints), unless the response itself has begun.
    pub fn inform(&mut self, head: &[u8]) {
        let Some(mut entry) = self.store.find_request(self.ticket) else { return };
        if entry.carrier.stream().is_some() {
            output::inform(entry, head);
        } else if matches!(entry.state, State::Handling) {
            let flushed = entry.deliver(head, Payload::Empty, QUANTUM_BYTES);
            if let Some(mut entry) = entry.after_flush(flushed) {
                entry.settle();
            }
        }
    }

    /// Sends a short response of plain text.
    pub(crate) fn respond_text(
        &mut self,
        constraints: ResponseConstraints,
        status: u16,
        text: &str,
    ) {
        let date = self.date();
        let mut out = std::mem::take(&mut self.store.scratch);
        let (plan, head_bytes) = text_response(&mut out, constraints, status, text, &date);
        let (head, body) = out.split_at(head_bytes);
        self.respond(Response { head, plan, payload: Payload::Slices(&[body]) });
        out.clear();
        self.store.scratch = out;
    }

    /// Sends a short response of plain text to a malformed request, and closes the connection.
    pub(crate) fn respond_broken(&mut self, status: u16, text: &str) {
        self.respond_text(ResponseConstraints::broken(), status, text);
    }

    /// Starts a response whose body comes in pieces. The head waits for the first piece, or for [`flush`](Self::flush).
    pub fn begin(&mut self, head: &[u8], plan: BodyPlan) -> WriteOutcome {
        if self.store.cache.is_none() {
            return self.begin_body(head, plan);
        }
        match capture::begin(self.store, self.ticket, head, plan) {
            Passage::AsItIs => self.begin_body(head, plan),
            Passage::WithHead(head) => self.begin_body(&head, plan),
            Passage::Replaced(found, reply) => {
                self.send_stored(found, reply);
                WriteOutcome::Gone
            }
        }
    }

    fn begin_body(&mut self, head: &[u8], plan: BodyPlan) -> WriteOutcome {
        let Some(mut guard) = self.store.find_request(self.ticket) else {
            return WriteOutcome::Gone;
        };
        let is_last = guard.closes_after_response();
        let head = &secured(guard.store, guard.listener, head)[..];
        let entry = &mut *guard;
        if !matches!(entry.state, State::Handling) {
            return WriteOutcome::Gone;
        }
        entry.is_persistent = plan.is_persistent && !is_last;
        counting::note_status(entry, head);
        let left = match plan.framing {
            ResponseFraming::Length(bytes) => bytes,
            _ => 0,
        };
        let unchunk = if plan.framing.decodes() { Unchunk::new() } else { None };
        let unchunk = unchunk.map(Box::new);
        entry.state = State::Streaming(Stream { framing: plan.framing, left, unchunk });
        entry.push_bytes(head);
        WriteOutcome::Backlog(entry.backlog_bytes())
    }

    /// Sends a piece of the body, and keeps the bytes that the client does not take now. A piece beyond the announced
    /// length resets the connection.
    pub fn write(&mut self, piece: &[u8]) -> WriteOutcome {
        let Some(mut entry) = self.store.find_request(self.ticket) else {
            return WriteOutcome::Gone;
        };
        let State::Streaming(stream) = &mut entry.state else { return WriteOutcome::Gone };
        let decoded = stream.unchunk.as_mut().map(|unchunk| unchunk.take(piece));
        match decoded {
            None => write_plain(entry, piece),
            Some(Ok(body)) => write_plain(entry, &body),
            Some(Err(_)) => {
                abort_unchunked(entry);
                WriteOutcome::Gone
            }
        }
    }

    /// Sends the waiting bytes, as far as the client takes them.
    pub fn flush(&mut self) -> WriteOutcome {
        match self.store.find_request(self.ticket) {
            Some(entry) => backlog(flush_waiting(entry)),
            None => WriteOutcome::Gone,
        }
    }

    /// Ends a body that came in pieces. Returns the number of missing bytes. A body that is shorter than announced
    /// resets the connection.
    pub fn finish(&mut self) -> u64 {
        let Some(mut guard) = self.store.find_request(self.ticket) else { return 0 };
        let entry = &mut *guard;
        let State::Streaming(Stream { framing, left, unchunk }) = &entry.state else { return 0 };
        let (framing, left) = (*framing, *left);
        if unchunk.as_ref().is_some_and(|unchunk| !unchunk.is_whole) {
            abort_unchunked(guard);
            return 0;
        }
        if left > 0 {
            guard.reset();
            return left;
        }
        entry.state = State::Responding;
        if entry.cache_role.is_some() {
            capture::finish(&mut guard);
        }
        let entry = &mut *guard;
        if framing.makes_chunks() {
            entry.push_bytes(CHUNKS_END);
        }
        counting::end(&mut guard);
        flush_waiting(guard);
        0
    }

    /// Ends the connection in the middle of a response, so that the client cannot mistake the response for complete.
    pub fn abort(&mut self) {
        if let Some(entry) = self.store.find_request(self.ticket) {
            entry.reset();
        }
    }

    /// Takes the connection out of the engine, with the bytes that were read but not parsed. Returns none if the client
    /// is gone or has not yet taken all written bytes.
    pub fn detach(&mut self) -> Option<(OwnedFd, Vec<u8>)> {
        let mut entry = self.store.find_request(self.ticket)?;
        if entry.output.is_some() || entry.carrier.stream().is_some() {
            return None;
        }
        counting::give_away(&mut entry);
        let Entry { carrier, input, .. } = entry.close()?;
        let store = &mut *self.store;
        let Socket { fd, session } = carrier.into_socket()?;
        store.poller.remove(&fd);
        let Some(session) = session else { return Some((fd, input.bytes)) };
        match store.tls.tunnel(fd, session) {
            Ok(socket) => Some((socket, input.bytes)),
            Err(error) => {
                store.warn("hand over a connection", io::Error::other(error));
                None
            }
        }
    }

    /// Returns the number of a response's bytes that may wait before the writer has to wait.
    #[must_use]
    pub fn backlog_bytes_max(&self) -> u64 {
        let settings = &self.store.settings;
        settings.response_memory_bytes_max as u64 + settings.response_file_bytes_max
    }

    /// Sends a complete response after the cache has processed it, or a stored response in its place.
    fn pass_by_cache(&mut self, response: Response<'_>) {
        let Response { head, plan, ref payload } = response;
        match capture::whole(self.store, self.ticket, (head, plan), payload) {
            Passage::AsItIs => self.send(response),
            Passage::WithHead(head) => self.send(Response { head: &head, ..response }),
            Passage::Replaced(found, reply) => self.send_stored(found, reply),
        }
    }

    /// Sends a stored response.
    pub(crate) fn send_stored(&mut self, found: StoredResponse, reply: Reply) {
        let body = &found.body()[reply.body.clone()];
        let payload = Payload::Slices(&[body]);
        self.send(Response { head: &reply.head, plan: reply.plan, payload });
        self.store.keep_buffer(found);
        self.store.scratch = reply.head;
        self.store.scratch.clear();
    }

    /// Sends a complete response, or its first quantum.
    fn send(&mut self, response: Response<'_>) {
        let turn_bytes = match &response.payload {
            Payload::File { .. } | Payload::Parts(_) => self.store.turn_bytes(),
            Payload::Empty | Payload::Slices(_) => QUANTUM_BYTES,
        };
        let Some(mut guard) = self.store.find_request(self.ticket) else { return };
        if !matches!(guard.state, State::Handling) {
            return;
        }
        // The request is counted before the response is sent, so that each response a client has seen is counted.
        counting::note_status(&mut guard, response.head);
        counting::end(&mut guard);
        let is_last = guard.closes_after_response();
        let head = secured(guard.store, guard.listener, response.head);
        let entry = &mut *guard;
        entry.state = State::Responding;
        entry.is_persistent = response.plan.is_persistent && !is_last;
        let payload = match response.plan.framing {
            ResponseFraming::Empty => Payload::Empty,
            _ => response.payload,
        };
        let flushed = entry.deliver(&head, payload, turn_bytes);
        if self.corks && output::parent_of(entry).is_some() {
            return output::cork(guard);
        }
        go_on(guard, flushed);
    }
}

/// Adds the listener's `Strict-Transport-Security` field to a head, unless the head has the field already. A short body
/// may follow the head.
fn secured<'h>(store: &Store, listener: u16, head: &'h [u8]) -> Cow<'h, [u8]> {
    const NAME: &[u8] = b"strict-transport-security:";
    let line = store.hsts.get(usize::from(listener)).and_then(Option::as_ref);
    let Some(line) = line else { return Cow::Borrowed(head) };
    let mut lines = head.split_inclusive(|byte| *byte == b'\n');
    let status_bytes = lines.next().map_or(0, <[u8]>::len);
    let is_own =
        |line: &[u8]| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME));
    if lines.take_while(|line| line.len() > 2).any(is_own) {
        return Cow::Borrowed(head);
    }
    let (status, rest) = head.split_at(status_bytes);
    Cow::Owned([status, line, rest].concat())
}

/// Returns the backlog of the response, if the connection is still open.
fn backlog(entry: Option<EntryMut<'_>>) -> WriteOutcome {
    entry.map_or(WriteOutcome::Gone, |entry| WriteOutcome::Backlog(entry.backlog_bytes()))
}

/// Resets the connection of a body that is announced as chunked, but is not in chunks or lacks the last chunk.
fn abort_unchunked(entry: EntryMut<'_>) {
    let why = "it is not in chunks, although its transfer-encoding is chunked";
    entry.store.warn("send a body", io::Error::other(why));
    entry.reset();
}

/// Sends the waiting bytes.
fn flush_waiting(mut entry: EntryMut<'_>) -> Option<EntryMut<'_>> {
    if output::parent_of(&entry).is_some() {
        output::flush(entry.reborrow());
        return entry.if_open();
    }
    let mut entry = entry.flush()?;
    entry.settle();
    Some(entry)
}

/// Continues after a delivery.
fn go_on<'a>(
    mut entry: EntryMut<'a>,
    flushed: Result<FlushOutcome, Errno>,
) -> Option<EntryMut<'a>> {
    if output::parent_of(&entry).is_some() {
        output::flush(entry.reborrow());
        return entry.if_open();
    }
    let mut entry = entry.after_flush(flushed)?;
    entry.settle();
    Some(entry)
}

fn write_plain(mut guard: EntryMut<'_>, piece: &[u8]) -> WriteOutcome {
    let entry = &mut *guard;
    let State::Streaming(stream) = &mut entry.state else { return WriteOutcome::Gone };
    if !stream.takes(piece) {
        guard.reset();
        return WriteOutcome::Excess;
    }
    if piece.is_empty() || stream.framing == ResponseFraming::Empty {
        return WriteOutcome::Backlog(entry.backlog_bytes());
    }
    if entry.cache_role.is_some() {
        capture::note_piece(&mut guard, piece);
    }
    let entry = &mut *guard;
    let State::Streaming(stream) = &mut entry.state else { return WriteOutcome::Gone };
    // The limit includes the whole piece, so that no backlog grows before a fast client.
    let most = piece.len() + QUANTUM_BYTES;
    let flushed = if stream.framing.makes_chunks() {
        let mut start = Vec::with_capacity(20);
        chunk_start(&mut start, piece.len());
        entry.deliver(&start, Payload::Slices(&[piece, CHUNK_END]), most)
    } else {
        entry.deliver(piece, Payload::Empty, most)
    };
    backlog(go_on(guard, flushed))
}

impl Stream {
    /// Counts a piece; false if the piece exceeds the rest of the announced length.
    fn takes(&mut self, piece: &[u8]) -> bool {
        let ResponseFraming::Length(_) = self.framing else { return true };
        let left = self.left.checked_sub(piece.len() as u64);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

/// Appends a short response of plain text to `out`. Returns the plan of the body, and the length of `out` after the
/// head.
fn text_response(
    out: &mut Vec<u8>,
    constraints: ResponseConstraints,
    status: u16,
    text: &str,
    date: &[u8; DATE_BYTES],
) -> (BodyPlan, usize) {
    let body = format!("{status} {}: {text}\n", reason(status));
    let mut head = ResponseHead::new(out, status);
    // Both fields are constants without control characters.
    let _ = head.field(b"content-type", b"text/plain; charset=utf-8");
    if status == 405 {
        let _ = head.field(b"allow", b"GET, HEAD, OPTIONS");
    }
    if status == 503 {
        let _ = head.field(b"retry-after", b"1");
    }
    let plan = head.finish(constraints, Some(body.len() as u64), date);
    let head_bytes = out.len();
    out.extend_from_slice(body.as_bytes());
    (plan, head_bytes)
}
