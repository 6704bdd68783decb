//! The TLS state of a connection, at either end.

use std::io::{self, Read, Write};
use std::ops::Range;

use rustls::Connection;

use crate::failure::{Peer, reason};

/// The maximum size of an encrypted record with its header, in bytes.
pub const RECORD_BYTES_MAX: usize = (16 << 10) + 2048 + 5;

/// The number of plain bytes that may be encrypted before everything must be sent: four records.
const SEALED_BYTES_MAX: usize = 64 << 10;

/// The name of HTTP/2 in ALPN.
pub(crate) const HTTP2: &[u8] = b"h2";

/// The name in ALPN by which an authority asks for the answer to a challenge (RFC 8737, 6.2).
pub(crate) const ACME: &[u8] = b"acme-tls/1";

/// The first byte of any record: change of cipher, alert, handshake or data.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 0x14..=0x17;

/// A session with a client or with a server. It buffers at most a partial record of the received bytes, and the
/// encrypted bytes that are not yet sent.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    has_begun: bool,
    is_plain: bool,
    /// Whether the peer has sent its closing alert.
    is_over: bool,
    failure: Option<rustls::Error>,
    /// The number of plain bytes encrypted since the last time when everything was sent, and the number of encrypted
    /// bytes sent since then.
    sealed: usize,
    sent: usize,
}

/// The reason why bytes cannot be decrypted. The next [`Session::send`] sends the corresponding alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// The peer does not speak TLS.
    Plain,
    /// The peer violates the protocol, or has no valid certificate.
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

    /// Decrypts the bytes in a range of `buffer`, writes the plain bytes to the start of the buffer, and returns their
    /// number.
    ///
    /// The range must start at [`RECORD_BYTES_MAX`] or later, and end within the buffer. So the plain bytes never
    /// overwrite bytes that were not read yet.
    ///
    /// # Errors
    /// The peer violates the protocol.
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
        // An error means that no more plain bytes are available, or that the peer has closed its end.
        while let Ok(read @ 1..) = self.connection.reader().read(&mut to[length..]) {
            length += read;
        }
        length
    }

    /// Encrypts bytes, and returns their number. The remaining bytes have to wait until everything was sent.
    pub fn seal(&mut self, plain: &[u8]) -> usize {
        let most = plain.len().min(self.room_bytes());
        let sealed = self.connection.writer().write(&plain[..most]).unwrap_or(0);
        self.sealed += sealed;
        sealed
    }

    /// Sends the encrypted bytes.
    ///
    /// # Errors
    /// Any error of `socket`, such as `WouldBlock`.
    pub fn send(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            self.sent += self.connection.write_tls(socket)?;
        }
        (self.sealed, self.sent) = (0, 0);
        Ok(())
    }

    /// Queues the closing alert, which proves to the peer that no byte was cut off.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Whether encrypted bytes wait to be sent.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Returns the number of plain bytes that are encrypted and not yet sent, within a few percent.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.sealed.saturating_sub(self.sent)
    }

    /// Returns the number of plain bytes that may be encrypted before everything must be sent.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        SEALED_BYTES_MAX.saturating_sub(self.sealed)
    }

    /// Whether the peer's first bytes were not TLS.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Describes why the session failed. Returns `None` if it has not failed, or if only the connection broke.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let peer = match self.connection {
            Connection::Client(_) => Peer::Server,
            Connection::Server(_) => Peer::Client,
        };
        self.failure.as_ref().map(|error| reason(error, peer))
    }

    /// Describes why the peer's certificate was refused, if that is why the session failed.
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

    /// Whether the handshake is in progress.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the handshake has negotiated HTTP/2.
    #[must_use]
    pub fn speaks_http2(&self) -> bool {
        self.connection.alpn_protocol() == Some(HTTP2)
    }

    /// Whether the peer is an authority that has seen the answer to its challenge, and wants nothing else.
    #[must_use]
    pub fn is_acme_challenge(&self) -> bool {
        self.connection.alpn_protocol() == Some(ACME)
    }

    /// Whether the peer has announced that it sends no more bytes.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the client's certificate in DER, if the client has presented one.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        let certificates = self.connection.peer_certificates()?;
        certificates.first().map(AsRef::as_ref)
    }
}
