//! One client's connection: its socket, and the state of its request.
//!
//! An idle connection owns no buffer, so that ten thousand of them cost little.
//!
//! Reading order: this file is the entry of a connection in the store. `carrier` and `multiplexer` are the two sides of
//! HTTP/2: a stream with its connection, and a connection with its streams. `readiness` holds the kernel's reports on
//! the socket, `input` the bytes that wait to be parsed, and `turn` the place in the order of turns. `transfer` moves
//! bytes. `upload` receives a request's body, `socket_state` is an upgraded connection. `cache_role` is the role of a
//! request for the cache. `ticket` names one request, `activity` counts the turns of each connection.

pub(crate) mod activity;
pub(crate) mod cache_role;
pub(crate) mod carrier;
pub(crate) mod input;
pub(crate) mod multiplexer;
pub(crate) mod readiness;
pub(crate) mod socket_state;
pub(crate) mod ticket;
mod transfer;
pub(crate) mod turn;
pub(crate) mod upload;

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv};
use thruway_http1::ResponseFraming;
use thruway_sys::socket::queued_bytes;
use thruway_tls::Session;

use crate::entry::activity::RecentService;
use crate::entry::cache_role::CacheRole;
use crate::entry::carrier::{Carrier, Socket, StreamLink};
use crate::entry::input::Input;
use crate::entry::multiplexer::Multiplexer;
use crate::entry::readiness::Readiness;
use crate::entry::socket_state::UpgradedSocket;
use crate::entry::ticket::Ticket;
use crate::entry::turn::Turn;
use crate::entry::upload::Upload;
use crate::listen::listener::Peer;
use crate::metrics::observed::ObservedRequest;
use crate::output::unchunk::Unchunk;
use crate::output::{Output, Part};

/// The maximum number of bytes that a lingering connection reads and discards before the server closes it.
const LINGER_BYTES_MAX: u32 = 1 << 20;

/// Bytes of a request that may move to another worker with its connection: forms and most documents of an interface.
pub(crate) const MOVED_BYTES_MAX: usize = 64 << 10;

/// The backlog of an upgraded connection above which the server reads no more: each ping adds a pong.
const READ_BACKLOG_BYTES_MAX: u64 = 64 << 10;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) carrier: Carrier,
    pub(crate) peer: Peer,
    /// Whether the peer is trusted as a proxy.
    pub(crate) is_trusted: bool,
    /// Whether the connection begins with a PROXY head.
    pub(crate) awaits_proxy_head: bool,
    /// The index of the listener that accepted the connection.
    pub(crate) listener: u16,
    pub(crate) state: State,
    /// The number of the current request, or of the last one.
    pub(crate) request: u64,
    pub(crate) readiness: Readiness,
    /// Whether the connection stays open after the current response.
    pub(crate) is_persistent: bool,
    /// Whether the connection has had no request yet.
    pub(crate) is_fresh: bool,
    pub(crate) input: Input,
    /// When the current wait began.
    pub(crate) since_ms: u64,
    pub(crate) turn: Turn,
    pub(crate) output: Option<Box<Output>>,
    /// Bytes of the connection's memory that the engine's total includes.
    pub(crate) held_bytes: usize,
    pub(crate) share: RecentService,
    /// The metrics of the current request, if requests are counted.
    pub(crate) observed: Option<Box<ObservedRequest>>,
    /// The role of the current request for the response cache, while a handler has the request.
    pub(crate) cache_role: Option<CacheRole>,
    /// Whether the request has waited in vain for the response to another request.
    pub(crate) has_waited: bool,
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum State {
    /// The TLS handshake is not complete.
    Handshaking,
    /// The connection waits for a head, or for the rest of one.
    Waiting,
    /// The head has arrived, the body has not.
    Receiving(Box<Upload>),
    /// The request is whole, and waits for the response to another request. A request without a body stays in the
    /// input.
    AwaitingOther(Option<Box<Upload>>),
    /// The handler has the request.
    Handling,
    /// The handler writes the body of the response.
    Streaming(Stream),
    /// The response is written but not all sent.
    Responding,
    /// The last response is sent; further input is discarded.
    Lingering { bytes_left: u32 },
    /// The connection speaks HTTP/2: its requests are streams.
    Multiplexing(Box<Multiplexer>),
    /// The connection was upgraded to another protocol for an application.
    Upgraded(Box<UpgradedSocket>),
}

