//! Checks a client's frames before `h2` reads them, since `h2` ends the whole connection for a malformed field.
//!
//! A malformed request is an error of its stream alone (RFC 9113, section 8.1.1). A field block with a malformed field
//! is replaced by a block for which `h2` resets the stream. From then on, `h2` lacks the entries that the block added
//! to the HPACK table, so all later blocks are re-encoded without the table. Until the first malformed field, every
//! byte passes unchanged.

use http::header::{HeaderName, HeaderValue};

use crate::frames::PREFACE;
use crate::hpack::{Decoder, Field, written};

const HEADER_BYTES: usize = 9;
const PAYLOAD_BYTES_MAX: usize = 16_384;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// A field that no request may contain, for which `h2` resets the stream (RFC 9113, section 8.2.2).
const MALFORMED: (&[u8], &[u8]) = (b"connection", b"malformed");
/// The maximum number of held frames of a head. If a client splits a head into more frames, the screen leaves the
/// connection to `h2`.
const FRAMES_MAX: usize = 8;
/// The header of a DATA frame on stream zero, for which `h2` ends the connection.
const BREACH: [u8; HEADER_BYTES] = [0; HEADER_BYTES];
/// The pseudo-header fields of requests (RFC 9113, section 8.3.1; RFC 8441, section 4).
const PSEUDO: [&[u8]; 5] = [b":method", b":scheme", b":authority", b":path", b":protocol"];

/// Screens a client's frames, which may arrive in pieces of any size.
#[derive(Debug)]
pub(crate) struct Screen {
    preface_left: usize,
    /// Remaining bytes of a payload that is not part of a head.
    passed_left: usize,
    /// The received part of a frame that is held until it is complete.
    held: Vec<u8>,
    /// The frames of an incomplete head.
    head: Option<Head>,
    decoder: Decoder,
    fields_bytes_max: usize,
    last_stream: u32,
    is_rewriting: bool,
    /// The treatment of further bytes.
    end: End,
}

/// The treatment of bytes after the screen has given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    None,
    /// The client has violated the framing. All bytes pass, and `h2` reports the error.
    Passes,
    /// The client has violated the framing, and earlier blocks were rewritten. Further bytes are dropped, because `h2`
    /// lacks the entries of the HPACK table that it would need to decode them.
    Drops,
}

#[derive(Debug)]
struct Head {
    /// The frames as received.
    frames: Vec<u8>,
    stream: [u8; 4],
    flags: u8,
    block: Vec<u8>,
    count: usize,
}

impl Screen {
    pub(crate) fn new(head_bytes_max: u32) -> Self {
        Self {
            preface_left: PREFACE.len(),
            passed_left: 0,
            held: Vec::new(),
            head: None,
            decoder: Decoder::new(),
            // `h2` itself refuses larger heads.
            fields_bytes_max: 8 * head_bytes_max as usize,
            last_stream: 0,
            is_rewriting: false,
            end: End::None,
        }
    }

    /// Appends the bytes that `h2` receives instead of the client's next bytes.
    pub(crate) fn pass(&mut self, mut bytes: &[u8], to: &mut Vec<u8>) {
        while !bytes.is_empty() {
            match self.end {
                End::None => {}
                End::Passes => return to.extend_from_slice(bytes),
                End::Drops => return,
            }
            for left in [&mut self.preface_left, &mut self.passed_left] {
                let length = bytes.len().min(*left);
                to.extend_from_slice(&bytes[..length]);
                (*left, bytes) = (*left - length, &bytes[length..]);
            }
            self.hold(&mut bytes, to);
        }
    }

    /// Holds a frame's header, and the whole frame if it belongs to a head.
    fn hold(&mut self, bytes: &mut &[u8], to: &mut Vec<u8>) {
        let wanted = match self.held.first_chunk::<HEADER_BYTES>() {
            None => HEADER_BYTES,
            Some([high, middle, low, ..]) => {
                HEADER_BYTES + u32::from_be_bytes([0, *high, *middle, *low]) as usize
            }
        };
        let length = (wanted - self.held.len()).min(bytes.len());
        self.held.extend_from_slice(&bytes[..length]);
        *bytes = &bytes[length..];
        let Some([high, middle, low, kind, ..]) = self.held.first_chunk::<HEADER_BYTES>() else {
            return;
        };
        let payload = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        let belongs = (self.head.is_some() && *kind == CONTINUATION)
            || (self.head.is_none() && *kind != CONTINUATION);
        if !belongs || payload > PAYLOAD_BYTES_MAX && matches!(*kind, HEADERS | CONTINUATION) {
            self.give_up(to);
        } else if !matches!(*kind, HEADERS | CONTINUATION) {
            self.passed_left = payload;
            to.append(&mut self.held);
        } else if self.held.len() == HEADER_BYTES + payload {
            self.take_frame(to);
        }
    }

