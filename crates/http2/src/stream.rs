//! A stream: a request and its response.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};

use crate::heads;
use crate::priority::Priority;

/// The numbers of the streams that `h2` has woken: bytes have arrived, the window has room, or the stream has ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct WokenStreams(Arc<Mutex<Vec<u32>>>);

impl WokenStreams {
    pub(crate) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn waker(&self, number: u32) -> Waker {
        Waker::from(Arc::new(StreamWaker { number, woken: self.clone() }))
    }
}

#[derive(Debug)]
struct StreamWaker {
    number: u32,
    woken: WokenStreams,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

/// A request and its response.
#[derive(Debug)]
pub struct Stream {
    number: u32,
    waker: Waker,
    incoming: RecvStream,
    responder: SendResponse<Bytes>,
    /// The sending half of the response's body, once the head is sent.
    outgoing: Option<SendStream<Bytes>>,
    is_whole: bool,
    opens_websocket: bool,
    priority: Priority,
}

/// The next part of a request's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyPart {
    /// Some bytes.
    Data(Bytes),
    /// No bytes yet.
    Later,
    /// The end of the body.
    End,
    /// The stream or the connection is over.
    Gone,
}

impl Stream {
    pub(crate) fn new(
        woken: &WokenStreams,
        incoming: RecvStream,
        responder: SendResponse<Bytes>,
        opens_websocket: bool,
        priority: Priority,
    ) -> Self {
        let number = responder.stream_id().as_u32();
        let waker = woken.waker(number);
        let (outgoing, is_whole) = (None, false);
        Self { number, waker, incoming, responder, outgoing, is_whole, opens_websocket, priority }
    }

    /// Whether the request opens a WebSocket, whose bytes are sent as the bodies of the request and the response (RFC
    /// 8441).
    #[must_use]
    pub fn opens_websocket(&self) -> bool {
        self.opens_websocket
    }

    /// Returns the priority of the response.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns the stream's number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether the request has no body, or all of the body was taken.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// Takes the received part of the request's body, and lets the client send as much again.
    pub fn receive(&mut self) -> BodyPart {
        match self.incoming.poll_data(&mut Context::from_waker(&self.waker)) {
            Poll::Pending => BodyPart::Later,
            Poll::Ready(None) => BodyPart::End,
            Poll::Ready(Some(Err(_))) => BodyPart::Gone,
            Poll::Ready(Some(Ok(data))) => {
                // The call fails only for more bytes than were received.
                let _ = self.incoming.flow_control().release_capacity(data.len());
                BodyPart::Data(data)
            }
        }
    }

    /// Whether the client has reset the stream, or the connection is over.
    pub fn is_gone(&mut self) -> bool {
        let context = &mut Context::from_waker(&self.waker);
        let reset = match &mut self.outgoing {
            Some(outgoing) => outgoing.poll_reset(context),
            None => self.responder.poll_reset(context),
        };
        reset.is_ready() && !self.is_whole
    }

    /// Whether the head of the response was sent.
    #[must_use]
    pub fn has_responded(&self) -> bool {
        self.outgoing.is_some()
    }

    /// Sends an interim response, whose head is in the form of HTTP/1.
    pub fn inform(&mut self, head: &[u8]) {
        // Errors are ignored, since they mean that the stream is gone.
        let _ = self.responder.send_informational(heads::response_head(head, false));
    }

    /// Sends the head of the response, which is in the form of HTTP/1. Returns `false` if the stream is gone.
    pub fn respond(&mut self, head: &[u8], is_whole: bool) -> bool {
        let response = heads::response_head(head, self.opens_websocket);
        let sent = self.responder.send_response(response, is_whole);
        self.is_whole |= is_whole && sent.is_ok();
        self.outgoing = sent.ok();
        self.outgoing.is_some()
    }

    /// Returns the number of bytes of the response's body that can be sent now, up to `wanted`, or `None` if the
    /// stream is gone. If the result is zero, [`Session::take_woken`](crate::Session::take_woken) returns the stream
    /// once there is room.
    pub fn room_bytes(&mut self, wanted: usize) -> Option<usize> {
        let outgoing = self.outgoing.as_mut()?;
        outgoing.reserve_capacity(wanted);
        loop {
            let room = outgoing.capacity();
            if room > 0 {
                return Some(room.min(wanted));
            }
            match outgoing.poll_capacity(&mut Context::from_waker(&self.waker)) {
                Poll::Pending => return Some(0),
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return None,
            }
        }
    }

    /// Sends a part of the response's body, which must not exceed the available room.
    pub fn send(&mut self, piece: Vec<u8>, is_last: bool) {
        if let Some(outgoing) = &mut self.outgoing {
            // Errors are ignored, since they mean that the stream is gone.
            let _ = outgoing.send_data(piece.into(), is_last);
            self.is_whole |= is_last;
        }
    }

    /// Whether the whole response was sent.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Resets the stream, which cancels the response.
    pub fn reset(&mut self) {
        match &mut self.outgoing {
            Some(outgoing) => outgoing.send_reset(Reason::INTERNAL_ERROR),
            None => self.responder.send_reset(Reason::INTERNAL_ERROR),
        }
    }

    /// Returns the length of the HTTP/1 head at the start of `bytes`, including the empty line.
    #[must_use]
    pub fn head_bytes(bytes: &[u8]) -> usize {
        heads::head_bytes(bytes)
    }
}
