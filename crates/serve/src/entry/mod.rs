//! One client's connection: its socket, and the state of its request.
//!
//! An idle connection owns no buffer, so that ten thousand of them cost little.
//!
//! Reading order: this file is the entry of a connection in the store. `carrier` and `multiplexer` are the two sides of
//! HTTP/2: a stream with its connection, and a connection with its streams. `upload` is a request whose body comes in,
//! `socket_state` an upgraded connection. `ticket` names one request, `activity` counts the turns of each connection.

pub(crate) mod activity;
pub(crate) mod carrier;
pub(crate) mod multiplexer;
pub(crate) mod socket_state;
pub(crate) mod ticket;
pub(crate) mod upload;

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv};
use thruway_http1::ResponseFraming;
use thruway_http2::Incoming;
use thruway_sys::socket::queued_bytes;
use thruway_tls::{OpenError, RECORD_BYTES_MAX, Session};

use crate::entry::activity::Share;
use crate::entry::carrier::{Carrier, StreamLink};
use crate::entry::multiplexer::Multiplexer;
use crate::entry::socket_state::Upgraded;
use crate::entry::ticket::Ticket;
use crate::entry::upload::Upload;
use crate::listen::listener::Peer;
use crate::metrics::observed::Observed;
use crate::output::unchunk::Unchunk;
use crate::output::{Flushed, Output, Part, gather, send_sealed};
use crate::queue::standing::Standing;

/// Bytes that are read and discarded, at most, before a lingering connection is closed.
const LINGER_BYTES_MAX: u32 = 1 << 20;

/// Slices of one response that are sent without being copied.
const SLICES_MAX: usize = 16;

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
    pub(crate) phase: Phase,
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
    pub(crate) standing: Standing,
    pub(crate) output: Option<Box<Output>>,
    /// How many of its bytes in memory the engine has counted.
    pub(crate) held_bytes: usize,
    /// Decodes a response in chunks for a client that must not be sent any.
    pub(crate) unchunk: Option<Box<Unchunk>>,
    /// What is sealed for the client, and opened of it, if it speaks TLS and its handshake has begun.
    pub(crate) tls: Option<Box<Session>>,
    /// Its streams, if it speaks HTTP/2.
    pub(crate) multiplexer: Option<Box<Multiplexer>>,
    pub(crate) share: Share,
    /// Its request, if requests are counted.
    pub(crate) observed: Option<Box<Observed>>,
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Its handshake is not over.
    Handshaking,
    /// It waits for a head, or for the rest of one.
    Waiting,
    /// The head is there, the body is not.
    Receiving(Box<Upload>),
    /// The handler has the request.
    Handling,
    /// The handler writes the response's body.
    Streaming(Stream),
    /// The response is written and not all sent.
    Responding,
    /// The last response is sent; what still comes in is discarded.
    Lingering { bytes_left: u32 },
    /// It speaks HTTP/2: its requests are streams.
    Multiplexing,
    /// It speaks another protocol, for an application.
    Upgraded(Box<Upgraded>),
}

/// A response whose body comes in pieces.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) framing: ResponseFraming,
    /// Bytes that are left of the announced length, if there is one.
    pub(crate) left: u64,
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

/// What a read brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes(usize),
    /// Nothing yet.
    Later,
    /// The client will send nothing more, or is gone.
    Ended,
}

impl Entry {
    pub(crate) fn new(socket: OwnedFd, peer: Peer, listener: u16, now_ms: u64) -> Self {
        on(Carrier::Socket(socket), peer, listener, now_ms)
    }

    /// Whether it can be served in this process only: its keys are here, or its streams.
    pub(crate) fn is_bound(&self) -> bool {
        self.tls.is_some()
            || self.multiplexer.is_some()
            || matches!(self.carrier, Carrier::Stream(_))
    }

