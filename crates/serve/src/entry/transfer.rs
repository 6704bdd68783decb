//! Moves bytes between an entry and its client: reads, writes, and the output that waits between two writes.
//!
//! A socket is read and written by system calls, through its TLS session if it has one. Input of an HTTP/2 stream comes
//! from the session of its connection, and output waits until that session takes it.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use thruway_http2::BodyPart;
use thruway_tls::{OpenError, RECORD_BYTES_MAX};

use crate::entry::carrier::{Carrier, Socket, StreamLink};
use crate::entry::{Entry, Payload, ReadOutcome};
use crate::output::{FlushOutcome, Output, Part, gather, send_sealed};

/// The maximum number of slices of one response that are sent without a copy.
const SLICES_MAX: usize = 16;

impl Entry {
    /// Reads the available input, up to the size of `inbox`.
    pub(crate) fn receive(&mut self, inbox: &mut [u8]) -> ReadOutcome {
        if !self.readiness.is_readable {
            return ReadOutcome::Later;
        }
        let socket = match &mut self.carrier {
            Carrier::Socket(socket) if socket.session.is_some() => {
                return receive_sealed(self, inbox);
            }
            Carrier::Socket(socket) => socket,
            Carrier::Nobody { .. } => return ReadOutcome::Later,
            Carrier::Stream(link) => {
                let received = receive_of(link, inbox);
                // The stream's waker reports further input.
                self.readiness.is_readable = matches!(received, ReadOutcome::Bytes(_));
                return received;
            }
        };
        match recv(socket, &mut *inbox, RecvFlags::empty()) {
            Ok((0, _)) => ReadOutcome::Ended,
            Ok((length, _)) => {
                // A short read has emptied the socket, and the next byte raises a new event. An end that was reported
                // before raises none.
                self.readiness.is_readable = length == inbox.len() || self.readiness.is_ended;
                ReadOutcome::Bytes(length)
            }
            Err(Errno::AGAIN) => {
                self.readiness.is_readable = false;
                ReadOutcome::Later
            }
            Err(Errno::INTR) => ReadOutcome::Later,
            Err(_) => ReadOutcome::Ended,
        }
    }

    /// Sends a head and a body as far as the client takes them now, about `turn_bytes` at most, and keeps the rest.
    ///
    /// # Errors
    /// The error of the connection.
    pub(crate) fn deliver(
        &mut self,
        head: &[u8],
        payload: Payload<'_>,
        turn_bytes: usize,
    ) -> Result<FlushOutcome, Errno> {
        if self.session().is_some() {
            return deliver_sealed(self, head, payload, turn_bytes);
        }
        if let Carrier::Stream(link) = &mut self.carrier {
            let body = link.take_head(head);
            push(&mut self.output, body, payload);
            return Ok(FlushOutcome::Blocked);
        }
        if let Carrier::Nobody { .. } = &self.carrier {
            return Ok(FlushOutcome::Done);
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

    /// Queues bytes for the next flush.
    pub(crate) fn push_bytes(&mut self, mut bytes: &[u8]) {
        if let Carrier::Stream(link) = &mut self.carrier {
            bytes = link.take_head(bytes);
        }
        if let Carrier::Nobody { .. } = &self.carrier {
            return;
        }
        let output = self.output.get_or_insert_default();
        output.push(Part::Bytes(bytes.to_vec()));
    }

    /// Sends waiting output, at most `turn_bytes`.
    ///
    /// # Errors
    /// The error of the connection.
    pub(crate) fn send_waiting(&mut self, mut turn_bytes: usize) -> Result<FlushOutcome, Errno> {
        let Some(output) = &mut self.output else { return Ok(FlushOutcome::Done) };
        let Carrier::Socket(socket) = &mut self.carrier else { return Ok(FlushOutcome::Blocked) };
        let Socket { fd, session } = socket;
        let flushed = match session {
            None => output.flush(fd.as_fd(), &mut turn_bytes)?,
            Some(session) => output.flush_sealed(session, fd.as_fd(), &mut turn_bytes)?,
        };
        match flushed {
            FlushOutcome::Done => self.output = None,
            FlushOutcome::Blocked => self.readiness.is_writable = false,
            FlushOutcome::Quantum => {}
        }
        Ok(flushed)
    }

    /// Sends slices without a copy at first; only the bytes that the client does not take are copied.
    fn deliver_slices(
        &mut self,
        head: &[u8],
        body: &[&[u8]],
        turn_bytes: usize,
    ) -> Result<FlushOutcome, Errno> {
        let mut sent = 0;
        let Carrier::Socket(socket) = &self.carrier else { return Ok(FlushOutcome::Blocked) };
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
            return Ok(FlushOutcome::Done);
        }
        keep_unsent(&mut self.output, head, body, sent);
        self.send_waiting(turn_bytes)
    }

    /// Sends a file. The kernel holds the head back until the first bytes of the file follow.
    fn deliver_file(
        &mut self,
        head: &[u8],
        (file, offset, length): (OwnedFd, u64, u64),
        turn_bytes: usize,
    ) -> Result<FlushOutcome, Errno> {
        let mut sent = 0;
        let (mut at, mut left) = (offset, length);
        let Carrier::Socket(socket) = &self.carrier else { return Ok(FlushOutcome::Blocked) };
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
            return Ok(FlushOutcome::Done);
        }
        let mut output = self.output.take().unwrap_or_default();
        output.push(Part::Bytes(head[sent..].to_vec()));
        output.push(Part::File { file: Arc::new(file), offset: at, length: left });
        self.output = Some(output);
        let turn_left = turn_bytes.saturating_sub(usize::try_from(length - left).unwrap_or(0));
        if turn_left == 0 { Ok(FlushOutcome::Quantum) } else { self.send_waiting(turn_left) }
    }

