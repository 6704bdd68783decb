//! The messages by which a connection moves from one worker to another: its socket and its state.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, send, sendmsg, socketpair,
};

use crate::entry::Entry;
use crate::entry::activity::RecentService;
use crate::entry::readiness::Readiness;
use crate::entry::turn::Turn;
use crate::{Error, Peer};

/// The length of a message with a connection, without the input that was read.
pub(crate) const MESSAGE_BYTES: usize = 72;

/// A message that only wakes the worker.
const BELL: [u8; 1] = [0];

/// A message from another worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection that another worker has sent.
    Connection(Box<Entry>),
    /// A worker has written into the receiver's row.
    Bell,
}

/// The receiving end of a worker's mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox(OwnedFd);

/// The sending end of a worker's mailbox, for its siblings.
#[derive(Debug)]
pub(super) struct MailboxSender(OwnedFd);

/// Creates the two ends of a worker's mailbox. Messages in the mailbox outlive the worker.
pub(super) fn pair() -> Result<(Mailbox, MailboxSender), Error> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (inbox, sender) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| Error::system("make a mailbox", errno))?;
    Ok((Mailbox(inbox), MailboxSender(sender)))
}

impl MailboxSender {
    /// Sends a connection. The sender's own socket stays open until the caller drops it.
    ///
    /// # Errors
    /// `EAGAIN` if the mailbox is full.
    pub(super) fn send(&self, connection: &Entry) -> Result<(), Errno> {
        let message = write_message(connection);
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = SendAncillaryBuffer::new(&mut room);
        let Some(socket) = connection.carrier.socket() else { return Err(Errno::BADF) };
        let sockets = [socket];
        attached.push(SendAncillaryMessage::ScmRights(&sockets));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let parts = [IoSlice::new(&message), IoSlice::new(&connection.input.bytes)];
        sendmsg(&self.0, &parts, &mut attached, flags).map(|_| ())
    }

