//! One connection's socket, from the first attempt to the close.

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, send,
    socket_with, sockopt,
};

use crate::Address;
use crate::run_context::RunContext;

/// A connection, or the lack of one.
#[derive(Debug)]
pub(crate) enum Socket {
    /// There is none, and there is to be none before `retry_ns`.
    Closed { retry_ns: u64 },
    /// The kernel is at it.
    Connecting(OwnedFd),
    /// Requests and responses can pass.
    Open {
        socket: OwnedFd,
        /// Whether epoll tells when there is room to send.
        awaits_room: bool,
        /// How many responses it brought.
        responses: u64,
    },
}

impl Socket {
    /// Begins a connection. It is `Closed` where a unix socket's queue is full: try again later.
    pub(crate) fn connect(token: usize, context: &RunContext<'_>) -> io::Result<Self> {
        let (socket, connected) = match &context.plan.address {
            Address::Tcp(address) => {
                let family =
                    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let socket = stream(family)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                let connected = rustix::net::connect(&socket, address);
                (socket, connected)
            }
            Address::Unix(path) => {
                let socket = stream(AddressFamily::UNIX)?;
                let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
                (socket, connected)
            }
        };
        let data = EventData::new_u64(token as u64);
        match connected {
            Ok(()) => {
                epoll::add(&context.epoll, &socket, data, EventFlags::IN)?;
                Ok(Self::Open { socket, awaits_room: false, responses: 0 })
            }
            Err(Errno::INPROGRESS) => {
                epoll::add(&context.epoll, &socket, data, EventFlags::IN | EventFlags::OUT)?;
                Ok(Self::Connecting(socket))
            }
            Err(Errno::AGAIN) => Ok(Self::Closed { retry_ns: 0 }),
            Err(errno) => Err(errno),
        }
    }

    /// The kernel has come to an end with connecting: this one is open, or never will be.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        let Self::Connecting(socket) = self else { return Ok(()) };
        sockopt::socket_error(&*socket)??;
        if let Self::Connecting(socket) = std::mem::replace(self, Self::Closed { retry_ns: 0 }) {
            *self = Self::Open { socket, awaits_room: true, responses: 0 };
        }
        Ok(())
    }

    /// Sends as much of the part of the requests as there is room for, and has epoll tell
    /// when there is more.
    pub(crate) fn send(
        &mut self,
        token: usize,
        part: Range<usize>,
        context: &RunContext<'_>,
    ) -> io::Result<usize> {
        let Self::Open { socket, awaits_room, .. } = self else { return Ok(0) };
        if part.is_empty() && !*awaits_room {
            return Ok(0);
        }
        let sent = match send(&*socket, &context.requests[part.clone()], SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN | Errno::INTR) => 0,
            other => other?,
        };
        let is_short = sent < part.len();
        if is_short != *awaits_room {
            let flags = if is_short { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&context.epoll, &*socket, EventData::new_u64(token as u64), flags)?;
            *awaits_room = is_short;
        }
        Ok(sent)
    }

    /// What has come: `None` if nothing has, 0 bytes if the server closed. With `discard` the bytes
    /// of a TCP connection are counted and thrown away by the kernel, and `buffer` stays as it was
    /// (tcp(7), `MSG_TRUNC`).
    pub(crate) fn receive(&self, buffer: &mut [u8], discard: bool) -> io::Result<Option<usize>> {
        let Self::Open { socket, .. } = self else { return Ok(None) };
        let flags = if discard { RecvFlags::TRUNC } else { RecvFlags::empty() };
        match recv(socket, buffer, flags) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            other => other.map(|(_, received)| Some(received)),
        }
    }

    /// Counts a response.
    pub(crate) fn responded(&mut self) {
        if let Self::Open { responses, .. } = self {
            *responses += 1;
        }
    }
}

fn stream(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(family, SocketType::STREAM, flags, None)
}
