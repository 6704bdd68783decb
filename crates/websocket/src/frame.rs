//! Heads of frames, and masks (RFC 6455, section 5.2).

use crate::close::Fault;

/// The maximum payload of a control frame in bytes.
pub(crate) const CONTROL_BYTES_MAX: usize = 125;

/// The bit of a head's first byte that marks the last frame of a message.
const FIN: u8 = 0x80;

/// The bit of a head's first byte that marks a compressed message (RFC 7692).
const RSV1: u8 = 0x40;

/// The unused bits of a head's first byte.
const RSV2_3: u8 = 0x30;

/// The bit of a head's second byte that marks a masked payload.
const MASKED: u8 = 0x80;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// A further part of the current message.
    Continuation = 0,
    /// A text, which is UTF-8.
    Text = 1,
    /// Arbitrary bytes.
    Binary = 2,
    /// The end of the socket.
    Close = 8,
    /// A request for a pong.
    Ping = 9,
    /// The response to a ping.
    Pong = 10,
}

impl Opcode {
    fn of(bits: u8) -> Option<Self> {
        let all =
            [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong];
        all.into_iter().find(|opcode| *opcode as u8 == bits)
    }

    /// Whether the frame may appear between the frames of a message.
    pub(crate) fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// The head of a client's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) opcode: Opcode,
    pub(crate) is_last: bool,
    pub(crate) is_compressed: bool,
    pub(crate) length: u64,
    pub(crate) mask: [u8; 4],
}

impl FrameHead {
    /// Parses the head at the start of `bytes`. Returns the head and its length, or `None` if it is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Fault> {
        let &[first, second, ..] = bytes else { return Ok(None) };
        if first & RSV2_3 != 0 {
            return Err(Fault::protocol("a reserved bit is set"));
        }
        let opcode = Opcode::of(first & 0x0f).ok_or(Fault::protocol("the opcode is reserved"))?;
        if second & MASKED == 0 {
            return Err(Fault::protocol("a client's frame is not masked"));
        }
        let (is_last, is_compressed) = (first & FIN != 0, first & RSV1 != 0);
        let short = second & !MASKED;
        if opcode.is_control() && (!is_last || is_compressed) {
            return Err(Fault::protocol("a control frame is fragmented or compressed"));
        }
        if opcode.is_control() && usize::from(short) > CONTROL_BYTES_MAX {
            return Err(Fault::protocol("a control frame is too long"));
        }
        let Some((length, rest)) = parse_length(short, &bytes[2..])? else { return Ok(None) };
        let Some(mask) = rest.first_chunk::<4>() else { return Ok(None) };
        let head = Self { opcode, is_last, is_compressed, length, mask: *mask };
        Ok(Some((head, bytes.len() - rest.len() + 4)))
    }
}

/// Parses a payload's length. Returns the length and the remaining bytes.
fn parse_length(short: u8, bytes: &[u8]) -> Result<Option<(u64, &[u8])>, Fault> {
    let (length, least, rest) = match short {
        126 => {
            let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return Ok(None) };
            (u64::from(u16::from_be_bytes(*length)), 126, rest)
        }
        127 => {
            let Some((length, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
            (u64::from_be_bytes(*length), 1 << 16, rest)
        }
        length => (u64::from(length), 0, bytes),
    };
    if length < least || length >> 63 != 0 {
        return Err(Fault::protocol("a length is not in its shortest form"));
    }
    Ok(Some((length, rest)))
}

/// Appends the head of a server's frame to `out`.
pub(crate) fn write_head(out: &mut Vec<u8>, opcode: Opcode, is_compressed: bool, length: usize) {
    out.push(FIN | if is_compressed { RSV1 } else { 0 } | opcode as u8);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ ..126), _) => out.push(short),
        (_, Ok(length)) => {
            out.push(126);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// Removes the mask from `bytes`, which start at `offset` of the payload.
pub(crate) fn unmask(bytes: &mut [u8], mut mask: [u8; 4], offset: u64) {
    // The remainder is below 4.
    mask.rotate_left(usize::try_from(offset % 4).unwrap_or(0));
    let word = u32::from_ne_bytes(mask);
    let (words, rest) = bytes.as_chunks_mut::<4>();
    for chunk in words {
        *chunk = (u32::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_wherever_its_bytes_are_cut() {
        for (length, form) in [(5_u64, 0), (125, 0), (126, 2), (65_535, 2), (65_536, 8)] {
            let mut bytes = vec![0x81];
            match form {
                0 => bytes.push(0x80 | u8::try_from(length).unwrap()),
                2 => bytes.extend([vec![0xfe], length.to_be_bytes()[6..].to_vec()].concat()),
                _ => bytes.extend([vec![0xff], length.to_be_bytes().to_vec()].concat()),
            }
            bytes.extend([1, 2, 3, 4]);
            for cut in 0..bytes.len() {
                assert_eq!(FrameHead::parse(&bytes[..cut]), Ok(None), "{length} cut at {cut}");
            }
            let (head, used) = FrameHead::parse(&bytes).unwrap().unwrap();
            assert_eq!((head.length, head.mask, used), (length, [1, 2, 3, 4], bytes.len()));
        }
    }

    #[test]
    fn a_mask_is_removed_at_any_offset() {
        let plain: Vec<u8> = (0..=255).collect();
        let mask = [7, 99, 200, 1];
        for cut in 0..20 {
            let mut bytes = plain.clone();
            unmask(&mut bytes, mask, 0);
            let (one, two) = bytes.split_at_mut(cut);
            unmask(one, mask, 0);
            unmask(two, mask, cut as u64);
            assert_eq!(bytes, plain);
        }
    }
}
