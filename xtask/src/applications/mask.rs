//! Compares texts of which some words change with each run, such as tokens, nonces and times.
//!
//! Two runs under the same server show which words change.

/// The result of comparing a text with two references.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    Same,
    /// The references differ in their number of words, so their words cannot be matched.
    Unknown,
    /// The words of the reference and of the text at the first difference.
    Differs(String, String),
}

/// The number of words of a difference that are shown.
const SHOWN_WORDS: usize = 6;

/// Compares `text` with the texts of two runs of the reference.
pub(super) fn compare(references: [&[u8]; 2], text: &[u8]) -> Likeness {
    let [first, second] = references;
    if text == first || text == second {
        return Likeness::Same;
    }
    let (first, second, words) = (words(first), words(second), words(text));
    if first.len() != second.len() {
        return Likeness::Unknown;
    }
    let changes = |place: usize| first[place] != second[place];
    let common = first.len().min(words.len());
    let differing = (0..common).find(|place| !changes(*place) && first[*place] != words[*place]);
    match differing.or_else(|| (first.len() != words.len()).then_some(common)) {
        None => Likeness::Same,
        Some(place) => Likeness::Differs(shown(&first, place), shown(&words, place)),
    }
}

/// Splits a text into words and separators. A token is one word.
fn words(text: &[u8]) -> Vec<&[u8]> {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=_-.%".contains(byte);
    text.chunk_by(|one, other| is_of_word(one) == is_of_word(other)).collect()
}

fn shown(words: &[&[u8]], place: usize) -> String {
    let end = words.len().min(place + SHOWN_WORDS);
    String::from_utf8_lossy(&words[place..end].concat()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_changes_between_runs_may_be_any() {
        let references: [&[u8]; 2] =
            [b"<meta token=\"ab+/c==\"> Hello", b"<meta token=\"de-f_%\"> Hello"];
        let with = |text: &str| compare(references, text.as_bytes());
        assert_eq!(with("<meta token=\"xyz\"> Hello"), Likeness::Same);
        let Likeness::Differs(plain, ours) = with("<meta token=\"xyz\"> Hallo") else { panic!() };
        assert_eq!((plain.as_str(), ours.as_str()), ("Hello", "Hallo"));
        assert!(matches!(with("<meta token=\"xyz\"> Hello, you"), Likeness::Differs(..)));
        assert!(matches!(with("<meta token=\"xyz\">"), Likeness::Differs(..)));
    }

    #[test]
    fn a_text_that_changes_as_a_whole_is_not_judged() {
        assert_eq!(compare([b"a b", b"a b c"], b"a b c d"), Likeness::Unknown);
        assert_eq!(compare([b"a b", b"a b c"], b"a b"), Likeness::Same);
        assert_eq!(compare([b"", b""], b""), Likeness::Same);
    }
}
