//! What a name on Windows is made of: bytes of WTF-8, or units of UTF-16.
//!
//! The rules for Windows are written once and hold for both. So a lone surrogate, which Windows
//! allows in names, goes through without loss and without a conversion.

/// One byte of WTF-8 (`u8`) or one unit of UTF-16 (`u16`).
pub trait Unit: Copy + Eq + std::fmt::Debug + sealed::Sealed {
    /// The ASCII character that this unit is, if it is one; 0xFF otherwise.
    fn ascii(self) -> u8;

    /// The unit of an ASCII character.
    fn of(ascii: u8) -> Self;

    /// How many units the first *UTF-16 unit* of `name` takes: a drive's letter is any one of them.
    fn letter(name: &[Self]) -> usize;

    /// Whether `name` ends in `¹`, `²` or `³`, and how many units that takes.
    fn superscript(name: &[Self]) -> Option<usize>;

    /// Whether this unit separates components.
    #[must_use]
    fn separates(self) -> bool {
        matches!(self.ascii(), b'\\' | b'/')
    }

    /// Whether this unit is the ASCII character `character`.
    #[must_use]
    fn is(self, character: u8) -> bool {
        self.ascii() == character
    }
}

impl Unit for u8 {
    fn ascii(self) -> u8 {
        if self.is_ascii() { self } else { 0xFF }
    }

    fn of(ascii: u8) -> Self {
        ascii
    }

    fn letter(name: &[Self]) -> usize {
        match name.first() {
            None => 0,
            Some(0xC2..=0xDF) => 2,
            Some(0xE0..=0xEF) => 3,
            // Four bytes are two units of UTF-16; the rest is ASCII, or not WTF-8 at all.
            Some(_) => 1,
        }
    }

    fn superscript(name: &[Self]) -> Option<usize> {
        matches!(name, [.., 0xC2, 0xB9 | 0xB2 | 0xB3]).then_some(2)
    }
}

impl Unit for u16 {
    fn ascii(self) -> u8 {
        u8::try_from(self).map_or(0xFF, Unit::ascii)
    }

    fn of(ascii: u8) -> Self {
        Self::from(ascii)
    }

    fn letter(name: &[Self]) -> usize {
        usize::from(!name.is_empty())
    }

    fn superscript(name: &[Self]) -> Option<usize> {
        matches!(name, [.., 0xB9 | 0xB2 | 0xB3]).then_some(1)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
}
