//! The work for an application: a request, or an event of an upgraded connection.

use std::os::fd::IntoRawFd;

use rb_sys::VALUE;
use thruway_http1::response::ResponseConstraints;
use thruway_roles::Route;
use thruway_serve::{Body, SocketEvent, Ticket};

use crate::ruby::data_type::Marker;
use crate::ruby::{Gvl, NIL, RString, number};

/// A request that is ready for the application.
#[derive(Clone, Copy)]
pub(super) struct ReadyRequest {
    pub(super) env: VALUE,
    pub(super) ticket: Ticket,
    pub(super) constraints: ResponseConstraints,
    pub(super) input: Input,
    /// The client's certificate in DER.
    pub(super) certificate: Option<RString>,
    /// Whether the application may upgrade the connection.
    pub(super) upgrades: bool,
    /// The route, if requests run in fibers.
    pub(super) route: Option<Route>,
}

/// A request's body in the form that Ruby receives.
#[derive(Clone, Copy)]
pub(super) enum Input {
    None,
    /// The bytes as a String.
    Bytes(RString),
    /// A descriptor as an Integer.
    File(VALUE),
}

impl Input {
    pub(super) fn new(gvl: Gvl, body: Body) -> Self {
        match body {
            Body::Memory(bytes) if bytes.is_empty() => Self::None,
            Body::Memory(bytes) => Self::Bytes(RString::binary(gvl, &bytes)),
            Body::File { file, .. } => Self::File(rb_sys::LONG2NUM(file.into_raw_fd().into())),
        }
    }
}

/// An event of a connection, in the form for Ruby.
#[derive(Clone, Copy)]
pub(super) struct ReadyEvent {
    pub(super) ticket: Ticket,
    /// The number of a kind that `Thruway::Sockets` knows.
    pub(super) kind: u64,
    /// The bytes of a message, or a close code.
    pub(super) data: VALUE,
}

impl ReadyEvent {
    pub(super) fn new(gvl: Gvl, ticket: Ticket, event: SocketEvent) -> Self {
        let (kind, data) = match event {
            SocketEvent::Opened => (0, NIL),
            SocketEvent::Message(message) if message.is_text => {
                (1, RString::new(gvl, &message.bytes).value())
            }
            SocketEvent::Message(message) => (1, RString::binary(gvl, &message.bytes).value()),
            SocketEvent::Drained => (2, NIL),
            SocketEvent::Shutdown => (3, NIL),
            SocketEvent::Ended(code) => (4, number::from_u64(gvl, code.number().into())),
        };
        Self { ticket, kind, data }
    }
}

/// Work that calls the application.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Request(ReadyRequest),
    Event(ReadyEvent),
}

impl Work {
    pub(super) fn mark(&self, marker: Marker) {
        match self {
            Self::Request(request) => {
                marker.mark(request.env);
                if let Input::Bytes(bytes) = request.input {
                    marker.mark(bytes.value());
                }
                if let Some(certificate) = request.certificate {
                    marker.mark(certificate.value());
                }
            }
            Self::Event(event) => marker.mark(event.data),
        }
    }
}
