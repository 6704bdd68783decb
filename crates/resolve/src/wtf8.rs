//! WTF-8, a lossless encoding of Windows names as bytes.
//!
//! A name on Windows is any sequence of 16-bit units and need not be valid UTF-16. WTF-8 extends UTF-8 by
//! encoding a lone surrogate in three bytes (simonsapin.github.io/wtf-8).

/// Encodes `units`.
#[must_use]
pub fn from_wide(units: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(units.len());
    for decoded in char::decode_utf16(units.iter().copied()) {
        match decoded {
            Ok(character) => {
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Err(error) => push_surrogate(&mut bytes, error.unpaired_surrogate()),
        }
    }
    bytes
}

fn push_surrogate(bytes: &mut Vec<u8>, unit: u16) {
    let [high, low] = unit.to_be_bytes();
    bytes.extend([0xED, 0x80 | (high & 0x0F) << 2 | low >> 6, 0x80 | (low & 0x3F)]);
}

/// Decodes `bytes`. Invalid WTF-8 becomes U+FFFD, as is usual on Windows.
#[must_use]
pub fn to_wide(bytes: &[u8]) -> Vec<u16> {
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        let (text, after) = match std::str::from_utf8(rest) {
            Ok(text) => (text, &[][..]),
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                (std::str::from_utf8(valid).unwrap_or_default(), after)
            }
        };
        units.extend(text.encode_utf16());
        rest = push_malformed(&mut units, after);
    }
    units
}

/// Decodes a surrogate, or one invalid byte, at the start of `bytes`.
fn push_malformed<'a>(units: &mut Vec<u16>, bytes: &'a [u8]) -> &'a [u8] {
    match bytes {
        [] => bytes,
        [0xED, middle @ 0xA0..=0xBF, last @ 0x80..=0xBF, rest @ ..] => {
            let low = u16::from(*middle & 0x3F) << 6 | u16::from(*last & 0x3F);
            units.push(0xD000 | low);
            rest
        }
        [_, rest @ ..] => {
            units.push(0xFFFD);
            rest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pair_is_four_bytes_and_a_lone_surrogate_three() {
        assert_eq!(from_wide(&[0xD83D, 0xDE00]), "😀".as_bytes());
        assert_eq!(from_wide(&[0xDE00, 0xD83D]), [0xED, 0xB8, 0x80, 0xED, 0xA0, 0xBD]);
        assert_eq!(to_wide(b"a\xED\xA0\xBDb"), [0x61, 0xD83D, 0x62]);
    }

    #[test]
    fn bytes_that_are_not_wtf_8_are_replaced() {
        assert_eq!(to_wide(b"a\xFFb\xC3"), [0x61, 0xFFFD, 0x62, 0xFFFD]);
    }

    proptest! {
        #[test]
        fn units_come_back_as_they_were(
            units in prop::collection::vec(prop_oneof![any::<u16>(), 0xD7F0_u16..0xE010], 0..12)
        ) {
            prop_assert_eq!(to_wide(&from_wide(&units)), units);
        }
    }
}
