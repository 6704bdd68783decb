//! Messages with descriptors, between the processes of a mount.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::inodes::lock;

/// The number of descriptors per system call; the kernel accepts at most 253.
const DESCRIPTORS_MAX: usize = 200;
/// The maximum length of a message in bytes: 10,000 paths of maximum length fit.
const MESSAGE_BYTES_MAX: u32 = 256 << 20;

/// An end of the connection between two processes.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: UnixStream,
    /// Held while a message is sent, which takes several system calls.
    sending: Arc<Mutex<()>>,
}

impl Channel {
    /// Creates a connected pair.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((one.into(), other.into()))
    }

    /// Returns the end that the parent process passed as standard input.
    pub(crate) fn from_stdin() -> io::Result<Self> {
        let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
        rustix::net::sockopt::socket_domain(&descriptor)?;
        // Children must not inherit the channel.
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        Ok(UnixStream::from(descriptor).into())
    }

    /// Returns another handle of the same end.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, sending: Arc::clone(&self.sending) })
    }

    /// Sends a message with copies of the descriptors.
    pub(crate) fn send(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let message = serde_json::to_vec(message)?;
        let mut frame = Vec::with_capacity(8 + message.len());
        for length in [message.len(), descriptors.len()] {
            let length = u32::try_from(length).map_err(io::Error::other)?;
            frame.extend_from_slice(&length.to_ne_bytes());
        }
        frame.extend_from_slice(&message);
        let _sending = lock(&self.sending);
        (&self.socket).write_all(&frame)?;
        descriptors.chunks(DESCRIPTORS_MAX).try_for_each(|chunk| self.send_descriptors(chunk))
    }

    /// Waits for a message. Returns `None` if the other end is closed.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut lengths = [0; 8];
        match (&self.socket).read_exact(&mut lengths) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let [a, b, c, d, e, f, g, h] = lengths;
        let length = u32::from_ne_bytes([a, b, c, d]);
        let count = u32::from_ne_bytes([e, f, g, h]) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut message = vec![0; length as usize];
        (&self.socket).read_exact(&mut message)?;
        let mut descriptors = Vec::new();
        while descriptors.len() < count {
            self.receive_descriptors(&mut descriptors)?;
        }
        Ok(Some((serde_json::from_slice(&message)?, descriptors)))
    }

    /// Sends descriptors along with a byte, since descriptors cannot be sent without data.
    fn send_descriptors(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space =
            vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sendmsg(&self.socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    pub(crate) fn receive_descriptors(&self, descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
        let mut space =
            vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut into = [IoSliceMut::new(&mut byte)];
        let before = descriptors.len();
        recvmsg(&self.socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        // Either the other end is closed, or this process may not open more descriptors.
        if descriptors.len() == before { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl From<UnixStream> for Channel {
    fn from(socket: UnixStream) -> Self {
        Self { socket, sending: Arc::default() }
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.socket.into()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_arrive_with_their_message() {
        let (one, other) = Channel::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"bytes").unwrap();
        let many = vec![file.as_fd(); DESCRIPTORS_MAX + 1];
        let sender = std::thread::spawn({
            let many: Vec<_> = many.iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect();
            move || {
                let borrowed: Vec<_> = many.iter().map(AsFd::as_fd).collect();
                one.send(&"text", &borrowed).unwrap();
            }
        });
        let (text, received): (String, _) = other.receive().unwrap().unwrap();
        sender.join().unwrap();
        assert_eq!((text.as_str(), received.len()), ("text", DESCRIPTORS_MAX + 1));
        let mut bytes = [0; 5];
        rustix::io::pread(received.last().unwrap(), &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"bytes");
        assert!(other.receive::<String>().unwrap().is_none());
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let (one, other) = Channel::pair().unwrap();
        (&one.socket).write_all(&[0xff; 8]).unwrap();
        assert!(other.receive::<String>().is_err());
    }
}
