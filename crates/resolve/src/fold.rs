//! Case folding as file systems of Windows do it: unit by unit, to upper case.
//!
//! Their table is fixed and has no rule that makes one character two. This is Unicode's own simple
//! mapping, without those that lead from beyond ASCII into it (`ı`, `ſ`), which the table lacks too;
//! a test under Wine compares all 65,536 units with `RtlUpcaseUnicodeChar`.

use std::borrow::Cow;

/// `name` in upper case. Equal results mean equal names on a file system that ignores case.
#[must_use]
pub fn fold(name: &[u8]) -> Cow<'_, [u8]> {
    if !name.iter().any(|byte| byte.is_ascii_lowercase() || !byte.is_ascii()) {
        return Cow::Borrowed(name);
    }
    let mut folded = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            let upper = fold_character(character);
            folded.extend_from_slice(upper.encode_utf8(&mut [0; 4]).as_bytes());
        }
        folded.extend_from_slice(chunk.invalid());
    }
    Cow::Owned(folded)
}

fn fold_character(character: char) -> char {
    if character.is_ascii() {
        return character.to_ascii_uppercase();
    }
    let mut upper = character.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None)
            if !upper.is_ascii() && is_one_unit(upper) == is_one_unit(character) =>
        {
            upper
        }
        _ => character,
    }
}

/// The table knows the characters that are one unit of UTF-16.
fn is_one_unit(character: char) -> bool {
    character.len_utf16() == 1
}
