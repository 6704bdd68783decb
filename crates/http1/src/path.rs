//! Checks a target's path for parts that are dangerous whichever program reads the path later.

use std::slice::Iter;

/// Whether all escapes of the path are complete, none of them is NUL, and no `..` leads above the root, even after the
/// escapes are decoded once.
pub(crate) fn is_sound(path: &[u8]) -> bool {
    if !path.contains(&b'%') && !path.windows(2).any(|two| two == b"..") {
        return true;
    }
    let mut walk = Walk::default();
    let mut bytes = DecodedBytes(path.iter()).chain([Some(b'/')]);
    bytes.all(|byte| byte.is_some_and(|byte| walk.step(byte)))
}

/// The bytes of a path with decoded escapes. The item is `None` for a malformed escape.
struct DecodedBytes<'a>(Iter<'a, u8>);

impl Iterator for DecodedBytes<'_> {
    type Item = Option<u8>;

    fn next(&mut self) -> Option<Self::Item> {
        let byte = *self.0.next()?;
        Some(if byte == b'%' { self.escaped() } else { Some(byte) })
    }
}

impl DecodedBytes<'_> {
    fn escaped(&mut self) -> Option<u8> {
        let mut digit = || char::from(*self.0.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        u8::try_from(high << 4 | low).ok()
    }
}

/// The depth below the root to which the segments so far have led.
#[derive(Default)]
struct Walk {
    depth: usize,
    segment_bytes: usize,
    segment_dots: usize,
}

impl Walk {
    /// False if the path must end here.
    fn step(&mut self, byte: u8) -> bool {
        match byte {
            0 => return false,
            b'/' => return self.leave_segment(),
            b'.' => self.segment_dots += 1,
            _ => {}
        }
        self.segment_bytes += 1;
        true
    }

    fn leave_segment(&mut self) -> bool {
        let (bytes, dots) = (self.segment_bytes, self.segment_dots);
        (self.segment_bytes, self.segment_dots) = (0, 0);
        match (bytes, dots) {
            (0, 0) | (1, 1) => true,
            (2, 2) if self.depth == 0 => false,
            (2, 2) => {
                self.depth -= 1;
                true
            }
            _ => {
                self.depth += 1;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_sound;

    #[test]
    fn a_path_stays_below_its_root() {
        for path in
            ["/", "*", "/a/../b", "/a/b/../..", "/..a/..", "/a%2fb/../..", "/%41", "/a/./.."]
        {
            assert!(is_sound(path.as_bytes()), "{path}");
        }
        for path in ["/..", "/a/../..", "/%2e%2e", "/.%2E/", "/a%2f..%2f..", "/a/./../.."] {
            assert!(!is_sound(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn an_escape_is_two_digits_and_never_nul() {
        for path in ["/%", "/%4", "/%zz", "/%+1", "/%00", "/a%0"] {
            assert!(!is_sound(path.as_bytes()), "{path}");
        }
    }
}