/// A response whose body arrives in pieces.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) framing: ResponseFraming,
    /// Bytes left of the announced length, if one was announced.
    pub(crate) left: u64,
    /// Decodes a chunked body for a client that must not receive the application's chunks.
    pub(crate) unchunk: Option<Box<Unchunk>>,
}

/// A response's body.
#[derive(Debug)]
pub enum Payload<'a> {
    /// Nothing.
    Empty,
    /// Bytes that are copied only if the client does not take them at once.
    Slices(&'a [&'a [u8]]),
    /// A range of a file.
    File {
        /// The file.
        file: OwnedFd,
        /// The offset at which the range starts.
        offset: u64,
        /// The length of the range in bytes.
        length: u64,
    },
    /// Several parts in order.
    Parts(Vec<Part>),
}

/// The outcome of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Bytes(usize),
    /// No bytes yet.
    Later,
    /// The client sends nothing more, or is gone.
    Ended,
}

impl Entry {
    pub(crate) fn new(socket: OwnedFd, peer: Peer, listener: u16, now_ms: u64) -> Self {
        on(Carrier::Socket(Socket::new(socket)), peer, listener, now_ms)
    }

    /// Whether the connection can be served in this process only, because its TLS keys or its streams are here.
    pub(crate) fn is_bound(&self) -> bool {
        self.session().is_some()
            || matches!(self.state, State::Multiplexing(_))
            || matches!(self.carrier, Carrier::Stream(_) | Carrier::Nobody { .. })
    }

    /// Whether no client waits for the response.
    pub(crate) fn is_background(&self) -> bool {
        matches!(self.carrier, Carrier::Nobody { .. })
    }