    /// Whether the handler has the request that `ticket` names.
    pub(crate) fn is_of(&self, ticket: Ticket) -> bool {
        self.request == ticket.request
            && matches!(self.phase, Phase::Handling | Phase::Streaming(_))
    }

    /// Whether a turn would make progress.
    pub(crate) fn has_work(&self) -> bool {
        if self.output.is_some() {
            return self.is_writable || has_socket_work(self);
        }
        match &self.phase {
            Phase::Waiting => self.is_readable || self.seen < self.input.len(),
            Phase::Receiving(upload) => {
                upload.is_whole || self.is_readable || !self.input.is_empty()
            }
            Phase::Handshaking | Phase::Lingering { .. } => self.is_readable,
            Phase::Multiplexing => {
                let mut sides = self.multiplexer.iter();
                self.is_readable
                    || !self.input.is_empty()
                    || self.is_writable && sides.any(|multiplexer| multiplexer.has_work())
            }
            Phase::Handling | Phase::Streaming(_) | Phase::Responding => false,
            Phase::Upgraded(_) => has_socket_work(self),
        }
    }

    /// Whether its next turn begins a request, or goes on with its head.
    pub(crate) fn awaits_request(&self) -> bool {
        matches!(self.phase, Phase::Waiting) && self.output.is_none()
    }

