//! The socket of a connection, from the first attempt to the close.

mod sealed;

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, send,
    socket_with, sockopt,
};

use thruway_sys::socket::queued_bytes;
use thruway_tls::Session;

use crate::Address;
use crate::run_context::RunContext;
use crate::tally::FailureKind;

/// The receive buffer of a slow reader, in bytes, small so that the server notices soon. The kernel rounds
/// the size up.
const SLOW_BUFFER_BYTES: usize = 1024;

/// How a client receives data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intake {
    /// Epoll reports available data.
    Prompt,
    /// The client reads at its own pace, from a small buffer.
    Slow,
    /// The server has closed.
    Closed,
}

impl Intake {
    fn flags(self) -> EventFlags {
        if self == Self::Prompt { EventFlags::IN } else { EventFlags::empty() }
    }
}

/// The fate of data that was sent before the server closed the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The server's kernel refused it, since the server had closed before.
    Refused,
    /// Neither a refusal nor an acknowledgement has arrived.
    Pending,
    /// The server's kernel took it.
    Acknowledged,
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum Socket {
    /// There is no connection, and none may be made before `retry_ns`.
    Closed { retry_ns: u64 },
    /// The kernel is connecting.
    Connecting { socket: OwnedFd, intake: Intake },
    /// The connection is established.
    Open {
        socket: OwnedFd,
        intake: Intake,
        /// Whether epoll reports room to send.
        awaits_room: bool,
        /// The TLS session, if any.
        tls: Option<Box<Session>>,
        /// The number of responses received.
        responses: u64,
    },
}

impl Socket {
    /// Starts to connect. Returns `Closed` if a Unix socket's queue is full, which calls for another attempt
    /// later.
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

    /// Completes a connection attempt, successfully or not.
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

    /// Whether epoll has to report when the socket accepts more data.
    pub(crate) fn awaits_room(&self) -> bool {
        matches!(self, Self::Open { awaits_room: true, .. })
    }

    /// Sends as many bytes as there is room for, and has epoll report when there is more.
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

    /// Receives data: `None` if there is none, 0 bytes if the server closed. With `discard` the kernel counts
    /// the bytes of a TCP connection and drops them, and `buffer` is unchanged (tcp(7), `MSG_TRUNC`).
    ///
    /// Reads at most `most` bytes.
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

    /// Whether the server has ended the TLS session, after which no event may follow.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Open { tls: Some(session), .. } if session.is_over())
    }

    /// Counts a failure of TLS, if TLS was the reason for the end of the connection.
    pub(crate) fn tls_failure_kind(&self, context: &mut RunContext<'_>) -> Option<FailureKind> {
        context.failures.count(FailureKind::Tls, self.tls_failure()?);
        Some(FailureKind::Tls)
    }

    /// Returns the kind of failure of a connection that no longer accepts data. The cause may be in data that were
    /// received before, such as an alert of TLS.
    pub(crate) fn unsent_failure_kind(&mut self, context: &mut RunContext<'_>) -> FailureKind {
        let most = context.buffer.len();
        // The result does not matter, since the connection is over.
        let _ = self.receive(&mut context.buffer, most, false);
        self.tls_failure_kind(context).unwrap_or(FailureKind::Reset)
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

    /// Returns what became of the data that was sent, once the server has closed.
    pub(crate) fn delivery(&self) -> Delivery {
        let Self::Open { socket, .. } = self else { return Delivery::Acknowledged };
        // Asked first: data that is refused between the two queries then counts as refused.
        let is_queued = queued_bytes(socket.as_fd()).is_ok_and(|bytes| bytes > 0);
        match sockopt::socket_error(socket) {
            Ok(Err(_)) | Err(_) => Delivery::Refused,
            Ok(Ok(())) if is_queued => Delivery::Pending,
            Ok(Ok(())) => Delivery::Acknowledged,
        }
    }

    /// Has epoll report nothing more of a connection that the server has closed, except that the server's kernel
    /// refuses data, which epoll always reports.
    pub(crate) fn await_refusal(&mut self, token: usize, epoll: impl AsFd) -> io::Result<()> {
        let Self::Open { socket, intake, awaits_room, .. } = self else { return Ok(()) };
        if *intake == Intake::Closed {
            return Ok(());
        }
        (*intake, *awaits_room) = (Intake::Closed, false);
        epoll::modify(epoll, &*socket, EventData::new_u64(token as u64), intake.flags())
    }

    /// Whether the server has closed, and it is not yet known whether it has received the requests.
    pub(crate) fn awaits_refusal(&self) -> bool {
        matches!(self, Self::Open { intake: Intake::Closed, .. })
    }

    /// Whether the connection has had a response.
    pub(crate) fn has_responded(&self) -> bool {
        matches!(self, Self::Open { responses: 1.., .. })
    }

    /// Counts a response.
    pub(crate) fn count_response(&mut self) {
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