    /// The TLS session, if the connection speaks TLS and its handshake has begun.
    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.carrier {
            Carrier::Socket(socket) => socket.session.as_deref(),
            Carrier::Stream(_) | Carrier::Nobody { .. } => None,
        }
    }

    /// Sets or takes away the TLS session of a socket.
    pub(crate) fn set_session(&mut self, session: Option<Session>) {
        match &mut self.carrier {
            Carrier::Socket(socket) => socket.session = session.map(Box::new),
            Carrier::Stream(_) | Carrier::Nobody { .. } => {
                unreachable!("a request without a socket has no TLS session of its own")
            }
        }
    }

    /// The HTTP/2 side of a connection that speaks HTTP/2.
    pub(crate) fn multiplexer(&self) -> Option<&Multiplexer> {
        match &self.state {
            State::Multiplexing(multiplexer) => Some(multiplexer),
            _ => None,
        }
    }

    pub(crate) fn multiplexer_mut(&mut self) -> Option<&mut Multiplexer> {
        match &mut self.state {
            State::Multiplexing(multiplexer) => Some(multiplexer),
            _ => None,
        }
    }

    /// Takes the HTTP/2 side out of a connection that ends, and leaves the connection idle.
    pub(crate) fn take_multiplexer(&mut self) -> Option<Box<Multiplexer>> {
        self.multiplexer()?;
        match std::mem::replace(&mut self.state, State::Waiting) {
            State::Multiplexing(multiplexer) => Some(multiplexer),
            state => unreachable!("the connection speaks HTTP/2, and is not in {state:?}"),
        }
    }

    /// Whether the request that `ticket` names is this entry's current request, and is still in the handler.
    pub(crate) fn is_of(&self, ticket: Ticket) -> bool {
        self.request == ticket.request
            && matches!(self.state, State::Handling | State::Streaming(_))
    }

    /// Whether a turn would make progress.
    pub(crate) fn has_work(&self) -> bool {
        if self.output.is_some() {
            return self.readiness.is_writable || has_socket_work(self);
        }
        match &self.state {
            State::Waiting => self.readiness.is_readable || self.input.is_unsearched(),
            State::Receiving(upload) => {
                upload.is_whole || self.readiness.is_readable || !self.input.bytes.is_empty()
            }
            State::Handshaking | State::Lingering { .. } => self.readiness.is_readable,
            State::Multiplexing(multiplexer) => {
                self.readiness.is_readable
                    || !self.input.bytes.is_empty()
                    || self.readiness.is_writable && multiplexer.has_work()
            }
            State::AwaitingOther(_) | State::Handling | State::Streaming(_) | State::Responding => {
                false
            }
            State::Upgraded(_) => has_socket_work(self),
        }
    }

    /// Whether the deadline covers all that the client is to send, rather than each piece.
    pub(crate) fn has_deadline_for_all(&self) -> bool {
        match &self.state {
            State::Waiting => !self.input.bytes.is_empty(),
            State::Multiplexing(multiplexer) => multiplexer.head_since_ms.is_some(),
            State::Handshaking | State::Lingering { .. } => true,
            _ => false,
        }
    }

    /// Whether the next turn begins a request or continues its head.
    pub(crate) fn awaits_request(&self) -> bool {
        matches!(self.state, State::Waiting) && self.output.is_none()
    }

    /// Whether the next turn hands a request to a handler.
    pub(crate) fn needs_handler(&self) -> bool {
        let is_whole = match &self.state {
            State::Waiting => self.input.has_head,
            State::Receiving(upload) => upload.is_whole,
            State::Upgraded(upgraded) => {
                return upgraded.has_event() && !can_flush(self) && !can_read(self);
            }
            _ => false,
        };
        is_whole && self.output.is_none()
    }

    /// Whether the connection is between two requests, with no input and no output.
    pub(crate) fn is_idle(&self) -> bool {
        self.awaits_request() && self.input.bytes.is_empty()
    }

    /// Whether the connection is between two requests, and nothing of the client has arrived that was not read.
    pub(crate) fn awaits_event(&self) -> bool {
        self.is_idle() && !self.readiness.is_readable
    }

    /// Whether another process could continue the connection, which needs only the socket and a few bytes. A TLS
    /// session stays in the process of its keys.
    pub(crate) fn is_movable(&self) -> bool {
        let read_bytes = match &self.state {
            State::Waiting => Some(0),
            State::Receiving(upload) => upload.bytes_in_memory(),
            _ => None,
        };
        let is_small =
            read_bytes.is_some_and(|read| read + self.input.bytes.len() <= MOVED_BYTES_MAX);
        is_small && self.output.is_none() && !self.readiness.is_ended && !self.is_bound()
    }

    /// Puts a whole request back into the input. The worker that takes over the connection parses the request again.
    pub(crate) fn unread_request(&mut self) {
        if let State::Receiving(upload) = &self.state
            && upload.bytes_in_memory().is_some()
        {
            self.input.bytes = [upload.to_bytes(), std::mem::take(&mut self.input.bytes)].concat();
            (self.state, self.input.searched) = (State::Waiting, 0);
        }
    }

    /// Takes out the request whose body has arrived.
    pub(crate) fn take_upload(&mut self) -> Box<Upload> {
        match std::mem::replace(&mut self.state, State::Waiting) {
            State::Receiving(upload) => upload,
            state => unreachable!("a request is taken out while it is received, not in {state:?}"),
        }
    }

    /// Whether the connection has a request that the metrics count at its end.
    pub(crate) fn is_counted(&self) -> bool {
        self.observed.as_ref().is_some_and(|observed| observed.begun_us > 0)
    }

    /// Whether bytes have arrived, or the client has closed.
    pub(crate) fn has_bytes(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.carrier.socket().is_some_and(|socket| {
            !matches!(recv(socket, &mut [0], flags), Err(Errno::AGAIN | Errno::INTR))
        })
    }

    /// Keeps bytes of the next request, or of the current head.
    pub(crate) fn keep(&mut self, bytes: &[u8], seen: usize) {
        self.input.bytes = bytes.to_vec();
        self.input.searched = seen;
    }

    /// Bytes in memory that wait for the client.
    pub(crate) fn memory_bytes(&self) -> usize {
        let sealed = self.session().map_or(0, Session::unsent_bytes);
        sealed + self.output.as_ref().map_or(0, |output| output.memory_bytes())
    }

    /// All bytes that wait for the client, whether in memory or in files.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.output.as_ref().map_or(0, |output| output.waiting_bytes())
    }

    /// The bytes of the response that the client has taken, counted from an arbitrary start: the bytes written to the
    /// socket, less those that the kernel or the TLS session still holds.
    pub(crate) fn taken_bytes(&self) -> i64 {
        let left = self.output.as_ref().map_or(0, |output| output.left_bytes());
        let queued = self.carrier.socket().map_or(0, |socket| queued_bytes(socket).unwrap_or(0));
        let sealed = self.session().map_or(0, Session::unsent_bytes) as u64;
        i64::try_from(left).unwrap_or(i64::MAX).saturating_sub_unsigned(queued + sealed)
    }

    /// Closes the connection for writing; further input will be discarded.
    pub(crate) fn linger(&mut self, now_ms: u64) {
        self.send_close_notify();
        self.carrier.shut(Shutdown::Write);
        self.input = Input::default();
        self.since_ms = now_ms;
        self.state = State::Lingering { bytes_left: LINGER_BYTES_MAX };
    }
}

