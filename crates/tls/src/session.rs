//! One connection's TLS state, at either end.

use std::io::{self, Read, Write};
use std::ops::Range;

use rustls::Connection;

use crate::failure::{Peer, reason};

/// Bytes of one sealed record, at most, with its header.
pub const RECORD_BYTES_MAX: usize = (16 << 10) + 2048 + 5;

/// Plain bytes that are sealed before all of them have to be sent: four records.
const SEALED_BYTES_MAX: usize = 64 << 10;

/// The name of HTTP/2 in ALPN.
pub(crate) const HTTP2: &[u8] = b"h2";

/// The first byte of any record: a change of cipher, an alert, a handshake, data.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 0x14..=0x17;

/// A session with a client, or with a server. Of what comes in it buffers at most a part of one record; of what goes
/// out, what was sealed and not yet sent.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    has_begun: bool,
    is_plain: bool,
    /// The client has sealed its end.
    is_over: bool,
    failure: Option<rustls::Error>,
    /// Plain bytes that were sealed since the last time when all was sent, and sealed bytes that were sent since then.
    sealed: usize,
    sent: usize,
}

/// Why bytes cannot be opened. The client is told so by what [`Session::send`] sends next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// The client does not speak TLS.
    Plain,
    /// The client breaks the protocol, or shows no certificate that is right.
    Broken,
}

impl Session {
    pub(crate) fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(None);
        Self {
            connection,
            has_begun: false,
            is_plain: false,
            is_over: false,
            failure: None,
            sealed: 0,
            sent: 0,
        }
    }

    /// Opens the sealed bytes in a range of `buffer`, and puts what they say at its beginning: how many bytes that is.
    ///
    /// The range starts at [`RECORD_BYTES_MAX`] or later, and is shorter than a record less than the buffer. So what is
    /// put there never reaches what was not read yet.
    ///
    /// # Errors
    /// The client breaks the protocol.
    pub fn open(&mut self, buffer: &mut [u8], range: Range<usize>) -> Result<usize, OpenError> {
        if !std::mem::replace(&mut self.has_begun, true)
            && !RECORD_TYPES.contains(&buffer[range.start])
        {
            self.is_plain = true;
            return Err(OpenError::Plain);
        }
        let (mut at, mut opened) = (range.start, 0);
        while at < range.end && !self.is_over {
            let mut sealed = &buffer[at..range.end];
            let read = self.connection.read_tls(&mut sealed).map_err(|_| OpenError::Broken)?;
            if read == 0 {
                break;
            }
            at += read;
            let state = self.connection.process_new_packets().map_err(|error| {
                self.failure = Some(error);
                OpenError::Broken
            })?;
            self.is_over = state.peer_has_closed();
            opened += self.read(&mut buffer[opened..at]);
        }
        Ok(opened)
    }

    fn read(&mut self, to: &mut [u8]) -> usize {
        let mut length = 0;
        // An error says that nothing is there now, or that the client has ended.
        while let Ok(read @ 1..) = self.connection.reader().read(&mut to[length..]) {
            length += read;
        }
        length
    }

    /// Seals bytes: how many of them. The others wait until all was sent.
    pub fn seal(&mut self, plain: &[u8]) -> usize {
        let most = plain.len().min(self.room_bytes());
        let sealed = self.connection.writer().write(&plain[..most]).unwrap_or(0);
        self.sealed += sealed;
        sealed
    }

    /// Sends what was sealed.
    ///
    /// # Errors
    /// Those of `socket`, such as that it takes nothing now.
    pub fn send(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            self.sent += self.connection.write_tls(socket)?;
        }
        (self.sealed, self.sent) = (0, 0);
        Ok(())
    }

    /// Seals the end: the client knows then that nothing was cut off.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Whether something waits to be sent.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Plain bytes that are sealed and not sent, within a few percent.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.sealed.saturating_sub(self.sent)
    }

    /// Plain bytes that can be sealed before all has to be sent.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        SEALED_BYTES_MAX.saturating_sub(self.sealed)
    }

    /// Whether the client has begun to speak, and not TLS.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Why the session failed, in words; `None` as long as it has not, and where only its connection broke.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let peer = match self.connection {
            Connection::Client(_) => Peer::Server,
            Connection::Server(_) => Peer::Client,
        };
        self.failure.as_ref().map(|error| reason(error, peer))
    }

    /// Why the other end's certificate is refused, in words.
    #[must_use]
    pub fn certificate_failure(&self) -> Option<String> {
        let is_it = |error: &rustls::Error| {
            matches!(
                error,
                rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented
            )
        };
        self.failure().filter(|_| self.failure.as_ref().is_some_and(is_it))
    }

    /// Whether the handshake goes on.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the handshake has chosen HTTP/2.
    #[must_use]
    pub fn speaks_http2(&self) -> bool {
        self.connection.alpn_protocol() == Some(HTTP2)
    }

    /// Whether the client has said that it sends nothing more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The client's certificate in DER, if it has shown one.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        let certificates = self.connection.peer_certificates()?;
        certificates.first().map(AsRef::as_ref)
    }
}
