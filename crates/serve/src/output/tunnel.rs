//! Tunnels for TLS connections that an application has taken over.
//!
//! The application expects a socket, so it gets one end of a socket pair. Its bytes are encrypted and sent to the
//! client; the client's bytes are decrypted and written to the pair. One thread serves all tunnels, apart from the
//! engine.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair,
};
use thruway_tls::{RECORD_BYTES_MAX, Session};

use crate::Error;
use crate::events::poller::{Event, Events, Poller, Waker};
use crate::events::slab::{EntryId, Slab};
use crate::output::send_sealed;

/// The maximum number of bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// The maximum number of rounds of one tunnel before others have their turn.
const ROUNDS_MAX: u32 = 8;

/// The words of events. A tunnel's word is its slot shifted by one bit; the lowest bit tells the client from the
/// application.
const WAKER: u64 = u64::MAX;

/// The handle of the tunnels' thread.
#[derive(Debug)]
pub(crate) struct Tunnels {
    new: Sender<Tunnel>,
    waker: Waker,
}

/// A TLS client, and the socket of the application.
#[derive(Debug)]
struct Tunnel {
    session: Box<Session>,
    client: End,
    application: End,
    /// Decrypted bytes that the application has not taken yet.
    opened: Vec<u8>,
}

/// A socket and its known state.
#[derive(Debug)]
struct End {
    socket: OwnedFd,
    is_readable: bool,
    is_writable: bool,
    /// Whether the peer sends nothing more.
    is_ended: bool,
    /// Whether the end of the bytes was sent to the peer.
    has_sent_end: bool,
}

/// The work that is left for a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// None before the next event.
    Nothing,
    /// Some that can be done now.
    Some,
    /// None, because the tunnel is over.
    Over,
}

impl Tunnels {
    /// Starts the thread of the tunnels.
    ///
    /// # Errors
    /// The system has no thread or no descriptor left.
    pub(crate) fn start() -> Result<Self, Error> {
        let (new, coming) = channel();
        let poller = Poller::new()?;
        let waker = poller.waker(WAKER)?;
        let clearing = waker.clone();
        std::thread::Builder::new()
            .name("thruway-tunnels".into())
            .spawn(move || Driver { poller, coming, tunnels: Slab::new() }.run(&clearing))
            .map_err(|error| Error::system("start a thread", error))?;
        Ok(Self { new, waker })
    }

    /// Takes over a connection, and returns the socket for the application.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn add(&self, client: OwnedFd, session: Box<Session>) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let tunnel = Tunnel {
            session,
            client: End::new(client),
            application: End::new(ours),
            opened: Vec::new(),
        };
        // The send fails only if the thread is gone; the application then reads the end of its socket.
        let _ = self.new.send(tunnel);
        self.waker.wake();
        Ok(theirs)
    }
}

/// The poller and the tunnels of the thread.
struct Driver {
    poller: Poller,
    coming: Receiver<Tunnel>,
    tunnels: Slab<Tunnel>,
}

impl Driver {
    fn run(mut self, waker: &Waker) {
        let (mut events, mut buffer) = (Events::new(), vec![0; BUFFER_BYTES]);
        let (waiter, mut busy) = (self.poller.waiter(), Vec::new());
        loop {
            let timeout_ms = if busy.is_empty() { None } else { Some(0) };
            waiter.wait(&mut events, timeout_ms);
            for event in events.drain() {
                match event.word {
                    WAKER => waker.clear(),
                    word => busy.extend(self.note(word, event)),
                }
            }
            busy.extend(self.take());
            busy.sort_unstable_by_key(|id: &EntryId| id.to_word());
            busy.dedup();
            busy.retain(|id| self.serve(*id, &mut buffer));
        }
    }

    /// Takes in new tunnels.
    fn take(&mut self) -> Vec<EntryId> {
        let mut new = Vec::new();
        while let Ok(tunnel) = self.coming.try_recv() {
            let id = self.tunnels.insert(tunnel);
            let Some(tunnel) = self.tunnels.get(id) else { continue };
            let ends = [&tunnel.client, &tunnel.application];
            let added = ends.iter().zip(0..).all(|(end, which)| {
                let word = u64::from(id.slot()) << 1 | which;
                self.poller.add_connection(&end.socket, word).is_ok()
            });
            if added {
                new.push(id);
            } else {
                self.tunnels.remove(id);
            }
        }
        new
    }

    fn note(&mut self, word: u64, event: Event) -> Option<EntryId> {
        let id = self.tunnels.id_at(u32::try_from(word >> 1).ok()?)?;
        let tunnel = self.tunnels.get_mut(id)?;
        let end = if word & 1 == 0 { &mut tunnel.client } else { &mut tunnel.application };
        end.is_readable |= event.is_readable;
        end.is_writable |= event.is_writable;
        Some(id)
    }

    /// Moves bytes both ways; returns whether more could be moved at once.
    fn serve(&mut self, id: EntryId, buffer: &mut [u8]) -> bool {
        let Some(tunnel) = self.tunnels.get_mut(id) else { return false };
        match tunnel.serve(buffer) {
            Rest::Nothing => false,
            Rest::Some => true,
            Rest::Over => {
                self.tunnels.remove(id);
                false
            }
        }
    }
}