    /// Sends the TLS `close_notify` after the last response, which proves to the client that nothing was cut off.
    pub(crate) fn send_close_notify(&mut self) {
        if let Carrier::Socket(Socket { fd, session: Some(session) }) = &mut self.carrier {
            session.close();
            // The server does not wait for a client that takes nothing now.
            let _ = send_sealed(session, fd.as_fd());
        }
    }
}

/// Queues a head and a body.
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

/// Reads the available input of a stream. A frame is shorter than `inbox`.
fn receive_of(link: &mut StreamLink, inbox: &mut [u8]) -> ReadOutcome {
    match link.stream.receive() {
        BodyPart::Data(data) => {
            inbox[..data.len()].copy_from_slice(&data);
            ReadOutcome::Bytes(data.len())
        }
        BodyPart::Later => ReadOutcome::Later,
        BodyPart::End | BodyPart::Gone => ReadOutcome::Ended,
    }
}

/// Reads the available input and decrypts it in `inbox`.
fn receive_sealed(connection: &mut Entry, inbox: &mut [u8]) -> ReadOutcome {
    let Carrier::Socket(Socket { fd, session: Some(session) }) = &mut connection.carrier else {
        unreachable!("only a socket with a session is read sealed");
    };
    if session.is_over() {
        return ReadOutcome::Ended;
    }
    let length = match recv(&*fd, &mut inbox[RECORD_BYTES_MAX..], RecvFlags::empty()) {
        Ok((0, _)) => return ReadOutcome::Ended,
        Ok((length, _)) => length,
        Err(Errno::AGAIN) => {
            connection.readiness.is_readable = false;
            return ReadOutcome::Later;
        }
        Err(Errno::INTR) => return ReadOutcome::Later,
        Err(_) => return ReadOutcome::Ended,
    };
    connection.readiness.is_readable =
        length == inbox.len() - RECORD_BYTES_MAX || connection.readiness.is_ended;
    let opened = session.open(inbox, RECORD_BYTES_MAX..RECORD_BYTES_MAX + length);
    if opened == Err(OpenError::Plain) {
        return ReadOutcome::Ended;
    }
    let is_over = session.is_over();
    // The session's output is a part of the handshake, or the alert that refuses the client.
    let is_broken = send_records(connection).is_err() || opened.is_err();
    match opened {
        _ if is_broken => ReadOutcome::Ended,
        Ok(0) | Err(_) if is_over => ReadOutcome::Ended,
        Ok(0) | Err(_) => ReadOutcome::Later,
        Ok(length) => {
            connection.readiness.is_readable |= is_over;
            ReadOutcome::Bytes(length)
        }
    }
}

/// Sends the records of the TLS session itself. Records that the client does not take now wait like output.
fn send_records(connection: &mut Entry) -> Result<(), Errno> {
    let Carrier::Socket(Socket { fd, session: Some(session) }) = &mut connection.carrier else {
        return Ok(());
    };
    if !session.has_unsent() {
        return Ok(());
    }
    match send_sealed(session, fd.as_fd()) {
        Err(Errno::AGAIN) => {
            connection.readiness.is_writable = false;
            connection.output.get_or_insert_default();
            Ok(())
        }
        sent => sent,
    }
}

/// Encrypts a head and a body, and sends them as far as the client takes them now.
fn deliver_sealed(
    connection: &mut Entry,
    head: &[u8],
    payload: Payload<'_>,
    turn_bytes: usize,
) -> Result<FlushOutcome, Errno> {
    let is_first = connection.output.is_none();
    let mut output = connection.output.take().unwrap_or_default();
    match payload {
        Payload::Empty | Payload::Slices(_) => {
            let body = if let Payload::Slices(slices) = payload { slices } else { &[] };
            let slices = [head].into_iter().chain(body.iter().copied());
            let session = connection.carrier.session_mut().filter(|_| is_first);
            output.seal_slices(session, slices);
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
