//! Case folding as in Windows file systems: to upper case, unit by unit.
//!
//! The table of Windows maps each UTF-16 unit to one unit, and only if the mapping is reversible: `ı`, `ſ`
//! and `µ` stay unchanged. Here the table is derived from Unicode's mappings by that rule, and a test under
//! Wine compares it with the system's, character by character.

use std::borrow::Cow;

/// Returns `name` in upper case. Names with equal results are equal on a file system that ignores case.
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
    let upper = only(character.to_uppercase()).or_else(|| with_iota(character));
    let is_in_table = |upper: &char| {
        !upper.is_ascii()
            && !is_recent(*upper)
            && upper.len_utf16() == 1
            && only(upper.to_lowercase()) == Some(character)
    };
    upper.filter(is_in_table).unwrap_or(character)
}

/// Returns the only character of a mapping; `None` if there are several.
fn only(mut characters: impl Iterator<Item = char>) -> Option<char> {
    characters.next().filter(|_| characters.next().is_none())
}

/// Returns the upper case of a Greek letter with iota subscript as one character, where Unicode's full
/// mapping has two.
fn with_iota(character: char) -> Option<char> {
    let distance = match character {
        '\u{1F80}'..='\u{1FAF}' => 8,
        'ᾳ' | 'ῃ' | 'ῳ' => 9,
        _ => return None,
    };
    char::from_u32(u32::from(character) + distance)
}

/// Whether a letter is from Unicode 16 or later, which the tables of Windows lack.
fn is_recent(upper: char) -> bool {
    matches!(upper, '\u{1C89}' | '\u{A7CB}'..='\u{A7CF}' | '\u{A7D2}'..='\u{A7D5}' | '\u{A7DA}'..='\u{A7DC}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_folded_one_by_one() {
        let folded = |text: &str| String::from_utf8(fold(text.as_bytes()).into_owned()).unwrap();
        assert_eq!(folded("a-Z.exe"), "A-Z.EXE");
        assert_eq!(folded("straße é ä"), "STRAßE É Ä");
        assert_eq!(folded("ᾀ ῳ"), "ᾈ ῼ");
        assert_eq!(folded("ı ſ µ ǅ 𐐨 ƛ"), "ı ſ µ ǅ 𐐨 ƛ");
        assert_eq!(&*fold(b"a\xED\xA0\x80\xFF"), b"A\xED\xA0\x80\xFF");
    }
}
