//! Texts as the kernel takes them.

use std::ffi::c_char;
use std::ptr;

/// Texts as the kernel takes them, each with a NUL at its end, in one piece of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Texts {
    /// No texts, with room for `texts` of `bytes` in all.
    #[must_use]
    pub fn with_capacity(texts: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), starts: Vec::with_capacity(texts) }
    }

    /// Adds a text that is made of `parts`; `false` if it holds a NUL, and is not added.
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

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// A pointer to each, and a null pointer, as in `argv`. They point into these texts.
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
