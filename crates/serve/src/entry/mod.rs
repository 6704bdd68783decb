//! One client's connection: its socket, and the state of its request.
//!
//! An idle connection owns no buffer, so that ten thousand of them cost little.
//!
//! Reading order: this file is the entry of a connection in the store. `carrier` and `multiplexer` are the two sides
//! of HTTP/2: a stream with its connection, and a connection with its streams. `transfer` moves bytes. `upload` is a
//! request whose body comes in, `socket_state` an upgraded connection.
//! `cache_role` is the role of a request for the cache. `ticket` names one request, `activity` counts
//! the turns of each connection.

pub(crate) mod activity;
pub(crate) mod cache_role;
pub(crate) mod carrier;
pub(crate) mod multiplexer;
pub(crate) mod socket_state;
pub(crate) mod ticket;
mod transfer;
pub(crate) mod upload;

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv};
use thruway_http1::ResponseFraming;
use thruway_sys::socket::queued_bytes;
use thruway_tls::Session;

use crate::entry::activity::Share;
use crate::entry::cache_role::CacheRole;
use crate::entry::carrier::{Carrier, Socket, StreamLink};
use crate::entry::multiplexer::Multiplexer;
use crate::entry::socket_state::UpgradedSocket;
use crate::entry::ticket::Ticket;
use crate::entry::upload::Upload;
use crate::listen::listener::Peer;
use crate::metrics::observed::ObservedRequest;
use crate::output::unchunk::Unchunk;
use crate::output::{Output, Part};
use crate::queue::queue_position::QueuePosition;

/// Bytes that are read and discarded, at most, before a lingering connection is closed.
const LINGER_BYTES_MAX: u32 = 1 << 20;

/// Bytes of a request that may move to another worker with its connection: forms and most documents of an interface.
pub(crate) const MOVED_BYTES_MAX: usize = 64 << 10;

/// While more waits for the client of an upgraded connection, nothing is read of it: each ping makes a pong.
const READ_BACKLOG_BYTES_MAX: u64 = 64 << 10;

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) carrier: Carrier,
    pub(crate) peer: Peer,
    /// Whether its other end is believed as a proxy.
    pub(crate) is_trusted: bool,
    /// It begins with a PROXY head.
    pub(crate) awaits_proxy_head: bool,
    /// The index of the listener that it came from.
    pub(crate) listener: u16,
    pub(crate) state: State,
    /// The number of the current request, or of the last one.
    pub(crate) request: u64,
    /// There may be something to read; the kernel tells so once.
    pub(crate) is_readable: bool,
    /// There may be room to write; the kernel tells so once.
    pub(crate) is_writable: bool,
    /// The client has said that it sends nothing more; the kernel tells so once.
    pub(crate) is_ended: bool,
    /// Whether it stays open after the current response.
    pub(crate) is_persistent: bool,
    /// Whether it has asked for anything yet.
    pub(crate) is_fresh: bool,
    /// Bytes that were read and not yet parsed.
    pub(crate) input: Vec<u8>,
    /// How many of them were looked at already.
    pub(crate) seen: usize,
    /// The input begins with a whole head, which waits for a thread with a handler.
    pub(crate) has_head: bool,
    /// When what it waits for began.
    pub(crate) since_ms: u64,
    /// When its last request was ready; zero before the first one.
    pub(crate) asked_us: u64,
    /// When its last response was sent.
    pub(crate) responded_us: u64,
    /// Its client asked seldom when it asked last.
    pub(crate) asks_seldom: bool,
    /// Since when it has waited for a turn.
    pub(crate) ready_us: u64,
    /// Since when it has done so in this worker.
    pub(crate) here_us: u64,
    /// Its key in the run queue, while it is there.
    pub(crate) key_us: u64,
    /// Where its request stands among those of its client.
    pub(crate) standing: QueuePosition,
    pub(crate) output: Option<Box<Output>>,
    /// How many of its bytes in memory the engine has counted.
    pub(crate) held_bytes: usize,
    pub(crate) share: Share,
    /// Its request, if requests are counted.
    pub(crate) observed: Option<Box<ObservedRequest>>,
    /// The role of its request for the cache of responses, while a handler has the request.
    pub(crate) cache_role: Option<CacheRole>,
    /// Its request has waited in vain for the response to another one.
    pub(crate) has_waited: bool,
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum State {
    /// Its handshake is not over.
    Handshaking,
    /// It waits for a head, or for the rest of one.
    Waiting,
    /// The head is there, the body is not.
    Receiving(Box<Upload>),
    /// Its request is whole, and waits for the response to another one. A request with a head alone is in the input.
    AwaitingOther(Option<Box<Upload>>),
    /// The handler has the request.
    Handling,
    /// The handler writes the response's body.
    Streaming(Stream),
    /// The response is written and not all sent.
    Responding,
    /// The last response is sent; what still comes in is discarded.
    Lingering { bytes_left: u32 },
    /// It speaks HTTP/2: its requests are streams.
    Multiplexing(Box<Multiplexer>),
    /// It speaks another protocol, for an application.
    Upgraded(Box<UpgradedSocket>),
}

