//! Frames of WebSocket (RFC 6455, section 5): messages out of a server's bytes, and frames of a client.

/// The longest message that is read.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// The longest payload of a frame that controls the connection.
const CONTROL_BYTES_MAX: u64 = 125;
/// The longest head of a server's frame.
const HEAD_BYTES_MAX: usize = 10;
/// With what a client's bytes are masked. It need not be hard to guess: no proxy is deceived by a measurement.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

const CONTINUED: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// The server's bytes are no frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incoming {
    Message,
    Ping,
    Close,
    /// A pong, or a part of a message.
    Nothing,
}

/// Reads frames, whatever the pieces in which they come.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// How many bytes of the payload are still to come.
    left: u64,
    message: Vec<u8>,
    /// Whether more frames of the message are to come.
    is_continued: bool,
    control: Vec<u8>,
}

impl FrameReader {
    /// Takes bytes up to the end of a frame, or all of them.
    pub(crate) fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<Incoming>, Malformed> {
        if !self.has_head() {
            while !self.has_head() {
                let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
                self.head[self.head_bytes] = *first;
                self.head_bytes += 1;
                *bytes = rest;
            }
            self.begin()?;
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let (piece, rest) = bytes.split_at(most);
        *bytes = rest;
        self.left -= most as u64;
        let is_control = self.opcode() >= CLOSE;
        let whole = if is_control { &mut self.control } else { &mut self.message };
        whole.extend_from_slice(piece);
        Ok((self.left == 0).then(|| self.end()))
    }

    /// The message that has just come to its end.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }

    /// What came with a ping or a close.
    pub(crate) fn control(&self) -> &[u8] {
        &self.control
    }

    /// Whether a message has begun that did not end.
    pub(crate) fn is_within(&self) -> bool {
        self.head_bytes > 0 || self.is_continued
    }

    fn opcode(&self) -> u8 {
        self.head[0] & 0x0f
    }

    fn has_head(&self) -> bool {
        let needed = match self.head[1] {
            126 => 4,
            127 => 10,
            _ => 2,
        };
        self.head_bytes >= 2 && self.head_bytes >= needed
    }

    /// The head of a frame is there.
    fn begin(&mut self) -> Result<(), Malformed> {
        let (bits, opcode) = (self.head[0] & 0x70, self.opcode());
        let is_known = matches!(opcode, 0..=2 | CLOSE..=PONG);
        if bits != 0 || !is_known || self.head[1] & MASKED != 0 {
            return Err(Malformed);
        }
        self.left = match self.head[1] {
            126 => u64::from(u16::from_be_bytes([self.head[2], self.head[3]])),
            127 => self.head[2..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
            short => u64::from(short),
        };
        let is_final = self.head[0] & FINAL != 0;
        if opcode >= CLOSE {
            self.control.clear();
            let is_short = is_final && self.left <= CONTROL_BYTES_MAX;
            return is_short.then_some(()).ok_or(Malformed);
        }
        if (opcode == CONTINUED) != self.is_continued {
            return Err(Malformed);
        }
        if opcode != CONTINUED {
            self.message.clear();
        }
        self.is_continued = !is_final;
        let bytes = self.left.saturating_add(self.message.len() as u64);
        (bytes <= MESSAGE_BYTES_MAX).then_some(()).ok_or(Malformed)
    }

    fn end(&mut self) -> Incoming {
        (self.head_bytes, self.head[1]) = (0, 0);
        match self.opcode() {
            CLOSE => Incoming::Close,
            PING => Incoming::Ping,
            PONG => Incoming::Nothing,
            _ if self.is_continued => Incoming::Nothing,
            _ => Incoming::Message,
        }
    }
}

/// Writes a frame that is a whole message, or controls the connection.
pub(crate) fn write(to: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    to.push(FINAL | opcode);
    let length = payload.len() as u64;
    match u8::try_from(length) {
        Ok(short @ ..126) => to.push(MASKED | short),
        _ => match u16::try_from(length) {
            Ok(length) => {
                to.push(MASKED | 126);
                to.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                to.push(MASKED | 127);
                to.extend_from_slice(&length.to_be_bytes());
            }
        },
    }
    to.extend_from_slice(&MASK);
    to.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a server's bytes in pieces of a size.
    fn read(bytes: &[u8], size: usize) -> Result<Vec<(Incoming, Vec<u8>)>, Malformed> {
        let (mut reader, mut seen) = (FrameReader::default(), Vec::new());
        for mut piece in bytes.chunks(size) {
            while !piece.is_empty() {
                match reader.read(&mut piece)? {
                    Some(Incoming::Message) => {
                        seen.push((Incoming::Message, reader.message().to_vec()));
                    }
                    Some(other) => seen.push((other, reader.control().to_vec())),
                    None => {}
                }
            }
        }
        Ok(seen)
    }

    /// RFC 6455, section 5.7, and a ping within a message of two frames.
    #[test]
    fn messages_are_read_in_pieces_of_any_size() {
        let long = [&b"\x82\x7e\x01\x00"[..], &[7; 256]].concat();
        let longer = [&b"\x82\x7f\0\0\0\0\0\x01\0\0"[..], &[7; 65_536]].concat();
        let bytes =
            [b"\x81\x05Hello\x01\x03Hel\x89\x01p\x80\x02lo\x81\x00\x88\x00", &long[..], &longer]
                .concat();
        let message = |bytes: &[u8]| (Incoming::Message, bytes.to_vec());
        let expected = [
            message(b"Hello"),
            (Incoming::Nothing, vec![]),
            (Incoming::Ping, b"p".to_vec()),
            message(b"Hello"),
            message(b""),
            (Incoming::Close, vec![]),
            message(&[7; 256]),
            message(&[7; 65_536]),
        ];
        for size in [1, 2, 3, 5, 64, bytes.len()] {
            let seen = read(&bytes, size).expect("they are frames");
            assert!(seen.iter().map(|one| one.0).eq(expected.iter().map(|one| one.0)), "{size}");
            let messages = |all: &[(Incoming, Vec<u8>)]| -> Vec<_> {
                all.iter().filter(|one| one.0 == Incoming::Message).cloned().collect()
            };
            assert_eq!(messages(&seen), messages(&expected), "{size}");
        }
    }

    #[test]
    fn what_no_server_may_send_is_refused() {
        for bytes in [
            &b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"[..],
            b"\xc1\x00",
            b"\x83\x00",
            b"\x80\x00",
            b"\x01\x00\x81\x00",
            b"\x09\x00",
            b"\x89\x7e\x00\x7e",
            b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(read(bytes, bytes.len()), Err(Malformed), "{bytes:?}");
        }
    }

    /// RFC 6455, section 5.7: "Hello", masked.
    #[test]
    fn a_clients_frame_is_masked() {
        let mut bytes = Vec::new();
        write(&mut bytes, TEXT, b"Hello");
        assert_eq!(bytes, b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
    }
}