/// Creates the entry for a stream of `parent` with a request whose head is whole.
pub(crate) fn stream_of(parent: &Entry, link: StreamLink, upload: Upload, now_ms: u64) -> Entry {
    let carrier = Carrier::Stream(Box::new(link));
    Entry {
        is_trusted: parent.is_trusted,
        readiness: Readiness { is_readable: false, is_writable: false, is_ended: false },
        is_persistent: false,
        is_fresh: false,
        state: State::Receiving(Box::new(upload)),
        ..on(carrier, parent.peer, parent.listener, now_ms)
    }
}

/// Creates the entry for a request of the cache itself, as the client of `origin` could have sent it.
pub(crate) fn background_of(origin: &Entry, is_tls: bool, upload: Upload, now_ms: u64) -> Entry {
    Entry {
        is_trusted: origin.is_trusted,
        is_persistent: false,
        is_fresh: false,
        state: State::Receiving(Box::new(upload)),
        ..on(Carrier::Nobody { is_tls }, origin.peer, origin.listener, now_ms)
    }
}

fn on(carrier: Carrier, peer: Peer, listener: u16, now_ms: u64) -> Entry {
    Entry {
        carrier,
        peer,
        is_trusted: false,
        awaits_proxy_head: false,
        listener,
        state: State::Waiting,
        request: 0,
        readiness: Readiness { is_readable: false, is_writable: true, is_ended: false },
        is_persistent: true,
        is_fresh: true,
        input: Input::default(),
        since_ms: now_ms,
        turn: Turn::default(),
        output: None,
        held_bytes: 0,
        share: RecentService::default(),
        observed: None,
        cache_role: None,
        has_waited: false,
    }
}

/// The state of an upgraded connection.
pub(crate) fn upgraded(connection: &Entry) -> Option<&UpgradedSocket> {
    match &connection.state {
        State::Upgraded(upgraded) => Some(upgraded),
        _ => None,
    }
}

/// The state of an upgraded connection, mutable.
pub(crate) fn upgraded_mut(connection: &mut Entry) -> Option<&mut UpgradedSocket> {
    match &mut connection.state {
        State::Upgraded(upgraded) => Some(upgraded),
        _ => None,
    }
}

/// Whether waiting output could be sent now.
pub(crate) fn can_flush(connection: &Entry) -> bool {
    connection.output.is_some() && connection.readiness.is_writable
}

/// Whether input of an upgraded connection could be read and kept now.
pub(crate) fn can_read(connection: &Entry) -> bool {
    let Some(upgraded) = upgraded(connection) else { return false };
    let has_input = connection.readiness.is_readable || connection.input.is_unsearched();
    let has_room = upgraded.message.is_none() && !upgraded.is_over();
    has_input && has_room && connection.backlog_bytes() <= READ_BACKLOG_BYTES_MAX
}

/// Whether a turn of an upgraded connection would make progress.
fn has_socket_work(connection: &Entry) -> bool {
    let has_event = upgraded(connection).is_some_and(UpgradedSocket::has_event);
    has_event || can_flush(connection) || can_read(connection)
}
