//! Frames of WebSocket (RFC 6455, section 5): messages from a server, and frames of a client.

/// The longest message that is read.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// The longest payload of a control frame.
const CONTROL_BYTES_MAX: u64 = 125;
/// The longest head of a server's frame.
const HEAD_BYTES_MAX: usize = 10;
/// The mask of the client's frames. It may be predictable, since a measurement need not protect proxies.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

const CONTINUED: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// The server's bytes are not frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedBytes;

/// A complete frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncomingFrame {
    Message,
    Ping,
    Close,
    /// A pong, or part of a message.
    Nothing,
}

/// A reader of frames from pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// The number of payload bytes to come.
    left: u64,
    message: Vec<u8>,
    /// Whether the message continues in another frame.
    is_continued: bool,
    control: Vec<u8>,
}

impl FrameReader {
    /// Reads up to the end of a frame, or all bytes.
    pub(crate) fn read(
        &mut self,
        bytes: &mut &[u8],
    ) -> Result<Option<IncomingFrame>, MalformedBytes> {
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

    /// The latest complete message.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }

    /// The payload of the latest ping or close.
    pub(crate) fn control(&self) -> &[u8] {
        &self.control
    }

    /// Whether a message is incomplete.
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

    /// Interprets the head of a frame.
    fn begin(&mut self) -> Result<(), MalformedBytes> {
        let (bits, opcode) = (self.head[0] & 0x70, self.opcode());
        let is_known = matches!(opcode, 0..=2 | CLOSE..=PONG);
        if bits != 0 || !is_known || self.head[1] & MASKED != 0 {
            return Err(MalformedBytes);
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
            return is_short.then_some(()).ok_or(MalformedBytes);
        }
        if (opcode == CONTINUED) != self.is_continued {
            return Err(MalformedBytes);
        }
        if opcode != CONTINUED {
            self.message.clear();
        }
        self.is_continued = !is_final;
        let bytes = self.left.saturating_add(self.message.len() as u64);
        (bytes <= MESSAGE_BYTES_MAX).then_some(()).ok_or(MalformedBytes)
    }

    fn end(&mut self) -> IncomingFrame {
        (self.head_bytes, self.head[1]) = (0, 0);
        match self.opcode() {
            CLOSE => IncomingFrame::Close,
            PING => IncomingFrame::Ping,
            PONG => IncomingFrame::Nothing,
            _ if self.is_continued => IncomingFrame::Nothing,
            _ => IncomingFrame::Message,
        }
    }
}

/// Encodes a control frame, or a whole message as one frame.
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

    /// Reads a server's bytes in pieces of the given size.
    fn read(bytes: &[u8], size: usize) -> Result<Vec<(IncomingFrame, Vec<u8>)>, MalformedBytes> {
        let (mut reader, mut seen) = (FrameReader::default(), Vec::new());
        for mut piece in bytes.chunks(size) {
            while !piece.is_empty() {
                match reader.read(&mut piece)? {
                    Some(IncomingFrame::Message) => {
                        seen.push((IncomingFrame::Message, reader.message().to_vec()));
                    }
                    Some(other) => seen.push((other, reader.control().to_vec())),
                    None => {}
                }
            }
        }
        Ok(seen)
    }

    /// RFC 6455, section 5.7, and a ping inside a message of two frames.
    #[test]
    fn messages_are_read_in_pieces_of_any_size() {
        let long = [&b"\x82\x7e\x01\x00"[..], &[7; 256]].concat();
        let longer = [&b"\x82\x7f\0\0\0\0\0\x01\0\0"[..], &[7; 65_536]].concat();
        let bytes =
            [b"\x81\x05Hello\x01\x03Hel\x89\x01p\x80\x02lo\x81\x00\x88\x00", &long[..], &longer]
                .concat();
        let message = |bytes: &[u8]| (IncomingFrame::Message, bytes.to_vec());
        let expected = [
            message(b"Hello"),
            (IncomingFrame::Nothing, vec![]),
            (IncomingFrame::Ping, b"p".to_vec()),
            message(b"Hello"),
            message(b""),
            (IncomingFrame::Close, vec![]),
            message(&[7; 256]),
            message(&[7; 65_536]),
        ];
        for size in [1, 2, 3, 5, 64, bytes.len()] {
            let seen = read(&bytes, size).expect("they are frames");
            assert!(seen.iter().map(|one| one.0).eq(expected.iter().map(|one| one.0)), "{size}");
            let messages = |all: &[(IncomingFrame, Vec<u8>)]| -> Vec<_> {
                all.iter().filter(|one| one.0 == IncomingFrame::Message).cloned().collect()
            };
            assert_eq!(messages(&seen), messages(&expected), "{size}");
        }
    }

    #[test]
    fn frames_that_no_server_may_send_are_refused() {
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
            assert_eq!(read(bytes, bytes.len()), Err(MalformedBytes), "{bytes:?}");
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