/// A response whose body comes in pieces.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) framing: ResponseFraming,
    /// Bytes that are left of the announced length, if there is one.
    pub(crate) left: u64,
    /// Decodes a body in chunks for a client that must not be sent any.
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
        /// Where the range starts.
        offset: u64,
        /// Its length in bytes.
        length: u64,
    },
    /// Several parts, one after the other.
    Parts(Vec<Part>),
}

/// The outcome of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Bytes(usize),
    /// Nothing yet.
    Later,
    /// The client will send nothing more, or is gone.
    Ended,
}

impl Entry {
    pub(crate) fn new(socket: OwnedFd, peer: Peer, listener: u16, now_ms: u64) -> Self {
        on(Carrier::Socket(Socket::new(socket)), peer, listener, now_ms)
    }

    /// Whether it can be served in this process only: its keys are here, or its streams.
    pub(crate) fn is_bound(&self) -> bool {
        self.session().is_some()
            || matches!(self.state, State::Multiplexing(_))
            || matches!(self.carrier, Carrier::Stream(_) | Carrier::Nobody { .. })
    }

    /// Whether nobody waits for the response to its request.
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

    /// The HTTP/2 side of a connection that speaks it.
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

    /// Takes the HTTP/2 side out of a connection that ends; it waits for nothing afterwards.
    pub(crate) fn take_multiplexer(&mut self) -> Option<Box<Multiplexer>> {
        self.multiplexer()?;
        match std::mem::replace(&mut self.state, State::Waiting) {
            State::Multiplexing(multiplexer) => Some(multiplexer),
            state => unreachable!("the connection speaks HTTP/2, and is not in {state:?}"),
        }
    }

    /// Whether the handler has the request that `ticket` names.
    pub(crate) fn is_of(&self, ticket: Ticket) -> bool {
        self.request == ticket.request
            && matches!(self.state, State::Handling | State::Streaming(_))
    }

    /// Whether a turn would make progress.
    pub(crate) fn has_work(&self) -> bool {
        if self.output.is_some() {
            return self.is_writable || has_socket_work(self);
        }
        match &self.state {
            State::Waiting => self.is_readable || self.seen < self.input.len(),
            State::Receiving(upload) => {
                upload.is_whole || self.is_readable || !self.input.is_empty()
            }
            State::Handshaking | State::Lingering { .. } => self.is_readable,
            State::Multiplexing(multiplexer) => {
                self.is_readable
                    || !self.input.is_empty()
                    || self.is_writable && multiplexer.has_work()
            }
            State::AwaitingOther(_) | State::Handling | State::Streaming(_) | State::Responding => {
                false
            }
            State::Upgraded(_) => has_socket_work(self),
        }
    }

    /// Whether the client has a deadline for all of what it sends, and not for each next piece.
    pub(crate) fn has_deadline_for_all(&self) -> bool {
        match &self.state {
            State::Waiting => !self.input.is_empty(),
            State::Multiplexing(multiplexer) => multiplexer.head_since_ms.is_some(),
            State::Handshaking | State::Lingering { .. } => true,
            _ => false,
        }
    }

    /// Whether its next turn begins a request, or goes on with its head.
    pub(crate) fn awaits_request(&self) -> bool {
        matches!(self.state, State::Waiting) && self.output.is_none()
    }

    /// Whether its next turn hands a request to a handler.
    pub(crate) fn needs_handler(&self) -> bool {
        let is_whole = match &self.state {
            State::Waiting => self.has_head,
            State::Receiving(upload) => upload.is_whole,
            State::Upgraded(upgraded) => {
                return upgraded.has_event() && !can_flush(self) && !can_read(self);
            }
            _ => false,
        };
        is_whole && self.output.is_none()
    }

