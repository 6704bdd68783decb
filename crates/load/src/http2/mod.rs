//! A connection of HTTP/2 (RFC 9113), on which each stream acts as a client.
//!
//! The implementation shares no HTTP/2 code with a server. Reading order: `fields` (encoding of heads),
//! `frames` (boundaries of frames), `streams` (pending requests).

pub(crate) mod fields;
mod frames;
mod streams;

use std::collections::VecDeque;

use crate::exchange::{Answer, Event, Step};
use crate::pending::PendingRequest;
use crate::run_context::PreparedRequest;
use crate::send_buffer::SendBuffer;
use crate::tally::FailureKind;

use frames::{FrameHead, FrameReader};
use streams::{PlacedRequest, Stream, Streams};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The window that the client grants for a stream and for the connection.
const WINDOW_BYTES: u32 = (1 << 31) - 1;
/// The number of bytes after which the window is renewed.
const ACKNOWLEDGED_BYTES: u32 = 1 << 29;
/// The window and the number of streams that apply before the server's settings (sections 6.5.2 and 6.9.2).
const WINDOW_DEFAULT: i64 = 65_535;
const STREAMS_DEFAULT: usize = 100;
/// The longest header block that is read.
const BLOCK_BYTES_MAX: usize = 256 << 10;
/// The most bytes of request bodies encoded ahead of the socket.
const AHEAD_BYTES_MAX: usize = 256 << 10;
/// The highest stream ID, after which a connection takes no further stream.
const STREAM_MAX: u32 = 0x7fff_ffff;
/// Error codes of section 7.
const REFUSED_STREAM: u32 = 7;
const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// Identifiers of settings (section 6.5.2).
const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// The limits set by the server.
#[derive(Debug)]
struct ServerLimits {
    /// Whether the server has sent its settings.
    have_arrived: bool,
    streams: usize,
    /// The window of a new stream, in bytes.
    window: i64,
    /// The window of the connection, in bytes.
    connection_window: i64,
}

#[derive(Debug)]
pub(crate) struct Http2 {
    /// Requests without a stream.
    queue: VecDeque<PlacedRequest>,
    streams: Streams,
    next_id: u32,
    allowed: ServerLimits,
    frames: FrameReader,
    /// A header block that continues in the next frame.
    block: Option<(FrameHead, Vec<u8>)>,
    outgoing: SendBuffer,
    /// Bytes of bodies received since the connection's window was last renewed.
    unacknowledged: u32,
    /// Whether the connection takes no further stream.
    is_leaving: bool,
    keeps_alive: bool,
    /// Whether a request with a body was opened.
    has_bodies: bool,
}

impl Http2 {
    /// Creates a connection with up to `places` streams at a time.
    pub(crate) fn new(places: usize, keeps_alive: bool) -> Self {
        Self {
            queue: VecDeque::new(),
            streams: Streams::new(places),
            next_id: 1,
            allowed: ServerLimits::by_default(),
            frames: FrameReader::default(),
            block: None,
            outgoing: SendBuffer::default(),
            unacknowledged: 0,
            is_leaving: false,
            keeps_alive,
            has_bodies: false,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.streams.open()
    }

    /// Returns the pending requests, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PendingRequest> {
        let waiting = self.queue.iter().map(|placed| &placed.request);
        self.streams.iter().map(|stream| &stream.placed.request).chain(waiting)
    }

    /// Returns the number of responses for each place: see [`Streams`].
    pub(crate) fn served(&self) -> &[u64] {
        self.streams.served()
    }

    pub(crate) fn forget_served(&mut self) {
        self.streams.forget_served();
    }

    pub(crate) fn push(&mut self, request: PendingRequest) {
        let placed = self.streams.assign_place(request);
        self.queue.push_back(placed);
    }

    pub(crate) fn clear(&mut self) {
        self.requeue(0);
        self.queue.drain(..).for_each(|placed| self.streams.free_place(placed));
    }

    /// Prepares for a new connection.
    pub(crate) fn restart(&mut self) {
        self.requeue(0);
        (self.next_id, self.allowed) = (1, ServerLimits::by_default());
        (self.frames, self.block) = (FrameReader::default(), None);
        (self.unacknowledged, self.is_leaving) = (0, false);
        self.outgoing.clear();
        self.outgoing.push(PREFACE);
        let settings = [
            setting(HEADER_TABLE_SIZE, 0),
            setting(ENABLE_PUSH, 0),
            setting(INITIAL_WINDOW_SIZE, WINDOW_BYTES),
        ];
        self.write(frames::SETTINGS, 0, 0, &settings.concat());
        self.write(frames::WINDOW_UPDATE, 0, 0, &(WINDOW_BYTES - 65_535).to_be_bytes());
    }

