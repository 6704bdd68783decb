//! The memory that `h2` reads and writes in place of a socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// From this number of unsent bytes on, `h2` neither writes nor reads. So the requests of a client that does not
/// receive have to wait as well.
pub const UNSENT_BYTES_MAX: usize = 64 << 10;

/// A handle of the memory; the session and `h2` have one each. The session polls `h2` again after each input, so no
/// waker is needed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wire(Arc<Mutex<Buffers>>);

#[derive(Debug, Default)]
struct Buffers {
    /// Received bytes, of which the first `read` bytes were already read.
    received: Vec<u8>,
    read: usize,
    unsent: Vec<u8>,
}

impl Wire {
    /// Appends received bytes.
    pub(crate) fn push_by(&self, push: impl FnOnce(&mut Vec<u8>)) {
        push(&mut self.buffers().received);
    }

    /// Whether received bytes are unread.
    pub(crate) fn has_unread(&self) -> bool {
        !self.buffers().received.is_empty()
    }

    /// Discards the unread bytes.
    pub(crate) fn discard(&self) {
        let mut buffers = self.buffers();
        (buffers.received, buffers.read) = (Vec::new(), 0);
    }

    /// Takes the bytes to send.
    pub(crate) fn take_unsent(&self) -> Vec<u8> {
        std::mem::take(&mut self.buffers().unsent)
    }

    /// Inspects the bytes to send.
    pub(crate) fn look_at_unsent<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.buffers().unsent)
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffers = self.buffers();
        let left = &buffers.received[buffers.read..];
        if left.is_empty() {
            return Poll::Pending;
        }
        let length = left.len().min(to.remaining());
        to.put_slice(&left[..length]);
        buffers.read += length;
        if buffers.read == buffers.received.len() {
            // An idle connection occupies no memory.
            (buffers.received, buffers.read) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut buffers = self.buffers();
        if buffers.unsent.len() >= UNSENT_BYTES_MAX {
            return Poll::Pending;
        }
        slices.iter().for_each(|slice| buffers.unsent.extend_from_slice(slice));
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
