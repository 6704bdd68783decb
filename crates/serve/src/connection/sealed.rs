//! What a connection that speaks TLS does in its own way.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use thruway_tls::{OpenError, RECORD_BYTES_MAX};

use super::{Connection, Payload, Received};
use crate::output::{Flushed, Part, send_sealed};

impl Connection {
    /// Reads what is there, and opens it in `inbox`.
    pub(super) fn receive_sealed(&mut self, inbox: &mut [u8]) -> Received {
        let Some(session) = &mut self.tls else { return Received::Later };
        if session.is_over() {
            return Received::Ended;
        }
        let length = match recv(&self.socket, &mut inbox[RECORD_BYTES_MAX..], RecvFlags::empty()) {
            Ok((0, _)) => return Received::Ended,
            Ok((length, _)) => length,
            Err(Errno::AGAIN) => {
                self.is_readable = false;
                return Received::Later;
            }
            Err(Errno::INTR) => return Received::Later,
            Err(_) => return Received::Ended,
        };
        self.is_readable = length == inbox.len() - RECORD_BYTES_MAX || self.is_ended;
        let opened = session.open(inbox, RECORD_BYTES_MAX..RECORD_BYTES_MAX + length);
        if opened == Err(OpenError::Plain) {
            return Received::Ended;
        }
        let is_over = session.is_over();
        // A part of the handshake, or why the client is refused.
        let is_broken = self.send_records().is_err() || opened.is_err();
        match opened {
            _ if is_broken => Received::Ended,
            Ok(0) | Err(_) if is_over => Received::Ended,
            Ok(0) | Err(_) => Received::Later,
            Ok(length) => {
                self.is_readable |= is_over;
                Received::Bytes(length)
            }
        }
    }

    /// Sends what TLS itself has to say. What the client does not take now waits like output.
    fn send_records(&mut self) -> Result<(), Errno> {
        let Some(session) = &mut self.tls else { return Ok(()) };
        if !session.has_unsent() {
            return Ok(());
        }
        match send_sealed(session, self.socket.as_fd()) {
            Err(Errno::AGAIN) => {
                self.is_writable = false;
                self.output.get_or_insert_default();
                Ok(())
            }
            sent => sent,
        }
    }

    /// Seals a head and a body, and sends them as far as the client takes them now.
    pub(super) fn deliver_sealed(
        &mut self,
        head: &[u8],
        payload: Payload<'_>,
        turn_bytes: usize,
    ) -> Result<Flushed, Errno> {
        let is_first = self.output.is_none();
        let mut output = self.output.take().unwrap_or_default();
        match payload {
            Payload::Empty | Payload::Slices(_) => {
                let body = if let Payload::Slices(slices) = payload { slices } else { &[] };
                let slices = [head].into_iter().chain(body.iter().copied());
                let session = self.tls.as_mut().filter(|_| is_first);
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
        self.output = Some(output);
        self.flush(turn_bytes)
    }

    /// Tells a client that speaks TLS that nothing was cut off. It is for connections whose last response is sent.
    pub(crate) fn say_end(&mut self) {
        if let Some(session) = &mut self.tls {
            session.close();
            // A client that takes nothing now is not waited for.
            let _ = send_sealed(session, self.socket.as_fd());
        }
    }

    /// Whether its client has begun to speak, and not TLS.
    pub(crate) fn speaks_plain_http(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.is_plain())
    }

    /// The certificate that its client has shown, in DER.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        self.tls.as_ref().and_then(|session| session.peer_certificate())
    }
}
