//! The units of Windows names: bytes of WTF-8 or units of UTF-16.
//!
//! The rules for Windows are generic over both. A lone surrogate, which Windows allows in names, is thus
//! preserved without conversion.

/// One byte of WTF-8 (`u8`) or one unit of UTF-16 (`u16`).
pub trait Unit: Copy + Eq + std::fmt::Debug + sealed::Sealed {
    /// Returns the ASCII character of this unit; 0xFF if it is not ASCII.
    fn ascii(self) -> u8;

    /// Returns the unit of an ASCII character.
    fn of(ascii: u8) -> Self;

    /// Returns the length of the first *UTF-16 unit* of `name`, since any one of them can be a drive letter.
    fn letter(name: &[Self]) -> usize;

    /// If `name` ends in `¹`, `²` or `³`, returns the length of that character.
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
            // Four bytes encode two UTF-16 units; anything else is ASCII or invalid.
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
