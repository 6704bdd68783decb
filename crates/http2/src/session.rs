//! A connection.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, Connection, Handshake};

use crate::frames::{Excess, FrameCounter};
use crate::heads;
use crate::limits::Limits;
use crate::priority::Priority;
use crate::screen::Screen;
use crate::stream::{Stream, WokenStreams};
use crate::wire::Wire;

/// A connection, which owns everything except its streams' handles.
pub struct Session {
    state: State,
    wire: Wire,
    frames: FrameCounter,
    screen: Screen,
    woken: WokenStreams,
    is_leaving: bool,
    fault: Option<String>,
}

enum State {
    /// The client's preface is incomplete.
    Handshake(Box<Handshake<Wire, Bytes>>),
    Open(Box<Connection<Wire, Bytes>>),
    /// No more bytes are read, and only pending bytes are sent.
    Over,
}

/// The next result of a session.
#[derive(Debug)]
pub enum Progress {
    /// A request: its head in the form of HTTP/1.1, and its stream. The head is `None` if the request names two
    /// different hosts.
    Request(Option<Vec<u8>>, Box<Stream>),
    /// No result until more bytes arrive.
    Idle,
    /// The connection is over.
    Over,
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}

impl Session {
    /// Creates a connection whose client has not sent any bytes yet. With `has_sockets`, the client may open WebSockets
    /// as streams (RFC 8441).
    #[must_use]
    pub fn new(limits: &Limits, has_sockets: bool, now_ms: u64) -> Self {
        let wire = Wire::default();
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(limits.streams_max)
            .max_header_list_size(limits.head_bytes_max)
            .initial_window_size(limits.stream_window_bytes)
            .initial_connection_window_size(limits.window_bytes)
            .max_send_buffer_size(limits.send_buffer_bytes)
            .max_local_error_reset_streams(Some(limits.provoked_resets_max));
        if has_sockets {
            builder.enable_connect_protocol();
        }
        Self {
            state: State::Handshake(Box::new(builder.handshake(wire.clone()))),
            wire,
            frames: FrameCounter::new(limits, now_ms),
            screen: Screen::new(limits.head_bytes_max),
            woken: WokenStreams::default(),
            is_leaving: false,
            fault: None,
        }
    }

    /// Passes bytes from the client to the connection.
    ///
    /// # Errors
    /// The client has sent too many frames of a kind. The connection is about to end with GOAWAY.
    pub fn receive(&mut self, bytes: &[u8], now_ms: u64) -> Result<(), Excess> {
        if let Err(excess) = self.frames.count(bytes, now_ms) {
            self.give_up();
            return Err(excess);
        }
        self.wire.push_by(|to| self.screen.pass(bytes, to));
        Ok(())
    }

    /// Processes the received bytes up to the next result.
    pub fn progress(&mut self) -> Progress {
        let context = &mut Context::from_waker(Waker::noop());
        if let State::Handshake(handshake) = &mut self.state {
            match Pin::new(handshake).poll(context) {
                Poll::Pending => return Progress::Idle,
                Poll::Ready(Ok(connection)) => self.state = State::Open(Box::new(connection)),
                Poll::Ready(Err(error)) => return self.end(Some(&error)),
            }
        }
        let State::Open(connection) = &mut self.state else { return Progress::Over };
        match connection.poll_accept(context) {
            Poll::Pending => Progress::Idle,
            Poll::Ready(None) => self.end(None),
            Poll::Ready(Some(Err(error))) => self.end(Some(&error)),
            Poll::Ready(Some(Ok((request, responder)))) => {
                let head = heads::request_head(&request, !request.body().is_end_stream());
                let opens_websocket = heads::opens_websocket(&request);
                let priority = Priority::of(request.headers(), responder.stream_id().as_u32());
                let body = request.into_body();
                let stream = Stream::new(&self.woken, body, responder, opens_websocket, priority);
                Progress::Request(head, Box::new(stream))
            }
        }
    }

    /// Writes pending bytes of the streams, as far as there is room. Other results are returned by the next
    /// [`progress`](Self::progress).
    pub fn flush(&mut self) {
        if let State::Open(connection) = &mut self.state {
            let closed = connection.poll_closed(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(closed) = closed {
                self.end(closed.err().as_ref());
            }
        }
    }

    /// Takes the bytes to send to the client.
    #[must_use]
    pub fn take_unsent(&mut self) -> Vec<u8> {
        self.wire.take_unsent()
    }

    /// Takes the numbers of the streams that can go on: bytes have arrived, the window has room, or the stream has
    /// ended.
    #[must_use]
    pub fn take_woken(&mut self) -> Vec<u32> {
        self.woken.take()
    }

    /// Whether received bytes wait until the bytes to send are taken.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        !self.is_over() && self.wire.has_unread()
    }

    /// Whether the client has sent the start of a head but not yet its end.
    #[must_use]
    pub fn is_in_head(&self) -> bool {
        self.frames.is_in_head()
    }

    /// Asks the client to send no more requests. Requests that were already received are still served.
    pub fn leave(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true)
            && let State::Open(connection) = &mut self.state
        {
            connection.graceful_shutdown();
        }
    }

    /// Whether the client was asked to send no more requests.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Ends the connection and its streams with GOAWAY, because the client costs too much.
    pub fn give_up(&mut self) {
        self.shut(Reason::ENHANCE_YOUR_CALM);
    }

    /// Ends the connection and its streams with GOAWAY, without an error.
    pub fn close(&mut self) {
        self.shut(Reason::NO_ERROR);
    }

    /// Whether the connection is over, except for pending bytes.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Takes the rule or the limit that the client has violated, if that ended the connection.
    pub fn take_fault(&mut self) -> Option<String> {
        self.fault.take()
    }

    fn shut(&mut self, reason: Reason) {
        self.wire.discard();
        match &mut self.state {
            State::Open(connection) => {
                connection.abrupt_shutdown(reason);
                self.flush();
            }
            _ => self.state = State::Over,
        }
    }

    fn end(&mut self, error: Option<&h2::Error>) -> Progress {
        self.state = State::Over;
        let error = error.filter(|error| error.is_library());
        self.fault = error.map(|error| match self.wire.look_at_unsent(detail_of) {
            Some(detail) => format!("{error}: {detail}"),
            None => error.to_string(),
        });
        Progress::Over
    }
}

/// Returns the debug data in a GOAWAY frame at the end of `bytes`, which names the limit that was exceeded.
fn detail_of(bytes: &[u8]) -> Option<String> {
    const GOAWAY: u8 = 7;
    const HEADER_BYTES: usize = 9;
    const CODES_BYTES: usize = 8;
    let last = bytes.len().checked_sub(HEADER_BYTES + CODES_BYTES)?;
    let is_goaway = |at: &usize| {
        let frame = &bytes[*at..];
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        frame[3..HEADER_BYTES] == [GOAWAY, 0, 0, 0, 0, 0]
            && usize::try_from(length) == Ok(frame.len() - HEADER_BYTES)
    };
    let at = (0..=last).rev().find(is_goaway)?;
    let text = &bytes[at + HEADER_BYTES + CODES_BYTES..];
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).replace('_', " "))
}
