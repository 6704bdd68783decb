//! Classes of bytes that RFC 9110 and RFC 3986 name.

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const NAME: u8 = 4;
const TARGET: u8 = 8;

/// The classes of each byte.
static CLASSES: [u8; 256] = classes();

/// A byte of a token (RFC 9110, 5.6.2): field names, methods.
pub(crate) fn is_token(byte: u8) -> bool {
    has(byte, TOKEN)
}

/// A byte of a field value (RFC 9110, 5.5): a tab, a space, a visible or a foreign one.
pub(crate) fn is_value(byte: u8) -> bool {
    has(byte, VALUE)
}

/// A byte of a host's name (RFC 3986, 3.2.2): unreserved, a sub-delimiter, or part of an escape.
pub(crate) fn is_host_name(byte: u8) -> bool {
    has(byte, NAME)
}

/// A byte of a request target: visible or foreign, but not the `#` that would start a fragment.
pub(crate) fn is_target(byte: u8) -> bool {
    has(byte, TARGET)
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
