//! Frames of HTTP/2 (RFC 9113, section 4).

use super::fields::MalformedBytes;

/// The longest payload of a frame, for both directions: the client neither allows nor sends more.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16_384;
/// The length of a frame's head.
const HEAD_BYTES: usize = 9;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 0x1;
/// A flag of SETTINGS and PING.
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITY: u8 = 0x20;

/// The head of a frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHead {
    fn parse(bytes: &[u8; HEAD_BYTES]) -> Self {
        let [high, middle, low, kind, flags, stream @ ..] = *bytes;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        Self { length, kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff }
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A reader of frames from pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// The payload so far; of DATA only the first byte, which is the length of the padding.
    payload: Vec<u8>,
    /// The number of payload bytes received.
    came: usize,
}

impl FrameReader {
    /// Reads up to the end of a frame, or all bytes.
    pub(crate) fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<FrameHead>, MalformedBytes> {
        if self.head_bytes < HEAD_BYTES {
            let piece = take(bytes, HEAD_BYTES - self.head_bytes);
            self.head[self.head_bytes..][..piece.len()].copy_from_slice(piece);
            self.head_bytes += piece.len();
            if self.head_bytes < HEAD_BYTES {
                return Ok(None);
            }
            self.came = 0;
            self.payload.clear();
        }
        let head = FrameHead::parse(&self.head);
        if head.length > PAYLOAD_BYTES_MAX {
            return Err(MalformedBytes);
        }
        let piece = take(bytes, head.length - self.came);
        let kept = if head.kind == DATA { 1 - self.payload.len().min(1) } else { piece.len() };
        self.payload.extend_from_slice(&piece[..kept.min(piece.len())]);
        self.came += piece.len();
        if self.came < head.length {
            return Ok(None);
        }
        self.head_bytes = 0;
        Ok(Some(head))
    }

    /// The payload of the latest frame; of DATA only the first byte.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Whether a frame is incomplete.
    pub(crate) fn is_within(&self) -> bool {
        self.head_bytes > 0
    }
}

fn take<'a>(bytes: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (piece, rest) = bytes.split_at(most.min(bytes.len()));
    *bytes = rest;
    piece
}

/// Encodes a frame.
pub(crate) fn write(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    to.extend_from_slice(&length.to_be_bytes()[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
    to.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_in_pieces_of_any_size() {
        let mut bytes = Vec::new();
        write(&mut bytes, HEADERS, END_HEADERS, 1, b"fields");
        write(&mut bytes, SETTINGS, ACK, 0, b"");
        write(&mut bytes, DATA, END_STREAM, 1, b"abc");
        for size in 1..=bytes.len() {
            let (mut reader, mut seen) = (FrameReader::default(), Vec::new());
            for mut piece in bytes.chunks(size) {
                while !piece.is_empty() {
                    if let Some(head) = reader.read(&mut piece).expect("they are frames") {
                        seen.push((head.kind, head.stream, reader.payload().to_vec()));
                    }
                }
            }
            let expected = [(HEADERS, 1, &b"fields"[..]), (SETTINGS, 0, b""), (DATA, 1, b"a")];
            assert_eq!(seen, expected.map(|(kind, stream, bytes)| (kind, stream, bytes.to_vec())));
            assert!(!reader.is_within());
        }
    }

    #[test]
    fn a_frame_longer_than_was_allowed_is_refused() {
        let mut bytes = &b"\x00\x40\x01\x00\x00\x00\x00\x00\x01"[..];
        assert_eq!(FrameReader::default().read(&mut bytes), Err(MalformedBytes));
    }
}