impl Tunnel {
    fn serve(&mut self, buffer: &mut [u8]) -> Rest {
        for _ in 0..ROUNDS_MAX {
            match self.round(buffer) {
                Ok(true) => {}
                Ok(false) if self.is_over() => return Rest::Over,
                Ok(false) => return Rest::Nothing,
                Err(_) => return Rest::Over,
            }
        }
        Rest::Some
    }

    /// Whether the tunnel is over: the application's end was sent to the client, and the client's end to the
    /// application, unless the application has closed.
    fn is_over(&self) -> bool {
        let is_sent = self.client.has_sent_end && !self.session.has_unsent();
        is_sent && (self.application.has_sent_end || self.application.is_closed())
    }

    /// Makes one read and one write in each direction; returns whether any byte moved.
    fn round(&mut self, buffer: &mut [u8]) -> Result<bool, Errno> {
        let to_application = self.pass_opened()? | self.open(buffer)?;
        let to_client = self.pass_sealed()? | self.seal(buffer)?;
        Ok(to_application | to_client)
    }

    /// Passes decrypted bytes to the application, and after them the end of the client.
    fn pass_opened(&mut self) -> Result<bool, Errno> {
        let end = &mut self.application;
        if self.opened.is_empty() {
            return Ok(self.client.is_ended && end.send_end()?);
        }
        let flags = SendFlags::NOSIGNAL;
        let sent = if end.is_writable { send(&end.socket, &self.opened, flags) } else { Ok(0) };
        let sent = end.written(sent)?;
        self.opened.drain(..sent);
        Ok(sent > 0)
    }

    /// Decrypts the client's next bytes, once the application has taken the previous ones.
    fn open(&mut self, buffer: &mut [u8]) -> Result<bool, Errno> {
        if !self.opened.is_empty() {
            return Ok(false);
        }
        let Some(length) = self.client.read(&mut buffer[RECORD_BYTES_MAX..])? else {
            return Ok(false);
        };
        let range = RECORD_BYTES_MAX..RECORD_BYTES_MAX + length;
        if length > 0 {
            let opened = self.session.open(buffer, range).map_err(|_| Errno::PROTO)?;
            self.opened.extend_from_slice(&buffer[..opened]);
        }
        self.client.is_ended |= self.session.is_over();
        Ok(true)
    }

    /// Sends encrypted bytes to the client, and after them the end of the application.
    fn pass_sealed(&mut self) -> Result<bool, Errno> {
        let end = &mut self.client;
        if !self.session.has_unsent() {
            if !self.application.is_ended || end.has_sent_end {
                return Ok(false);
            }
            self.session.close();
            end.has_sent_end = true;
        }
        if !end.is_writable {
            return Ok(false);
        }
        match send_sealed(&mut self.session, end.socket.as_fd()) {
            Ok(()) => {}
            Err(Errno::AGAIN) => end.is_writable = false,
            Err(errno) => return Err(errno),
        }
        Ok(end.is_writable)
    }

    /// Encrypts the application's next bytes, once the previous ones are sent.
    fn seal(&mut self, buffer: &mut [u8]) -> Result<bool, Errno> {
        if self.session.has_unsent() {
            return Ok(false);
        }
        let most = buffer.len().min(self.session.room_bytes());
        let Some(length) = self.application.read(&mut buffer[..most])? else { return Ok(false) };
        self.session.seal(&buffer[..length]);
        Ok(true)
    }
}

impl End {
    fn new(socket: OwnedFd) -> Self {
        Self { socket, is_readable: true, is_writable: true, is_ended: false, has_sent_end: false }
    }

    /// Reads; none if no bytes are there, zero at the end.
    fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        if !self.is_readable || self.is_ended {
            return Ok(None);
        }
        match recv(&self.socket, buffer, RecvFlags::empty()) {
            Ok((length, _)) => {
                self.is_ended = length == 0;
                Ok(Some(length))
            }
            Err(Errno::AGAIN) => {
                self.is_readable = false;
                Ok(None)
            }
            Err(Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Handles the result of a write.
    fn written(&mut self, sent: Result<usize, Errno>) -> Result<usize, Errno> {
        match sent {
            Err(Errno::AGAIN) => {
                self.is_writable = false;
                Ok(0)
            }
            Err(Errno::INTR) => Ok(0),
            sent => sent,
        }
    }

    /// Whether the peer has closed both directions.
    fn is_closed(&self) -> bool {
        let mut asked = [PollFd::new(&self.socket, PollFlags::empty())];
        let polled = poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_ok() && asked[0].revents().contains(PollFlags::HUP)
    }

    /// Sends the end of the bytes to the peer, once.
    fn send_end(&mut self) -> Result<bool, Errno> {
        if self.has_sent_end {
            return Ok(false);
        }
        self.has_sent_end = true;
        shutdown(&self.socket, Shutdown::Write).map(|()| true)
    }
}
