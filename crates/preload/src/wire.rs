//! Messages on a template's socket. A message is a kind and a list of byte fields; descriptors travel beside
//! the bytes.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The longest message, in bytes. A command's arguments and environment take two megabytes at most
/// (`ARG_MAX`).
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// The most descriptors that the kernel passes in one message (`SCM_MAX_FD`).
pub const DESCRIPTORS_MAX: usize = 253;
/// The size of a message's head: four bytes of length and one of kind.
const HEAD_BYTES: usize = 5;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To a template: run a command.
    Run = 1,
    /// To a template: report your state.
    Status = 2,
    /// To a template: end.
    Stop = 3,
    /// From a template: the command was not forked; the field is the reason.
    Refused = 10,
    /// From a fork: the command runs; the fields are its process and a description of the template.
    Started = 11,
    /// A signal, the field, has stopped the command.
    Stopped = 12,
    /// The command has exited with the status in the field.
    Exited = 13,
    /// The signal in the field has killed the command.
    Killed = 14,
    /// From a template: its state, as names and values in turn.
    Report = 15,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Run,
        Self::Status,
        Self::Stop,
        Self::Refused,
        Self::Started,
        Self::Stopped,
        Self::Exited,
        Self::Killed,
        Self::Report,
    ];

    fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// The kind, which determines the fields.
    pub kind: Kind,
    /// The fields.
    pub fields: Vec<Vec<u8>>,
}

impl Message {
    /// Creates a message without fields.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { kind, fields: Vec::new() }
    }

    /// Appends a field.
    #[must_use]
    pub fn with(mut self, field: impl AsRef<[u8]>) -> Self {
        self.fields.push(field.as_ref().to_vec());
        self
    }

    /// Appends a field that is a little-endian number.
    #[must_use]
    pub fn with_number(self, number: i32) -> Self {
        self.with(number.to_le_bytes())
    }

    /// Returns the field at an index as a number; `None` if it is missing or not four bytes long.
    #[must_use]
    pub fn number(&self, place: usize) -> Option<i32> {
        let bytes = self.fields.get(place)?;
        Some(i32::from_le_bytes(bytes.as_slice().try_into().ok()?))
    }

    /// Sends the message and descriptors.
    ///
    /// # Errors
    /// `EPIPE`: the peer has gone. `E2BIG`: the message is longer than the limit, or has too many
    /// descriptors.
    pub fn send(&self, socket: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = self.encoded();
        if bytes.len() > MESSAGE_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
            return Err(rustix::io::Errno::TOOBIG.into());
        }
        let mut sent = 0;
        if !descriptors.is_empty() {
            let mut room =
                vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = SendAncillaryBuffer::new(&mut room);
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            let parts = [IoSlice::new(&bytes)];
            sent = sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
        }
        let mut socket = socket;
        socket.write_all(&bytes[sent..])
    }

    /// Receives a message and its descriptors; `None` at the end of the stream.
    ///
    /// # Errors
    /// `InvalidData`: the bytes are not a message. Otherwise the socket's error.
    pub fn receive(socket: &UnixStream) -> io::Result<Option<(Self, Vec<OwnedFd>)>> {
        let mut head = [0; HEAD_BYTES];
        let (mut length, descriptors) = receive_with_descriptors(socket, &mut head)?;
        if length == 0 {
            return Ok(None);
        }
        let mut reader = socket;
        while length < HEAD_BYTES {
            match reader.read(&mut head[length..])? {
                0 => return Ok(None),
                read => length += read,
            }
        }
        let bytes = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if bytes > MESSAGE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; bytes];
        reader.read_exact(&mut body)?;
        let fields = decoded(&body).ok_or(io::ErrorKind::InvalidData)?;
        let kind = Kind::of(head[4]).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some((Self { kind, fields }, descriptors)))
    }

    fn encoded(&self) -> Vec<u8> {
        let body = encoded(&self.fields);
        let mut bytes = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
        bytes.push(self.kind as u8);
        bytes.extend_from_slice(&body);
        bytes
    }
}

fn receive_with_descriptors(
    socket: &UnixStream,
    head: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut room = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let mut parts = [IoSliceMut::new(head)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        rustix::io::retry_on_intr(|| recvmsg(socket.as_fd(), &mut parts, &mut ancillary, flags))?;
    let messages = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, messages.flatten().collect()))
}

/// Encodes fields, each preceded by its length as a little-endian `u32`.
#[must_use]
pub fn encoded(fields: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in fields {
        bytes.extend_from_slice(&u32::try_from(field.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(field);
    }
    bytes
}

/// Decodes the output of [`encoded`]; `None` for any other bytes.
#[must_use]
pub fn decoded(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (field, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        fields.push(field.to_vec());
        bytes = rest;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_message_comes_as_it_was_sent_with_its_descriptors() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"passed").unwrap();
        let message = Message::new(Kind::Run).with("a").with("").with_number(-7);
        message.send(&one, &[file.as_fd()]).unwrap();
        Message::new(Kind::Stop).send(&one, &[]).unwrap();
        drop(one);
        let (received, descriptors) = Message::receive(&other).unwrap().unwrap();
        assert_eq!(received, message);
        assert_eq!((received.number(2), received.number(0)), (Some(-7), None));
        let [descriptor] = <[OwnedFd; 1]>::try_from(descriptors).unwrap();
        assert_eq!(File::from(descriptor).metadata().unwrap().len(), 6);
        let (received, descriptors) = Message::receive(&other).unwrap().unwrap();
        assert_eq!((received.kind, descriptors.len()), (Kind::Stop, 0));
        assert!(Message::receive(&other).unwrap().is_none());
    }

    #[test]
    fn other_bytes_are_no_message() {
        for bytes in [&[1, 0, 0, 0, 1, 9][..], &[0, 0, 0, 0, 99], &[255, 255, 255, 255, 1]] {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(bytes).unwrap();
            drop(one);
            assert!(Message::receive(&other).is_err(), "{bytes:?}");
        }
        assert_eq!(decoded(&[1, 0, 0]), None);
        assert_eq!(decoded(&[9, 0, 0, 0, 1]), None);
    }
}