    fn take_frame(&mut self, to: &mut Vec<u8>) {
        let frame = std::mem::take(&mut self.held);
        let ([_, _, _, kind, flags, stream @ ..], payload) = frame
            .split_first_chunk::<HEADER_BYTES>()
            .map_or(([0; HEADER_BYTES], &[][..]), |(h, p)| (*h, p));
        let part = if kind == HEADERS { fragment(flags, payload) } else { Some(payload) };
        let is_other = self.head.as_ref().is_some_and(|head| head.stream != stream);
        let Some(part) = part.filter(|_| !is_other) else {
            self.held = frame;
            return self.give_up(to);
        };
        let head = self.head.get_or_insert_with(|| Head {
            frames: Vec::new(),
            stream,
            flags: flags & END_STREAM,
            block: Vec::new(),
            count: 0,
        });
        head.count += 1;
        head.frames.extend_from_slice(&frame);
        head.block.extend_from_slice(part);
        if flags & END_HEADERS != 0 {
            self.pass_head(to);
        } else if head.count > FRAMES_MAX {
            self.give_up(to);
        }
    }

    /// Appends a complete head to `to`: as received, or rewritten if this head or an earlier one was malformed.
    fn pass_head(&mut self, to: &mut Vec<u8>) {
        let Some(head) = self.head.take() else { return };
        let Ok(fields) = self.decoder.fields(&head.block, self.fields_bytes_max) else {
            self.head = Some(head);
            return self.give_up(to);
        };
        let stream = u32::from_be_bytes(head.stream) & 0x7fff_ffff;
        let is_trailer = stream <= self.last_stream;
        self.last_stream = self.last_stream.max(stream);
        if is_malformed(&fields, is_trailer) {
            self.is_rewriting = true;
            let (name, value) = MALFORMED;
            write_head(&head, &written(&[(name.to_vec(), value.to_vec())]), to);
        } else if self.is_rewriting {
            write_head(&head, &written(&fields), to);
        } else {
            to.extend_from_slice(&head.frames);
        }
    }

    /// Stops screening, and leaves the connection to `h2`.
    fn give_up(&mut self, to: &mut Vec<u8>) {
        if self.is_rewriting {
            (self.head, self.held, self.end) = (None, Vec::new(), End::Drops);
            return to.extend_from_slice(&BREACH);
        }
        self.end = End::Passes;
        to.extend(self.head.take().into_iter().flat_map(|head| head.frames));
        to.append(&mut self.held);
    }
}

/// Returns the part of a field block in a HEADERS frame, or `None` if the padding is too long.
fn fragment(flags: u8, payload: &[u8]) -> Option<&[u8]> {
    let (padding, rest) = match payload.split_first() {
        Some((padding, rest)) if flags & PADDED != 0 => (usize::from(*padding), rest),
        None if flags & PADDED != 0 => return None,
        _ => (0, payload),
    };
    let rest = if flags & PRIORITY != 0 { rest.get(5..)? } else { rest };
    rest.get(..rest.len().checked_sub(padding)?)
}

/// Whether a request or its trailers have a field that makes them malformed and that `h2` cannot parse.
fn is_malformed(fields: &[Field], is_trailer: bool) -> bool {
    fields.iter().any(|(name, value)| match name.first() {
        Some(b':') => {
            let is_text = std::str::from_utf8(value).is_ok();
            let is_method = name != b":method" || http::Method::from_bytes(value).is_ok();
            is_trailer || !PSEUDO.contains(&name.as_slice()) || !is_text || !is_method
        }
        _ => HeaderName::from_lowercase(name).is_err() || HeaderValue::from_bytes(value).is_err(),
    })
}