    /// Wakes the worker. The worker is about to look anyway if its mailbox is full.
    pub(super) fn ring(&self) {
        let _ = send(&self.0, &BELL, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

impl Mailbox {
    /// Takes the next message, if there is one. The input of a connection passes through `inbox`, which has room for
    /// [`MOVED_BYTES_MAX`](crate::entry::MOVED_BYTES_MAX).
    ///
    /// # Errors
    /// `EMFILE` if a connection was sent, but lost because no descriptor was left for it.
    pub(crate) fn receive(&self, inbox: &mut [u8], now_ms: u64) -> Result<Option<Message>, Errno> {
        let mut message = [0; MESSAGE_BYTES];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = RecvAncillaryBuffer::new(&mut room);
        let mut slices = [IoSliceMut::new(&mut message), IoSliceMut::new(inbox)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let bytes = match recvmsg(&self.0, &mut slices, &mut attached, flags) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Ok(received) if received.bytes == BELL.len() => return Ok(Some(Message::Bell)),
            received => received?.bytes,
        };
        let socket = attached.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        let socket = socket.ok_or(Errno::MFILE)?;
        let mut connection = read_message(&message, socket, now_ms);
        connection.keep(&inbox[..bytes.saturating_sub(MESSAGE_BYTES)], 0);
        Ok(Some(Message::Connection(Box::new(connection))))
    }
}

impl From<OwnedFd> for Mailbox {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl From<OwnedFd> for MailboxSender {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for MailboxSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Serializes a connection. The fields and their lengths in bytes: listener 2, port 2, address 16, address family 1,
/// `is_fresh` 1, `is_readable` 1, and 1 for the bits of `is_trusted`, `awaits_proxy_head` and `asks_seldom`. Then turns
/// 4, their epoch 4, and five times of 8: the start of the wait in milliseconds and, in microseconds, the last
/// request's ready time, its key, the last response, and the start of the wait for a turn.
///
/// Numbers are little-endian, between processes of one binary. The input that was already read follows.
pub(crate) fn write_message(connection: &Entry) -> [u8; MESSAGE_BYTES] {
    let (family, address, port) = match connection.peer {
        Peer::Unix => (0, [0; 16], 0),
        Peer::Tcp(peer) => match peer.ip() {
            IpAddr::V4(address) => (4, address.to_ipv6_mapped().octets(), peer.port()),
            IpAddr::V6(address) => (6, address.octets(), peer.port()),
        },
    };
    let mut message = [0; MESSAGE_BYTES];
    message[0..2].copy_from_slice(&connection.listener.to_le_bytes());
    message[2..4].copy_from_slice(&port.to_le_bytes());
    message[4..20].copy_from_slice(&address);
    message[20] = family;
    message[21] = u8::from(connection.is_fresh);
    message[22] = u8::from(connection.readiness.is_readable);
    message[23] = u8::from(connection.is_trusted)
        | u8::from(connection.awaits_proxy_head) << 1
        | u8::from(connection.turn.asks_seldom) << 2;
    message[24..28].copy_from_slice(&connection.share.turns.to_le_bytes());
    message[28..32].copy_from_slice(&connection.share.epoch.to_le_bytes());
    let times = [
        connection.since_ms,
        connection.turn.asked_us,
        connection.turn.key_us,
        connection.turn.responded_us,
        connection.turn.ready_us,
    ];
    for (at, time) in (32..).step_by(8).zip(times) {
        message[at..at + 8].copy_from_slice(&time.to_le_bytes());
    }
    message
}

pub(crate) fn read_message(message: &[u8; MESSAGE_BYTES], socket: OwnedFd, now_ms: u64) -> Entry {
    let word = |at: usize| {
        let bytes = [message[at], message[at + 1], message[at + 2], message[at + 3]];
        u32::from_le_bytes(bytes)
    };
    let half = |at: usize| u16::from_le_bytes([message[at], message[at + 1]]);
    let mut address = [0; 16];
    address.copy_from_slice(&message[4..20]);
    let address = Ipv6Addr::from(address);
    let peer = match message[20] {
        0 => Peer::Unix,
        4 => {
            let address = address.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED);
            Peer::Tcp(SocketAddr::new(IpAddr::V4(address), half(2)))
        }
        _ => Peer::Tcp(SocketAddr::new(IpAddr::V6(address), half(2))),
    };
    let time = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let turn = Turn {
        asked_us: time(40),
        key_us: time(48),
        responded_us: time(56),
        ready_us: time(64),
        asks_seldom: message[23] & 4 > 0,
        ..Turn::default()
    };
    let fresh = Entry::new(socket, peer, half(0), now_ms);
    Entry {
        is_fresh: message[21] == 1,
        is_trusted: message[23] & 1 > 0,
        awaits_proxy_head: message[23] & 2 > 0,
        share: RecentService { turns: word(24), epoch: word(28) },
        since_ms: time(32).min(now_ms),
        turn,
        readiness: Readiness { is_readable: message[22] == 1, ..fresh.readiness },
        ..fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// Receives the next connection.
    fn receive(mailbox: &Mailbox, now_ms: u64) -> Option<Entry> {
        match mailbox.receive(&mut [0; 64], now_ms).unwrap()? {
            Message::Connection(connection) => Some(*connection),
            Message::Bell => panic!("a bell"),
        }
    }

    #[test]
    fn a_bell_is_no_connection() {
        let (mailbox, sender) = pair().unwrap();
        sender.ring();
        assert!(matches!(mailbox.receive(&mut [], 0), Ok(Some(Message::Bell))));
        assert!(mailbox.receive(&mut [], 0).unwrap().is_none());
    }

    #[test]
    fn a_connection_arrives_as_it_was_sent() {
        let (mailbox, sender) = pair().unwrap();
        assert!(mailbox.receive(&mut [], 9).unwrap().is_none());
        let (near, mut far) = UnixStream::pair().unwrap();
        let peer = Peer::Tcp("[2001:db8::1]:443".parse().unwrap());
        let mut connection = Entry::new(near.into(), peer, 3, 7);
        connection.is_fresh = false;
        connection.readiness.is_readable = true;
        connection.is_trusted = true;
        connection.awaits_proxy_head = true;
        connection.turn.asks_seldom = true;
        connection.keep(b"GET / HT", 8);
        connection.share = RecentService { turns: 70_000, epoch: 80_000 };
        (connection.turn.asked_us, connection.turn.key_us) = (1 << 40, 1 << 42);
        connection.turn.ready_us = 1 << 41;
        sender.send(&connection).unwrap();
        drop(connection);
        let got = receive(&mailbox, 9).unwrap();
        assert_eq!((got.peer, got.listener, got.is_fresh, got.since_ms), (peer, 3, false, 7));
        assert_eq!(
            (got.share.turns, got.share.epoch, got.readiness.is_readable),
            (70_000, 80_000, true)
        );
        assert!(got.is_trusted && got.awaits_proxy_head && got.turn.asks_seldom);
        assert_eq!(
            (got.turn.asked_us, got.turn.key_us, got.turn.ready_us),
            (1 << 40, 1 << 42, 1 << 41)
        );
        assert_eq!((&got.input.bytes[..], got.input.searched), (&b"GET / HT"[..], 0));
        UnixStream::from(got.carrier.into_socket().unwrap().fd).write_all(b"same socket").unwrap();
        let mut text = String::new();
        far.read_to_string(&mut text).unwrap();
        assert_eq!(text, "same socket");
    }

    #[test]
    fn addresses_of_both_families_survive() {
        for peer in ["127.0.0.1:80", "[::1]:80"] {
            let (near, _far) = UnixStream::pair().unwrap();
            let peer = Peer::Tcp(peer.parse().unwrap());
            let message = write_message(&Entry::new(near.into(), peer, 0, 0));
            let (near, _far) = UnixStream::pair().unwrap();
            assert_eq!(read_message(&message, near.into(), 0).peer, peer);
        }
    }

    #[test]
    fn a_full_mailbox_says_so_and_loses_nothing() {
        let (mailbox, sender) = pair().unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        let connection = Entry::new(near.into(), Peer::Unix, 0, 0);
        let sent = (0..10_000).take_while(|_| sender.send(&connection).is_ok()).count();
        assert!((10..10_000).contains(&sent), "{sent}");
        assert_eq!(std::iter::from_fn(|| receive(&mailbox, 0)).count(), sent);
    }
}
