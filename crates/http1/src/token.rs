//! Classes of bytes as defined in RFC 9110 and RFC 3986.

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const NAME: u8 = 4;
const TARGET: u8 = 8;

/// The classes of each byte, as a bit set.
static CLASSES: [u8; 256] = classes();

/// Whether the byte may appear in a token (RFC 9110, section 5.6.2), such as a field name or a method.
pub(crate) fn is_token(byte: u8) -> bool {
    has(byte, TOKEN)
}

/// Whether the byte may appear in a field value (RFC 9110, section 5.5): tab, space, visible ASCII or non-ASCII.
pub(crate) fn is_value(byte: u8) -> bool {
    has(byte, VALUE)
}

/// Whether the byte may appear in a host name (RFC 3986, section 3.2.2): unreserved, a sub-delimiter, or part of an
/// escape.
pub(crate) fn is_host_name(byte: u8) -> bool {
    has(byte, NAME)
}

/// Whether the byte may appear in a request target: visible ASCII or non-ASCII, except `#`, which would start a
/// fragment.
pub(crate) fn is_target(byte: u8) -> bool {
    has(byte, TARGET)
}

/// Whether all bytes may appear in a field value. Checks eight bytes at once.
pub(crate) fn are_values(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks();
    let is_sound = |word: &[u8; 8]| {
        is_visible(u64::from_le_bytes(*word)) || word.iter().all(|byte| is_value(*byte))
    };
    words.iter().all(is_sound) && rest.iter().all(|byte| is_value(*byte))
}

/// Whether none of the eight bytes is a control character, including tab.
fn is_visible(word: u64) -> bool {
    const ONES: u64 = u64::MAX / 0xFF;
    /// The highest bit of each byte.
    const HIGH: u64 = ONES * 0x80;
    /// Sets the highest bit of every byte that is less than `least`.
    const fn below(word: u64, least: u64) -> u64 {
        word.wrapping_sub(ONES * least) & !word & HIGH
    }
    below(word, 0x20) | below(word ^ (ONES * 0x7F), 1) == 0
}

fn has(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let at = byte as u8;
        if at.is_ascii_alphanumeric() || contains(b"!#$%&'*+-.^_`|~", at) {
            classes[byte] |= TOKEN;
        }
        if at == b'\t' || (at >= b' ' && at != 0x7F) {
            classes[byte] |= VALUE;
        }
        if at.is_ascii_alphanumeric() || contains(b"-._~!$&'()*+,;=%", at) {
            classes[byte] |= NAME;
        }
        if at > b' ' && at != 0x7F && at != b'#' {
            classes[byte] |= TARGET;
        }
        byte += 1;
    }
    classes
}

const fn contains(set: &[u8], byte: u8) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_at_once_are_judged_as_each_of_them() {
        for byte in 0..=u8::MAX {
            for length in 1..20 {
                for at in 0..length {
                    let mut bytes = vec![b'~'; length];
                    bytes[at] = byte;
                    assert_eq!(are_values(&bytes), is_value(byte), "{byte} at {at} of {length}");
                }
            }
            // A carry must not affect the neighbouring byte.
            let pairs = [byte, b' ', 0x80, 0xFF, b'\t', byte, b'!', byte];
            assert_eq!(are_values(&pairs), is_value(byte), "{byte}");
        }
        assert!(are_values(b""));
    }
}