    /// Opens streams for requests, as many as the server allows, and continues bodies.
    pub(crate) fn prepare(&mut self, requests: &[PreparedRequest], now_ns: u64) {
        while !self.is_leaving && self.streams.open() < self.allowed.streams {
            let Some(placed) = self.queue.pop_front() else { break };
            let request = placed.request.request;
            let id = self.next_id;
            self.next_id += 2;
            self.is_leaving |= self.next_id > STREAM_MAX || !self.keeps_alive;
            self.streams.begin(id, placed, now_ns, self.allowed.window);
            self.write_request(id, &requests[request]);
        }
        self.write_bodies(requests);
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        self.outgoing.unsent()
    }

    pub(crate) fn count_sent(&mut self, bytes: usize) {
        self.outgoing.count_sent(bytes);
    }

    /// Gives up the oldest stream if it is older than the timeout.
    pub(crate) fn expire(&mut self, now_ns: u64, timeout_ns: u64) -> Option<PendingRequest> {
        let oldest = self.streams.iter().next()?;
        let is_late = now_ns.saturating_sub(oldest.begun_ns) >= timeout_ns;
        let id = is_late.then_some(oldest.id)?;
        self.write(frames::RST_STREAM, 0, id, &CANCEL);
        self.streams.end(id, false)
    }

    /// Handles the end of the connection.
    pub(crate) fn close(&mut self) -> Result<Event, FailureKind> {
        if self.len() == 0 || self.is_leaving && self.streams.open() == 0 {
            return Ok(Event::Farewell);
        }
        let has_begun = self.streams.iter().any(|stream| stream.fields.status.is_some());
        let is_within = has_begun || self.frames.is_within();
        Err(if is_within { FailureKind::Truncated } else { FailureKind::Unanswered })
    }

    /// Reads up to the end of a frame.
    pub(crate) fn read(
        &mut self,
        bytes: &mut &[u8],
        requests: &[PreparedRequest],
    ) -> Result<Step, FailureKind> {
        let head = self.frames.read(bytes).map_err(|_| FailureKind::Malformed)?;
        let Some(head) = head else { return Ok(Step::partial()) };
        if self.block.is_some() != (head.kind == frames::CONTINUATION) {
            return Err(FailureKind::Malformed);
        }
        let url = self.streams.find(head.stream).map(|stream| stream.placed.request.url);
        let event = match head.kind {
            frames::DATA => self.data(head, requests)?,
            frames::HEADERS | frames::CONTINUATION => self.headers(head, requests)?,
            frames::RST_STREAM => self.reset(head)?,
            frames::PUSH_PROMISE => return Err(FailureKind::Malformed),
            _ => self.control(head)?,
        };
        Ok(Step { url, event })
    }

    fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.outgoing.write(|bytes| frames::write(bytes, kind, flags, stream, payload));
    }

    fn write_request(&mut self, id: u32, request: &PreparedRequest) {
        self.has_bodies |= !request.body.is_empty();
        let end = if request.body.is_empty() { frames::END_STREAM } else { 0 };
        let mut pieces = request.fields.chunks(frames::PAYLOAD_BYTES_MAX).peekable();
        let (mut kind, mut flags) = (frames::HEADERS, end);
        while let Some(piece) = pieces.next() {
            flags |= if pieces.peek().is_none() { frames::END_HEADERS } else { 0 };
            self.write(kind, flags, id, piece);
            (kind, flags) = (frames::CONTINUATION, 0);
        }
    }

    /// Encodes as much of the bodies as the server's windows allow.
    fn write_bodies(&mut self, requests: &[PreparedRequest]) {
        if !self.has_bodies {
            return;
        }
        let Self { streams, allowed, outgoing, .. } = self;
        for stream in streams.iter_mut() {
            let body = &requests[stream.placed.request.request].body;
            while stream.body_sent < body.len() && outgoing.unsent().len() < AHEAD_BYTES_MAX {
                let room = allowed.connection_window.min(stream.window);
                let room = usize::try_from(room).unwrap_or(0).min(frames::PAYLOAD_BYTES_MAX);
                let piece = &body[stream.body_sent..][..room.min(body.len() - stream.body_sent)];
                if piece.is_empty() {
                    break;
                }
                stream.body_sent += piece.len();
                stream.window -= signed(piece.len());
                allowed.connection_window -= signed(piece.len());
                let is_end = stream.body_sent == body.len();
                let flags = if is_end { frames::END_STREAM } else { 0 };
                outgoing.write(|to| frames::write(to, frames::DATA, flags, stream.id, piece));
            }
        }
    }

    fn data(
        &mut self,
        head: FrameHead,
        requests: &[PreparedRequest],
    ) -> Result<Event, FailureKind> {
        let padding = match (head.has(frames::PADDED), self.frames.payload().first()) {
            (true, Some(padding)) => usize::from(*padding) + 1,
            (true, None) => return Err(FailureKind::Malformed),
            (false, _) => 0,
        };
        let body = head.length.checked_sub(padding).ok_or(FailureKind::Malformed)?;
        self.acknowledge(head)?;
        let Some(stream) = self.streams.find(head.stream) else {
            return self.check_stream(head).map(|()| Event::Partial);
        };
        if stream.fields.status.is_none() {
            return Err(FailureKind::Malformed);
        }
        stream.received += body as u64;
        if head.has(frames::END_STREAM) {
            self.finish(head.stream, requests)
        } else {
            Ok(Event::Partial)
        }
    }

    /// Renews the windows from time to time.
    fn acknowledge(&mut self, head: FrameHead) -> Result<(), FailureKind> {
        let bytes = u32::try_from(head.length).map_err(|_| FailureKind::Malformed)?;
        self.unacknowledged += bytes;
        if self.unacknowledged >= ACKNOWLEDGED_BYTES {
            let room = std::mem::take(&mut self.unacknowledged).to_be_bytes();
            self.write(frames::WINDOW_UPDATE, 0, 0, &room);
        }
        let Some(stream) = self.streams.find(head.stream) else { return Ok(()) };
        stream.unacknowledged += bytes;
        if stream.unacknowledged >= ACKNOWLEDGED_BYTES {
            let room = std::mem::take(&mut stream.unacknowledged).to_be_bytes();
            self.write(frames::WINDOW_UPDATE, 0, head.stream, &room);
        }
        Ok(())
    }

    fn headers(
        &mut self,
        head: FrameHead,
        requests: &[PreparedRequest],
    ) -> Result<Event, FailureKind> {
        let (first, mut block) = self.block.take().unwrap_or((head, Vec::new()));
        if first.stream != head.stream || head.stream == 0 {
            return Err(FailureKind::Malformed);
        }
        let is_first = head.kind == frames::HEADERS;
        let piece =
            if is_first { unpadded(head, self.frames.payload())? } else { self.frames.payload() };
        block.extend_from_slice(piece);
        if !head.has(frames::END_HEADERS) {
            let is_long = block.len() > BLOCK_BYTES_MAX;
            self.block = Some((first, block));
            return if is_long { Err(FailureKind::Malformed) } else { Ok(Event::Partial) };
        }
        let fields = fields::read(&block).map_err(|_| FailureKind::Malformed)?;
        let is_end = first.has(frames::END_STREAM);
        let Some(stream) = self.streams.find(first.stream) else {
            return self.check_stream(first).map(|()| Event::Partial);
        };
        match (stream.fields.status, fields.status) {
            (None, Some(100..=199)) if !is_end => {}
            (None, Some(200..)) => stream.fields = fields,
            // Trailers.
            (Some(_), None) if is_end => {}
            _ => return Err(FailureKind::Malformed),
        }
        if is_end { self.finish(first.stream, requests) } else { Ok(Event::Partial) }
    }

    /// Completes a stream whose response has ended.
    fn finish(&mut self, id: u32, requests: &[PreparedRequest]) -> Result<Event, FailureKind> {
        let Some(stream) = self.streams.find(id) else { return Ok(Event::Partial) };
        let verdict = judge(stream, requests[stream.placed.request.request].is_head);
        let (fields, request) = (stream.fields, stream.placed.request);
        self.streams.end(id, verdict.is_ok());
        if let Err(failure) = verdict {
            return Ok(Event::Lost(request, failure));
        }
        let is_last = self.is_leaving && self.streams.open() == 0;
        let (status, is_encoded) = (fields.status, fields.is_encoded);
        Ok(Event::Response(Answer { request, status, is_encoded, is_last }))
    }

    fn reset(&mut self, head: FrameHead) -> Result<Event, FailureKind> {
        let code = number(self.frames.payload()).ok_or(FailureKind::Malformed)?;
        self.check_stream(head)?;
        if code == REFUSED_STREAM {
            let refused = self.streams.close(head.stream);
            refused.into_iter().for_each(|placed| self.queue.push_front(placed));
            return Ok(Event::Partial);
        }
        let lost = self.streams.end(head.stream, false);
        Ok(lost.map_or(Event::Partial, |request| Event::Lost(request, FailureKind::Reset)))
    }

    /// Handles frames that concern the connection.
    fn control(&mut self, head: FrameHead) -> Result<Event, FailureKind> {
        let payload = self.frames.payload();
        match head.kind {
            frames::SETTINGS if !head.has(frames::ACK) => {
                let settings = payload.chunks(6).map(read_setting).collect::<Option<Vec<_>>>();
                let settings = settings.ok_or(FailureKind::Malformed)?;
                self.allowed.change(&settings, &mut self.streams);
                self.write(frames::SETTINGS, frames::ACK, 0, b"");
            }
            frames::PING if !head.has(frames::ACK) => {
                let payload = payload.to_vec();
                self.write(frames::PING, frames::ACK, 0, &payload);
            }
            frames::WINDOW_UPDATE => {
                let room = i64::from(number(payload).ok_or(FailureKind::Malformed)?);
                match self.streams.find(head.stream) {
                    Some(stream) => stream.window += room,
                    None if head.stream == 0 => self.allowed.connection_window += room,
                    None => {}
                }
            }
            frames::GOAWAY => return self.leave(),
            _ => {}
        }
        Ok(Event::Partial)
    }

    /// Handles GOAWAY. Requests that the server will not answer are asked again on another connection.
    fn leave(&mut self) -> Result<Event, FailureKind> {
        let payload = self.frames.payload();
        let last = number(payload.get(..4).unwrap_or(&[])).ok_or(FailureKind::Malformed)?;
        let code = payload.get(4..8).and_then(number).ok_or(FailureKind::Malformed)?;
        if code != 0 {
            return Err(FailureKind::Reset);
        }
        self.is_leaving = true;
        self.requeue(last);
        Ok(if self.streams.open() == 0 { Event::Farewell } else { Event::Partial })
    }

    /// Puts the requests of streams after `last` back into the queue.
    fn requeue(&mut self, last: u32) {
        for placed in self.streams.close_after(last).into_iter().rev() {
            self.queue.push_front(placed);
        }
    }

    /// Checks that a frame belongs to a stream that has begun. The stream may have ended.
    fn check_stream(&self, head: FrameHead) -> Result<(), FailureKind> {
        let is_known = head.stream % 2 == 1 && head.stream < self.next_id;
        is_known.then_some(()).ok_or(FailureKind::Malformed)
    }
}

