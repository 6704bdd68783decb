//! Encodes messages to frames.

use crate::close::CloseCode;
use crate::deflate::Deflater;
use crate::frame::{CONTROL_BYTES_MAX, Opcode, write_head};

/// Shorter messages are not compressed, since compression would make them longer.
const COMPRESSED_BYTES_MIN: usize = 128;

/// Encodes a frame of the server: a whole message or a control frame.
#[must_use]
pub fn frame(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    write(opcode, false, payload)
}

/// Encodes a whole message, compressed if compression was negotiated and makes the message shorter.
#[must_use]
pub fn message(is_text: bool, payload: &[u8], deflater: Option<&mut Deflater>) -> Vec<u8> {
    let opcode = if is_text { Opcode::Text } else { Opcode::Binary };
    let deflater = deflater.filter(|_| payload.len() >= COMPRESSED_BYTES_MIN);
    let compressed = deflater.and_then(|deflater| deflater.deflate(payload));
    match compressed.filter(|compressed| compressed.len() < payload.len()) {
        Some(compressed) => write(opcode, true, &compressed),
        None => write(opcode, false, payload),
    }
}

/// Encodes a close frame. A code that must not be sent is omitted; a long reason is cut at a character boundary.
#[must_use]
pub fn close(code: CloseCode, reason: &str) -> Vec<u8> {
    if !code.may_be_sent() {
        return frame(Opcode::Close, &[]);
    }
    let mut payload = code.number().to_be_bytes().to_vec();
    payload
        .extend_from_slice(&reason.as_bytes()[..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)]);
    frame(Opcode::Close, &payload)
}

fn write(opcode: Opcode, is_compressed: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 10);
    write_head(&mut out, opcode, is_compressed, payload.len());
    out.extend_from_slice(payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_has_its_shortest_form() {
        for (length, head) in [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)] {
            assert_eq!(frame(Opcode::Binary, &vec![0; length]).len(), length + head);
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_two_characters() {
        let bytes = close(CloseCode::NORMAL, &"é".repeat(100));
        assert_eq!((bytes[1], bytes.len()), (124, 126));
        assert!(std::str::from_utf8(&bytes[4..]).is_ok());
        assert_eq!(close(CloseCode::ABNORMAL, "secret"), [0x88, 0]);
    }
}
