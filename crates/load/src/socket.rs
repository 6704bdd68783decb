//! One connection's socket, from the first attempt to the close.

mod sealed;

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, send,
    socket_with, sockopt,
};

use thruway_tls::Session;

use crate::Address;
use crate::run_context::RunContext;
use crate::tally::Trouble;

/// The buffer of a client that reads slowly, in bytes, so that a server feels it soon: the kernel rounds it up.
const SLOW_BUFFER_BYTES: usize = 1024;

/// How the kernel takes what a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intake {
    /// Epoll tells when there is something to read.
    Prompt,
    /// The client reads in its own time, out of a small buffer.
    Slow,
}

impl Intake {
    fn flags(self) -> EventFlags {
        if self == Self::Prompt { EventFlags::IN } else { EventFlags::empty() }
    }
}

/// A connection, or the lack of one.
#[derive(Debug)]
pub(crate) enum Socket {
    /// There is none, and there is to be none before `retry_ns`.
    Closed { retry_ns: u64 },
    /// The kernel is at it.
    Connecting { socket: OwnedFd, intake: Intake },
    /// Requests and responses can pass.
    Open {
        socket: OwnedFd,
        intake: Intake,
        /// Whether epoll tells when there is room to send.
        awaits_room: bool,
        /// What is sealed and opened, where TLS is spoken.
        tls: Option<Box<Session>>,
        /// How many responses it brought.
        responses: u64,
    },
}

impl Socket {
    /// Begins a connection. It is `Closed` where a unix socket's queue is full: try again later.
    pub(crate) fn connect(
        token: usize,
        intake: Intake,
        context: &RunContext<'_>,
    ) -> io::Result<Self> {
        let (socket, connected) = match &context.plan.address {
            Address::Tcp(address) => {
                let family =
                    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let socket = stream(family, intake)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                let connected = rustix::net::connect(&socket, address);
                (socket, connected)
            }
            Address::Unix(path) => {
                let socket = stream(AddressFamily::UNIX, intake)?;
                let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
                (socket, connected)
            }
        };
        let data = EventData::new_u64(token as u64);
        match connected {
            Ok(()) => {
                epoll::add(&context.epoll, &socket, data, intake.flags())?;
                let tls = sealed::begin(context)?;
                Ok(Self::Open { socket, intake, awaits_room: false, tls, responses: 0 })
            }
            Err(Errno::INPROGRESS) => {
                epoll::add(&context.epoll, &socket, data, intake.flags() | EventFlags::OUT)?;
                Ok(Self::Connecting { socket, intake })
            }
            Err(Errno::AGAIN) => Ok(Self::Closed { retry_ns: 0 }),
            Err(errno) => Err(errno),
        }
    }

    /// The kernel has come to an end with connecting: this one is open, or never will be.
    pub(crate) fn open(&mut self, context: &RunContext<'_>) -> io::Result<()> {
        let Self::Connecting { socket, .. } = self else { return Ok(()) };
        sockopt::socket_error(&*socket)??;
        let connecting = std::mem::replace(self, Self::Closed { retry_ns: 0 });
        if let Self::Connecting { socket, intake } = connecting {
            let tls = sealed::begin(context)?;
            *self = Self::Open { socket, intake, awaits_room: true, tls, responses: 0 };
        }
        Ok(())
    }

    /// Whether epoll is to tell when there is room to send.
    pub(crate) fn awaits_room(&self) -> bool {
        matches!(self, Self::Open { awaits_room: true, .. })
    }

    /// Sends as many bytes as there is room for, and has epoll tell when there is more.
    pub(crate) fn send(
        &mut self,
        token: usize,
        bytes: &[u8],
        epoll: impl AsFd,
    ) -> io::Result<usize> {
        let Self::Open { socket, intake, awaits_room, tls, .. } = self else { return Ok(0) };
        if bytes.is_empty() && !*awaits_room && tls.is_none() {
            return Ok(0);
        }
        let (sent, is_short) = match tls {
            Some(session) => sealed::send(session, &*socket, bytes)?,
            None => match send(&*socket, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN | Errno::INTR) => (0, !bytes.is_empty()),
                sent => sent.map(|sent| (sent, sent < bytes.len()))?,
            },
        };
        if is_short != *awaits_room {
            let room = if is_short { EventFlags::OUT } else { EventFlags::empty() };
            let flags = intake.flags() | room;
            epoll::modify(epoll, &*socket, EventData::new_u64(token as u64), flags)?;
            *awaits_room = is_short;
        }
        Ok(sent)
    }

    /// What has come: `None` if nothing has, 0 bytes if the server closed. With `discard` the bytes
    /// of a TCP connection are counted and thrown away by the kernel, and `buffer` stays as it was
    /// (tcp(7), `MSG_TRUNC`).
    ///
    /// At most `most` bytes are read at once.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        most: usize,
        discard: bool,
    ) -> io::Result<Option<usize>> {
        let Self::Open { socket, tls, .. } = self else { return Ok(None) };
        if let Some(session) = tls {
            return sealed::receive(session, &*socket, buffer, most);
        }
        let flags = if discard { RecvFlags::TRUNC } else { RecvFlags::empty() };
        match recv(&*socket, &mut buffer[..most], flags) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            other => other.map(|(_, received)| Some(received)),
        }
    }

    /// Whether the server has sealed its end: no event may follow that tells of it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Open { tls: Some(session), .. } if session.is_over())
    }

    /// The trouble with TLS on a connection that is over, if it was that which ended it.
    pub(crate) fn tls_trouble(&self, context: &mut RunContext<'_>) -> Option<Trouble> {
        context.tls_failure = Some(self.tls_failure()?);
        Some(Trouble::Tls)
    }

    /// The trouble with a connection that takes nothing any more: what came before may say why.
    pub(crate) fn unsent_trouble(&mut self, context: &mut RunContext<'_>) -> Trouble {
        let most = context.buffer.len();
        // Whatever it brings, the connection is over.
        let _ = self.receive(&mut context.buffer, most, false);
        self.tls_trouble(context).unwrap_or(Trouble::Reset)
    }

    fn tls_failure(&self) -> Option<String> {
        let Self::Open { tls: Some(session), .. } = self else { return None };
        if session.is_plain() {
            return Some("the server does not speak TLS".to_owned());
        }
        let is_cut = session.is_handshaking();
        let cut = || is_cut.then(|| "the server has closed within the handshake".to_owned());
        session.failure().or_else(cut)
    }

    /// Counts a response.
    pub(crate) fn responded(&mut self) {
        if let Self::Open { responses, .. } = self {
            *responses += 1;
        }
    }
}

fn stream(family: AddressFamily, intake: Intake) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if intake == Intake::Slow {
        sockopt::set_socket_recv_buffer_size(&socket, SLOW_BUFFER_BYTES)?;
    }
    Ok(socket)
}
