//! Strings in the layout of `argv` and `environ`.

use std::ffi::c_char;
use std::ptr;

/// A list of NUL-terminated strings in a single allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Texts {
    /// Creates an empty list with room for `texts` strings of `bytes` bytes in total, including each NUL.
    #[must_use]
    pub fn with_capacity(texts: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), starts: Vec::with_capacity(texts) }
    }

    /// Appends the concatenation of `parts`. Returns `false`, and appends nothing, if a part contains a NUL.
    #[must_use]
    pub fn push(&mut self, parts: &[&[u8]]) -> bool {
        if parts.iter().any(|part| part.contains(&0)) {
            return false;
        }
        self.starts.push(self.bytes.len());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.push(0);
        true
    }

    /// Returns the number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns a pointer to each string, then a null pointer, as in `argv`. The pointers borrow this list.
    pub(super) fn pointers(&self) -> Vec<*const c_char> {
        let pointer = |start: &usize| self.bytes[*start..].as_ptr().cast();
        self.starts.iter().map(pointer).chain([ptr::null()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_made_of_parts_and_holds_no_nul() {
        let mut texts = Texts::default();
        assert!(texts.push(&[b"a", b"=", b"b"]) && texts.push(&[b""]));
        assert!(!texts.push(&[b"a\0b"]));
        assert_eq!((texts.bytes.as_slice(), texts.len()), (b"a=b\0\0".as_slice(), 2));
    }
}