    /// Whether it is between two requests, with nothing read and nothing to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.awaits_request() && self.input.is_empty()
    }

    /// Whether it could go on in another process: nothing of it is here but its socket and a few bytes. A session of
    /// TLS stays where its keys are.
    pub(crate) fn is_movable(&self) -> bool {
        let read_bytes = match &self.state {
            State::Waiting => Some(0),
            State::Receiving(upload) => upload.bytes_in_memory(),
            _ => None,
        };
        let is_small = read_bytes.is_some_and(|read| read + self.input.len() <= MOVED_BYTES_MAX);
        is_small && self.output.is_none() && !self.is_ended && !self.is_bound()
    }

    /// Takes a request that is whole back into the input. The worker that goes on with it reads it
    /// anew.
    pub(crate) fn unread_request(&mut self) {
        if let State::Receiving(upload) = &self.state
            && upload.bytes_in_memory().is_some()
        {
            self.input = [upload.to_bytes(), std::mem::take(&mut self.input)].concat();
            (self.state, self.seen) = (State::Waiting, 0);
        }
    }

    /// Takes out the request whose body has come in.
    pub(crate) fn take_upload(&mut self) -> Box<Upload> {
        match std::mem::replace(&mut self.state, State::Waiting) {
            State::Receiving(upload) => upload,
            state => unreachable!("a request is taken out while it is received, not in {state:?}"),
        }
    }

    /// Whether it has a request that is counted when it ends.
    pub(crate) fn is_counted(&self) -> bool {
        self.observed.as_ref().is_some_and(|observed| observed.begun_us > 0)
    }

    /// Whether something has come in, or the client has closed.
    pub(crate) fn has_bytes(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.carrier.socket().is_some_and(|socket| {
            !matches!(recv(socket, &mut [0], flags), Err(Errno::AGAIN | Errno::INTR))
        })
    }

    /// Keeps bytes that belong to the next request, or to the rest of this one's head.
    pub(crate) fn keep(&mut self, bytes: &[u8], seen: usize) {
        self.input = bytes.to_vec();
        self.seen = seen;
    }

    /// Bytes that wait in memory for the client to take them.
    pub(crate) fn memory_bytes(&self) -> usize {
        let sealed = self.session().map_or(0, Session::unsent_bytes);
        sealed + self.output.as_ref().map_or(0, |output| output.memory_bytes())
    }

    /// Bytes that wait for the client to take them.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.output.as_ref().map_or(0, |output| output.waiting_bytes())
    }

    /// Bytes of the response that the client has taken, from an arbitrary start: what has left, less what the kernel
    /// still holds.
    pub(crate) fn taken_bytes(&self) -> i64 {
        let left = self.output.as_ref().map_or(0, |output| output.left_bytes());
        let queued = self.carrier.socket().map_or(0, |socket| queued_bytes(socket).unwrap_or(0));
        let sealed = self.session().map_or(0, Session::unsent_bytes) as u64;
        i64::try_from(left).unwrap_or(i64::MAX).saturating_sub_unsigned(queued + sealed)
    }

    /// Closes for writing; what still comes in will be discarded.
    pub(crate) fn linger(&mut self, now_ms: u64) {
        self.say_end();
        self.carrier.shut(Shutdown::Write);
        self.input = Vec::new();
        self.seen = 0;
        self.since_ms = now_ms;
        self.state = State::Lingering { bytes_left: LINGER_BYTES_MAX };
    }
}

/// A stream of `parent`, with a request whose head is whole.
pub(crate) fn stream_of(parent: &Entry, link: StreamLink, upload: Upload, now_ms: u64) -> Entry {
    let carrier = Carrier::Stream(Box::new(link));
    Entry {
        is_trusted: parent.is_trusted,
        is_writable: false,
        is_persistent: false,
        is_fresh: false,
        state: State::Receiving(Box::new(upload)),
        ..on(carrier, parent.peer, parent.listener, now_ms)
    }
}

/// A request that nobody waits for, as the client of `origin` could have sent it.
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
        is_readable: false,
        is_writable: true,
        is_ended: false,
        is_persistent: true,
        is_fresh: true,
        input: Vec::new(),
        seen: 0,
        has_head: false,
        since_ms: now_ms,
        asked_us: 0,
        responded_us: 0,
        asks_seldom: false,
        ready_us: 0,
        here_us: 0,
        key_us: 0,
        standing: QueuePosition::default(),
        output: None,
        held_bytes: 0,
        share: Share::default(),
        observed: None,
        cache_role: None,
        has_waited: false,
    }
}

/// The state of a connection that was upgraded.
pub(crate) fn upgraded(connection: &Entry) -> Option<&UpgradedSocket> {
    match &connection.state {
        State::Upgraded(upgraded) => Some(upgraded),
        _ => None,
    }
}

/// The same, to be changed.
pub(crate) fn upgraded_mut(connection: &mut Entry) -> Option<&mut UpgradedSocket> {
    match &mut connection.state {
        State::Upgraded(upgraded) => Some(upgraded),
        _ => None,
    }
}

/// Whether bytes that wait for the client could leave.
pub(crate) fn can_flush(connection: &Entry) -> bool {
    connection.output.is_some() && connection.is_writable
}

/// Whether something of an upgraded connection could be read and kept.
pub(crate) fn can_read(connection: &Entry) -> bool {
    let Some(upgraded) = upgraded(connection) else { return false };
    let has_input = connection.is_readable || connection.seen < connection.input.len();
    let has_room = upgraded.message.is_none() && !upgraded.is_over();
    has_input && has_room && connection.backlog_bytes() <= READ_BACKLOG_BYTES_MAX
}

/// Whether a turn of an upgraded connection would make progress.
fn has_socket_work(connection: &Entry) -> bool {
    let has_event = upgraded(connection).is_some_and(UpgradedSocket::has_event);
    has_event || can_flush(connection) || can_read(connection)
}