    /// Whether its next turn hands a request to a handler.
    pub(crate) fn needs_handler(&self) -> bool {
        let is_whole = match &self.phase {
            Phase::Waiting => self.has_head,
            Phase::Receiving(upload) => upload.is_whole,
            Phase::Upgraded(upgraded) => {
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
        let read_bytes = match &self.phase {
            Phase::Waiting => Some(0),
            Phase::Receiving(upload) => upload.bytes_in_memory(),
            _ => None,
        };
        let is_small = read_bytes.is_some_and(|read| read + self.input.len() <= MOVED_BYTES_MAX);
        is_small && self.output.is_none() && !self.is_ended && !self.is_bound()
    }

    /// Takes a request that is whole back into the input. The worker that goes on with it reads it
    /// anew.
    pub(crate) fn unread_request(&mut self) {
        if let Phase::Receiving(upload) = &self.phase
            && upload.bytes_in_memory().is_some()
        {
            self.input = [upload.to_bytes(), std::mem::take(&mut self.input)].concat();
            (self.phase, self.seen) = (Phase::Waiting, 0);
        }
    }

    /// Takes out the request whose body has come in.
    pub(crate) fn take_upload(&mut self) -> Box<Upload> {
        match std::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Receiving(upload) => upload,
            phase => unreachable!("a request is taken out while it is received, not in {phase:?}"),
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

    /// Reads what is there, up to the size of `inbox`.
    pub(crate) fn receive(&mut self, inbox: &mut [u8]) -> Received {
        if !self.is_readable {
            return Received::Later;
        }
        if self.tls.is_some() {
            return receive_sealed(self, inbox);
        }
        let socket = match &mut self.carrier {
            Carrier::Socket(socket) => socket,
            Carrier::Stream(link) => {
                let received = receive_of(link, inbox);
                // The stream's waker tells of more.
                self.is_readable = matches!(received, Received::Bytes(_));
                return received;
            }
        };
        match recv(socket, &mut *inbox, RecvFlags::empty()) {
            Ok((0, _)) => Received::Ended,
            Ok((length, _)) => {
                // Less than fits is all there was: the next byte is a new event. The end is no event if it came before.
                self.is_readable = length == inbox.len() || self.is_ended;
                Received::Bytes(length)
            }
            Err(Errno::AGAIN) => {
                self.is_readable = false;
                Received::Later
            }
            Err(Errno::INTR) => Received::Later,
            Err(_) => Received::Ended,
        }
    }

    /// Keeps bytes that belong to the next request, or to the rest of this one's head.
    pub(crate) fn keep(&mut self, bytes: &[u8], seen: usize) {
        self.input = bytes.to_vec();
        self.seen = seen;
    }

    /// Sends a head and a body as far as the client takes them now, about `turn_bytes` at most, and
    /// keeps the rest.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn deliver(
        &mut self,
        head: &[u8],
        payload: Payload<'_>,
        turn_bytes: usize,
    ) -> Result<Flushed, Errno> {
        if self.tls.is_some() {
            return deliver_sealed(self, head, payload, turn_bytes);
        }
        if let Carrier::Stream(link) = &mut self.carrier {
            let body = link.take_head(head);
            push(&mut self.output, body, payload);
            return Ok(Flushed::Blocked);
        }
        match payload {
            Payload::Empty => self.deliver_slices(head, &[], turn_bytes),
            Payload::Slices(slices) => self.deliver_slices(head, slices, turn_bytes),
            Payload::File { file, offset, length } => {
                self.deliver_file(head, (file, offset, length), turn_bytes)
            }
            Payload::Parts(_) => {
                push(&mut self.output, head, payload);
                self.send_waiting(turn_bytes)
            }
        }
    }

    /// Keeps bytes for the next flush.
    pub(crate) fn push_bytes(&mut self, mut bytes: &[u8]) {
        if let Carrier::Stream(link) = &mut self.carrier {
            bytes = link.take_head(bytes);
        }
        let output = self.output.get_or_insert_default();
        output.push(Part::Bytes(bytes.to_vec()));
    }

    /// Bytes that wait in memory for the client to take them.
    pub(crate) fn memory_bytes(&self) -> usize {
        let sealed = self.tls.as_ref().map_or(0, |session| session.unsent_bytes());
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
        let sealed = self.tls.as_ref().map_or(0, |session| session.unsent_bytes()) as u64;
        i64::try_from(left).unwrap_or(i64::MAX).saturating_sub_unsigned(queued + sealed)
    }

    /// Sends what waits, `turn_bytes` at most.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) fn send_waiting(&mut self, mut turn_bytes: usize) -> Result<Flushed, Errno> {
        let Some(output) = &mut self.output else { return Ok(Flushed::Done) };
        let Carrier::Socket(socket) = &self.carrier else { return Ok(Flushed::Blocked) };
        let flushed = match &mut self.tls {
            None => output.flush(socket.as_fd(), &mut turn_bytes)?,
            Some(session) => output.flush_sealed(session, socket.as_fd(), &mut turn_bytes)?,
        };
        match flushed {
            Flushed::Done => self.output = None,
            Flushed::Blocked => self.is_writable = false,
            Flushed::Quantum => {}
        }
        Ok(flushed)
    }

    /// The first try sends without a copy; what the client does not take is copied.
    fn deliver_slices(
        &mut self,
        head: &[u8],
        body: &[&[u8]],
        turn_bytes: usize,
    ) -> Result<Flushed, Errno> {
        let mut sent = 0;
        let Carrier::Socket(socket) = &self.carrier else { return Ok(Flushed::Blocked) };
        if self.output.is_none() && body.len() < SLICES_MAX {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let all = [head].into_iter().chain(body.iter().copied());
            slices.iter_mut().zip(all).for_each(|(to, from)| *to = IoSlice::new(from));
            sent = match gather(socket.as_fd(), &slices[..=body.len()], false) {
                Err(Errno::AGAIN | Errno::INTR) => 0,
                sent => sent?,
            };
        }
        let total = head.len() + body.iter().map(|slice| slice.len()).sum::<usize>();
        if sent == total {
            return Ok(Flushed::Done);
        }
        keep_unsent(&mut self.output, head, body, sent);
        self.send_waiting(turn_bytes)
    }

    /// The head waits in the kernel for the first bytes of the file.
    fn deliver_file(
        &mut self,
        head: &[u8],
        (file, offset, length): (OwnedFd, u64, u64),
        turn_bytes: usize,
    ) -> Result<Flushed, Errno> {
        let mut sent = 0;
        let (mut at, mut left) = (offset, length);
        let Carrier::Socket(socket) = &self.carrier else { return Ok(Flushed::Blocked) };
        if self.output.is_none() {
            sent = match gather(socket.as_fd(), &[IoSlice::new(head)], true) {
                Err(Errno::AGAIN | Errno::INTR) => 0,
                sent => sent?,
            };
        }
        if sent == head.len() {
            let most = usize::try_from(length).map_or(turn_bytes, |all| all.min(turn_bytes));
            match sendfile(socket, &file, Some(&mut at), most) {
                Ok(0) if most > 0 => return Err(Errno::PIPE),
                Ok(bytes) => left -= bytes as u64,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if sent == head.len() && left == 0 {
            return Ok(Flushed::Done);
        }
        let mut output = self.output.take().unwrap_or_default();
        output.push(Part::Bytes(head[sent..].to_vec()));
        output.push(Part::File { file: Arc::new(file), offset: at, length: left });
        self.output = Some(output);
        let turn_left = turn_bytes.saturating_sub(usize::try_from(length - left).unwrap_or(0));
        if turn_left == 0 { Ok(Flushed::Quantum) } else { self.send_waiting(turn_left) }
    }

    /// Closes for writing; what still comes in will be discarded.
    pub(crate) fn linger(&mut self, now_ms: u64) {
        self.say_end();
        self.carrier.shut(Shutdown::Write);
        self.input = Vec::new();
        self.seen = 0;
        self.since_ms = now_ms;
        self.phase = Phase::Lingering { bytes_left: LINGER_BYTES_MAX };
    }

    /// Tells a client that speaks TLS that nothing was cut off. It is for connections whose last response is sent.
    pub(crate) fn say_end(&mut self) {
        if let (Some(session), Carrier::Socket(socket)) = (&mut self.tls, &self.carrier) {
            session.close();
            // A client that takes nothing now is not waited for.
            let _ = send_sealed(session, socket.as_fd());
        }
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
        phase: Phase::Receiving(Box::new(upload)),
        ..on(carrier, parent.peer, parent.listener, now_ms)
    }
}

fn on(carrier: Carrier, peer: Peer, listener: u16, now_ms: u64) -> Entry {
    Entry {
        carrier,
        peer,
        is_trusted: false,
        awaits_proxy_head: false,
        listener,
        phase: Phase::Waiting,
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
        standing: Standing::default(),
        output: None,
        held_bytes: 0,
        unchunk: None,
        tls: None,
        multiplexer: None,
        share: Share::default(),
        observed: None,
    }
}

/// Keeps a head and a body.
fn push(kept: &mut Option<Box<Output>>, head: &[u8], payload: Payload<'_>) {
    let output = kept.get_or_insert_default();
    output.push(Part::Bytes(head.to_vec()));
    match payload {
        Payload::Empty => {}
        Payload::Slices(slices) => {
            slices.iter().for_each(|slice| output.push(Part::Bytes(slice.to_vec())));
        }
        Payload::File { file, offset, length } => {
            output.push(Part::File { file: Arc::new(file), offset, length });
        }
        Payload::Parts(parts) => parts.into_iter().for_each(|part| output.push(part)),
    }
}

fn keep_unsent(kept: &mut Option<Box<Output>>, head: &[u8], body: &[&[u8]], mut sent: usize) {
    let output = kept.get_or_insert_default();
    for slice in [head].iter().chain(body) {
        let skipped = sent.min(slice.len());
        sent -= skipped;
        output.push(Part::Bytes(slice[skipped..].to_vec()));
    }
}

/// The state of a connection that was upgraded.
pub(crate) fn upgraded(connection: &Entry) -> Option<&Upgraded> {
    match &connection.phase {
        Phase::Upgraded(upgraded) => Some(upgraded),
        _ => None,
    }
}

/// The same, to be changed.
pub(crate) fn upgraded_mut(connection: &mut Entry) -> Option<&mut Upgraded> {
    match &mut connection.phase {
        Phase::Upgraded(upgraded) => Some(upgraded),
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
    let has_event = upgraded(connection).is_some_and(Upgraded::has_event);
    has_event || can_flush(connection) || can_read(connection)
}

/// Reads what is there of a stream. A frame is shorter than `inbox`.
fn receive_of(link: &mut StreamLink, inbox: &mut [u8]) -> Received {
    match link.stream.receive() {
        Incoming::Data(data) => {
            inbox[..data.len()].copy_from_slice(&data);
            Received::Bytes(data.len())
        }
        Incoming::Later => Received::Later,
        Incoming::End | Incoming::Gone => Received::Ended,
    }
}

/// Reads what is there, and opens it in `inbox`.
fn receive_sealed(connection: &mut Entry, inbox: &mut [u8]) -> Received {
    let Some(session) = &mut connection.tls else { return Received::Later };
    let Carrier::Socket(socket) = &connection.carrier else { return Received::Later };
    if session.is_over() {
        return Received::Ended;
    }
    let length = match recv(socket, &mut inbox[RECORD_BYTES_MAX..], RecvFlags::empty()) {
        Ok((0, _)) => return Received::Ended,
        Ok((length, _)) => length,
        Err(Errno::AGAIN) => {
            connection.is_readable = false;
            return Received::Later;
        }
        Err(Errno::INTR) => return Received::Later,
        Err(_) => return Received::Ended,
    };
    connection.is_readable = length == inbox.len() - RECORD_BYTES_MAX || connection.is_ended;
    let opened = session.open(inbox, RECORD_BYTES_MAX..RECORD_BYTES_MAX + length);
    if opened == Err(OpenError::Plain) {
        return Received::Ended;
    }
    let is_over = session.is_over();
    // A part of the handshake, or why the client is refused.
    let is_broken = send_records(connection).is_err() || opened.is_err();
    match opened {
        _ if is_broken => Received::Ended,
        Ok(0) | Err(_) if is_over => Received::Ended,
        Ok(0) | Err(_) => Received::Later,
        Ok(length) => {
            connection.is_readable |= is_over;
            Received::Bytes(length)
        }
    }
}

/// Sends what TLS itself has to say. What the client does not take now waits like output.
fn send_records(connection: &mut Entry) -> Result<(), Errno> {
    let Some(session) = &mut connection.tls else { return Ok(()) };
    let Carrier::Socket(socket) = &connection.carrier else { return Ok(()) };
    if !session.has_unsent() {
        return Ok(());
    }
    match send_sealed(session, socket.as_fd()) {
        Err(Errno::AGAIN) => {
            connection.is_writable = false;
            connection.output.get_or_insert_default();
            Ok(())
        }
        sent => sent,
    }
}

/// Seals a head and a body, and sends them as far as the client takes them now.
fn deliver_sealed(
    connection: &mut Entry,
    head: &[u8],
    payload: Payload<'_>,
    turn_bytes: usize,
) -> Result<Flushed, Errno> {
    let is_first = connection.output.is_none();
    let mut output = connection.output.take().unwrap_or_default();
    match payload {
        Payload::Empty | Payload::Slices(_) => {
            let body = if let Payload::Slices(slices) = payload { slices } else { &[] };
            let slices = [head].into_iter().chain(body.iter().copied());
            let session = connection.tls.as_mut().filter(|_| is_first);
            output.seal_slices(session.map(|session| &mut **session), slices);
        }
        Payload::File { file, offset, length } => {
            output.push(Part::Bytes(head.to_vec()));
            output.push(Part::File { file: Arc::new(file), offset, length });
        }
        Payload::Parts(parts) => {
            output.push(Part::Bytes(head.to_vec()));
            parts.into_iter().for_each(|part| output.push(part));
        }
    }
    connection.output = Some(output);
    connection.send_waiting(turn_bytes)
}
