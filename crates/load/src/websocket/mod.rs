//! A connection of WebSocket (RFC 6455), whose messages come back or go to all clients.

mod frames;
pub(crate) mod handshake;

use std::collections::VecDeque;

use crate::broadcast::Marker;
use crate::exchange::{Answer, Event, Step};
use crate::pending::PendingRequest;
use crate::plan::Messages;
use crate::response::{HEAD_BYTES_MAX, head_end};
use crate::send_buffer::SendBuffer;
use crate::tally::FailureKind;

use frames::{FrameReader, IncomingFrame};
use handshake::is_accepted;

#[derive(Debug)]
enum Phase {
    /// The handshake's response so far.
    Handshake(Vec<u8>),
    /// The server has yet to confirm the subscription.
    Confirming,
    Open,
}

#[derive(Debug)]
pub(crate) struct WebSocket {
    messages: Messages,
    marker: Marker,
    /// Expected messages, oldest first.
    pending: VecDeque<PendingRequest>,
    /// The number of them sent on this connection.
    written: usize,
    phase: Phase,
    frames: FrameReader,
    outgoing: SendBuffer,
}

impl WebSocket {
    pub(crate) fn new(messages: &Messages, marker: Marker) -> Self {
        Self {
            messages: messages.clone(),
            marker,
            pending: VecDeque::new(),
            written: 0,
            phase: Phase::Handshake(Vec::new()),
            frames: FrameReader::default(),
            outgoing: SendBuffer::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PendingRequest> {
        self.pending.iter()
    }

    pub(crate) fn is_broadcast(&self) -> bool {
        self.messages.is_broadcast
    }

    /// Whether the client sends messages and receives broadcasts.
    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Expects a message.
    pub(crate) fn push(&mut self, request: PendingRequest) {
        self.pending.push_back(request);
    }

    /// Sends the broadcast with this number.
    pub(crate) fn send_broadcast(&mut self, number: u64) {
        let message = self.marker.mark(&self.messages.message, number);
        self.outgoing.write(|to| frames::write(to, frames::TEXT, &message));
    }

    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.written = 0;
    }

    /// Ends the connection. Returns whether it received broadcasts.
    pub(crate) fn leave(&mut self) -> bool {
        let was_open = self.is_open();
        self.phase = Phase::Handshake(Vec::new());
        was_open
    }

    /// Prepares for a new connection.
    pub(crate) fn restart(&mut self, handshake: &[u8]) {
        self.leave();
        self.frames = FrameReader::default();
        self.written = 0;
        self.outgoing.clear();
        self.outgoing.push(handshake);
    }

    /// Encodes messages that were not sent yet.
    pub(crate) fn prepare(&mut self) {
        if self.is_open() && !self.is_broadcast() {
            for _ in self.written..self.pending.len() {
                self.outgoing.write(|to| frames::write(to, frames::TEXT, &self.messages.message));
            }
            self.written = self.pending.len();
        }
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        self.outgoing.unsent()
    }

    pub(crate) fn count_sent(&mut self, bytes: usize) {
        self.outgoing.count_sent(bytes);
    }

    /// Handles the end of the connection, with or without a close frame.
    pub(crate) fn close(&mut self) -> Result<Event, FailureKind> {
        match (self.pending.is_empty(), self.frames.is_within(), &self.phase) {
            (_, true, _) => Err(FailureKind::Truncated),
            (_, _, Phase::Handshake(_)) => Err(FailureKind::Handshake),
            (true, ..) => Ok(Event::Farewell),
            (false, ..) => Err(FailureKind::Unanswered),
        }
    }

    /// Reads up to the end of a frame.
    pub(crate) fn read(&mut self, bytes: &mut &[u8]) -> Result<Step, FailureKind> {
        let event = match &mut self.phase {
            Phase::Handshake(head) => {
                let is_whole = take_head(head, bytes)?;
                if is_whole { self.greet()? } else { Event::Partial }
            }
            _ => match self.frames.read(bytes).map_err(|_| FailureKind::Malformed)? {
                Some(IncomingFrame::Message) => self.digest(),
                Some(IncomingFrame::Ping) => self.echo_control(frames::PONG, Event::Partial),
                Some(IncomingFrame::Close) => {
                    self.echo_control(frames::CLOSE, Event::Partial);
                    self.close()?
                }
                Some(IncomingFrame::Nothing) | None => Event::Partial,
            },
        };
        Ok(Step { url: None, event })
    }

    fn echo_control(&mut self, opcode: u8, event: Event) -> Event {
        let payload = self.frames.control().to_vec();
        self.outgoing.write(|to| frames::write(to, opcode, &payload));
        event
    }

    /// Handles the handshake's response.
    fn greet(&mut self) -> Result<Event, FailureKind> {
        let Phase::Handshake(head) = &self.phase else { return Ok(Event::Partial) };
        if !is_accepted(head) {
            return Err(FailureKind::Handshake);
        }
        if let Some(text) = &self.messages.subscribe {
            self.outgoing.write(|to| frames::write(to, frames::TEXT, text));
        }
        if self.messages.confirmed.is_some() {
            self.phase = Phase::Confirming;
            return Ok(Event::Partial);
        }
        self.phase = Phase::Open;
        Ok(Event::Subscribed)
    }

    /// Handles a message: the oldest one that was sent, a broadcast, or any other.
    fn digest(&mut self) -> Event {
        let message = self.frames.message();
        if matches!(self.phase, Phase::Confirming) {
            let is_it = |text: &Vec<u8>| message.windows(text.len()).any(|part| part == text);
            if !self.messages.confirmed.as_ref().is_some_and(is_it) {
                return Event::Partial;
            }
            self.phase = Phase::Open;
            return Event::Subscribed;
        }
        let place = if self.is_broadcast() {
            let number = self.marker.number_in(message);
            self.pending.iter().position(|request| Some(request.number) == number)
        } else {
            (self.written > 0 && message == self.messages.message).then_some(0)
        };
        let Some(request) = place.and_then(|place| self.pending.remove(place)) else {
            return Event::Partial;
        };
        self.written = self.written.saturating_sub(1);
        Event::Response(Answer { request, status: None, is_encoded: false, is_last: false })
    }
}

/// Reads up to the end of a head. Returns whether it is complete.
fn take_head(head: &mut Vec<u8>, bytes: &mut &[u8]) -> Result<bool, FailureKind> {
    let known = head.len();
    let piece = &bytes[..bytes.len().min(HEAD_BYTES_MAX - known)];
    head.extend_from_slice(piece);
    match head_end(head, known) {
        Some(end) => {
            head.truncate(end);
            *bytes = &bytes[end - known..];
            Ok(true)
        }
        None if head.len() == HEAD_BYTES_MAX => Err(FailureKind::Handshake),
        None => {
            *bytes = &[];
            Ok(false)
        }
    }
}