fn write_head(head: &Head, block: &[u8], to: &mut Vec<u8>) {
    let mut pieces = block.chunks(PAYLOAD_BYTES_MAX).peekable();
    let mut kind = (HEADERS, head.flags);
    while let Some(piece) = pieces.next() {
        let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        let [_, _, high, middle, low] = (piece.len() as u64).to_be_bytes()[3..] else { return };
        to.extend_from_slice(&[high, middle, low, kind.0, kind.1 | end]);
        to.extend_from_slice(&head.stream);
        to.extend_from_slice(piece);
        kind = (CONTINUATION, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::MalformedBlock;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let [.., middle, low] = payload.len().to_be_bytes();
        [&[0, middle, low, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    fn passed(bytes: &[u8], size: usize) -> Vec<u8> {
        let (mut screen, mut to) = (Screen::new(1 << 16), Vec::new());
        bytes.chunks(size).for_each(|piece| screen.pass(piece, &mut to));
        to
    }

    /// Returns the fields of each head that `h2` receives.
    fn heads(mut bytes: &[u8]) -> Vec<Result<Vec<Field>, MalformedBlock>> {
        let (mut decoder, mut heads) = (Decoder::new(), Vec::new());
        bytes = &bytes[PREFACE.len()..];
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
            let length = usize::from(header[1]) << 8 | usize::from(header[2]);
            if header[3] == HEADERS {
                heads.push(decoder.fields(&rest[..length], 1 << 16));
            }
            bytes = &rest[length..];
        }
        heads
    }

    const ALL: u8 = END_HEADERS | END_STREAM;

    #[test]
    fn well_formed_frames_pass_unchanged() {
        let parts = [
            frame(4, 0, 0, &[]),
            frame(HEADERS, END_STREAM, 1, &[0x82, 0x86]),
            frame(CONTINUATION, END_HEADERS, 1, &[0x84, 0x40, 1, b'a', 1, b'b']),
            frame(HEADERS, ALL | PADDED | PRIORITY, 3, &[1, 0, 0, 0, 0, 7, 0x82, 0xbe, 0]),
            frame(0, 1, 5, &[9; 300]),
        ];
        let bytes = [PREFACE, &parts.concat()].concat();
        for size in [1, 2, 9, 10, 1000] {
            assert_eq!(passed(&bytes, size), bytes, "{size}");
        }
    }

    #[test]
    fn a_malformed_field_costs_its_stream_and_the_table_stays_right() {
        let own = |name: &[u8], value: &[u8]| {
            [&[0x82, 0x40, name.len() as u8], name, &[value.len() as u8], value].concat()
        };
        for (name, value) in [(&b"Abc"[..], &b"c"[..]), (b"a", b"b\nc"), (b"", b"c"), (b":x", b"c")]
        {
            let bytes = [
                PREFACE,
                &frame(HEADERS, ALL, 1, &own(b"one", b"1")),
                &frame(HEADERS, ALL, 3, &own(name, value)),
                &frame(HEADERS, ALL, 5, &own(b"two", b"2")),
                // The two fields that were added to the table, and the field between them.
                &frame(HEADERS, ALL, 7, &[0x82, 0xc0, 0xbe]),
                &frame(HEADERS, ALL, 9, &[0x82, 0xbf]),
            ]
            .concat();
            let field = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
            let get = field(b":method", b"GET");
            let malformed = vec![field(MALFORMED.0, MALFORMED.1)];
            let expected = [
                vec![get.clone(), field(b"one", b"1")],
                malformed.clone(),
                vec![get.clone(), field(b"two", b"2")],
                vec![get.clone(), field(b"one", b"1"), field(b"two", b"2")],
                malformed,
            ];
            assert_eq!(heads(&passed(&bytes, 7)), expected.map(Ok), "{name:?}");
        }
    }

    #[test]
    fn trailers_have_no_pseudo_fields() {
        let body = frame(0, 0, 1, b"body");
        let bytes = [
            PREFACE,
            &frame(HEADERS, END_HEADERS, 1, &[0x83, 0x86, 0x84]),
            &body,
            &frame(HEADERS, ALL, 1, &[0x84]),
        ]
        .concat();
        let malformed = (MALFORMED.0.to_vec(), MALFORMED.1.to_vec());
        assert_eq!(heads(&passed(&bytes, 5))[1], Ok(vec![malformed]));
    }

    #[test]
    fn nothing_passes_once_h2_lacks_the_table() {
        let bad = frame(HEADERS, ALL, 1, &[0x40, 1, b'A', 1, b'b']);
        let damaged = frame(HEADERS, ALL, 3, &[0x80]);
        let before = [PREFACE, &bad].concat();
        let bytes = [&before, &damaged[..], &frame(HEADERS, ALL, 5, &[0x82])].concat();
        let expected = [&passed(&before, 99)[..], &BREACH].concat();
        assert_eq!(passed(&bytes, 3), expected);
        // With this level, `h2` logs the reason.
        let alone = [PREFACE, &damaged].concat();
        assert_eq!(passed(&alone, 3), alone);
    }
}
