//! Repeated keys in a JSON text. The parsed object does not show them, but JSON warns of them, or refuses them.

use crate::document::{Reader, Token};

/// Whether an object in the text may have a key more than once; `document` is the parsed text. Exact for a text
/// without comments, and true for every other: each pair has one colon outside of strings.
pub(crate) fn may_repeat_key(text: &[u8], document: &[u8]) -> bool {
    let pairs = Reader::new(document).map(|token| match token {
        Token::Map { length, .. } => length,
        _ => 0,
    });
    colons(text) != Some(pairs.sum())
}

/// The number of colons outside of strings; `None` for a text with a comment, which may hold any character.
fn colons(text: &[u8]) -> Option<usize> {
    let (mut count, mut in_string) = (0, false);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                bytes.next();
            }
            b'/' if !in_string => return None,
            b':' if !in_string => count += 1,
            _ => {}
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Writer;

    /// Whether a text with maps of those lengths may repeat a key.
    fn repeats(text: &str, lengths: &[usize]) -> bool {
        let mut writer = Writer::default();
        lengths.iter().for_each(|length| {
            writer.put(Token::Map { length: *length, is_frozen: false });
            (0..2 * length).for_each(|_| writer.put(Token::Nil));
        });
        may_repeat_key(text.as_bytes(), &writer.into_bytes())
    }

    #[test]
    fn a_repeated_key_leaves_a_colon_without_a_pair() {
        assert!(!repeats(r#"{"a": 1, "b": [{"c:": "d\\\":"}, {}]}"#, &[2, 1, 0]));
        assert!(repeats(r#"{"a": 1, "a": 2}"#, &[1]));
        assert!(repeats(r#"{"a": {"b": 1}, "a": 2}"#, &[1]));
        assert!(repeats(r#"{"a": 1, "\u0061": 2}"#, &[1]));
    }

    #[test]
    fn a_text_with_a_comment_may_repeat_any_key() {
        assert!(repeats("{\"a\": 1 /* \" */}", &[1]));
        assert!(!repeats(r#"{"a": "http://b/*"}"#, &[1]));
    }
}