impl ServerLimits {
    fn by_default() -> Self {
        let (window, connection_window) = (WINDOW_DEFAULT, WINDOW_DEFAULT);
        Self { have_arrived: false, streams: STREAMS_DEFAULT, window, connection_window }
    }

    /// Applies the server's settings.
    fn change(&mut self, settings: &[(u16, u32)], open: &mut Streams) {
        // A server that sets no number of streams allows any number.
        if !std::mem::replace(&mut self.have_arrived, true) {
            self.streams = usize::MAX;
        }
        for (key, value) in settings {
            match *key {
                MAX_CONCURRENT_STREAMS => self.streams = *value as usize,
                INITIAL_WINDOW_SIZE => {
                    let change = i64::from(*value) - self.window;
                    self.window += change;
                    open.iter_mut().for_each(|stream| stream.window += change);
                }
                _ => {}
            }
        }
    }
}

/// Checks that the body has the length that its head announced.
fn judge(stream: &Stream, is_head: bool) -> Result<(), FailureKind> {
    let has_no_body = is_head || matches!(stream.fields.status, Some(204 | 304));
    match stream.fields.content_length.filter(|_| !has_no_body) {
        Some(length) if stream.received < length => Err(FailureKind::Truncated),
        Some(length) if stream.received > length => Err(FailureKind::Unasked),
        _ => Ok(()),
    }
}

/// Returns a header block without padding and priority.
fn unpadded(head: FrameHead, payload: &[u8]) -> Result<&[u8], FailureKind> {
    let (mut start, mut end) = (0, payload.len());
    if head.has(frames::PADDED) {
        start = 1;
        end = end.saturating_sub(usize::from(*payload.first().ok_or(FailureKind::Malformed)?));
    }
    if head.has(frames::PRIORITY) {
        start += 5;
    }
    payload.get(start..end).ok_or(FailureKind::Malformed)
}

fn setting(key: u16, value: u32) -> Vec<u8> {
    [&key.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

fn read_setting(bytes: &[u8]) -> Option<(u16, u32)> {
    let (key, value) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*key), u32::from_be_bytes(value.try_into().ok()?)))
}

/// Decodes a 31-bit number.
fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?) & STREAM_MAX)
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
