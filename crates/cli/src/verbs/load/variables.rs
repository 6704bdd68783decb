//! Variables, whose values differ from request to request: `--var NAME=VALUES`, written as `{NAME}` in URLs, headers
//! and bodies.

use std::path::Path;
use std::str::FromStr;

use thruway_sys::printable;

use super::source;
use crate::output::Failure;

/// The most requests to prepare for a URL.
pub(super) const REQUESTS_MAX: usize = 100_000;
/// The most bytes of a file with values.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The argument of `--var`: the name of a variable, and its values as they are written on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VariableText {
    name: String,
    values: String,
}

/// Parses `id=1-1000`, `word=one,two` or `body=@FILE`.
impl FromStr for VariableText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) =
            text.split_once('=').ok_or("write it as NAME=1-1000, NAME=one,two or NAME=@FILE")?;
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || !name.bytes().all(is_letter) {
            return Err(format!("{name:?} is not a name: use letters, digits, - and _"));
        }
        Ok(Self { name: name.to_owned(), values: values.to_owned() })
    }
}

/// A variable with all its values, in random order.
#[derive(Debug)]
pub(super) struct Variable {
    /// The name in braces, which a value replaces.
    place: String,
    values: Vec<String>,
}

/// Reads the values of all variables.
pub(super) fn read(texts: &[VariableText]) -> Result<Vec<Variable>, Failure> {
    texts.iter().zip(1..).map(|(text, seed)| Variable::read(text, seed)).collect()
}

/// Whether each variable occurs in at least one of the texts.
pub(super) fn are_used(variables: &[Variable], texts: &[&str]) -> bool {
    variables.iter().all(|variable| texts.iter().any(|text| text.contains(&variable.place)))
}

/// Returns the number of requests after which every variable has had each of its values.
pub(super) fn count(variables: &[Variable]) -> usize {
    variables.iter().map(|variable| variable.values.len()).max().unwrap_or(1)
}

/// Returns the text of request `number`, with values in place of variables.
pub(super) fn filled(variables: &[Variable], text: &str, number: usize) -> String {
    variables.iter().fold(text.to_owned(), |text, variable| {
        text.replace(&variable.place, &variable.values[number % variable.values.len()])
    })
}

impl Variable {
    fn read(text: &VariableText, seed: u64) -> Result<Self, Failure> {
        let VariableText { name, values } = text;
        let refused = |why: String| Err(Failure::new(format_args!("--var {name}: {why}")));
        let mut values = match values.strip_prefix('@') {
            Some(file) => lines(file)?,
            None => match range(values) {
                Some(range) => range?.map(|number| number.to_string()).collect(),
                None => values.split(',').map(str::to_owned).collect(),
            },
        };
        if values.is_empty() {
            return refused("there are no values".to_owned());
        }
        if values.len() > REQUESTS_MAX {
            return refused(format!("more than {REQUESTS_MAX} values"));
        }
        shuffle(&mut values, seed);
        Ok(Self { place: format!("{{{name}}}"), values })
    }
}

/// Returns the non-empty lines of a file.
pub(super) fn lines(file: &str) -> Result<Vec<String>, Failure> {
    let shown = printable::text(file);
    let bytes = source::read(Path::new(file), FILE_BYTES_MAX)
        .map_err(|error| Failure::new(format_args!("cannot read {shown}: {error}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::new(format_args!("cannot read {shown}: it is not UTF-8")))?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Parses a range such as `1-1000`; `None` if the text is not a range.
fn range(text: &str) -> Option<Result<std::ops::RangeInclusive<u64>, Failure>> {
    let (first, last) = text.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let is_sound = first <= last && last - first < REQUESTS_MAX as u64;
    Some(is_sound.then_some(first..=last).ok_or_else(|| {
        Failure::new(format_args!("{text} is not a range of 1 to {REQUESTS_MAX} numbers"))
    }))
}

/// Shuffles values into an order that looks random and is the same in each run.
pub(super) fn shuffle(values: &mut [String], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for place in (1..values.len()).rev() {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from((state >> 16) % (place as u64 + 1)).unwrap_or(0);
        values.swap(place, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(text: &str) -> Variable {
        Variable::read(&text.parse().unwrap(), 1).unwrap()
    }

    #[test]
    fn each_value_has_its_turn() {
        let variables = [variable("id=1-50"), variable("w=a,b")];
        assert_eq!(count(&variables), 50);
        let mut texts: Vec<_> =
            (0..50).map(|number| filled(&variables, "/{id}/{w}", number)).collect();
        assert_ne!(texts[0].split('/').nth(1), Some("1"), "they are in random order");
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 50);
        assert!(texts.iter().any(|text| text.ends_with("/a")));
        assert!(are_used(&variables, &["{w}", "x{id}"]) && !are_used(&variables, &["{w}"]));
    }

    #[test]
    fn what_gives_no_values_is_refused() {
        for text in ["id", "=1", "a b=1"] {
            assert!(text.parse::<VariableText>().is_err(), "{text}");
        }
        for text in ["id=5-1", "id=1-100001", "id=@/none"] {
            assert!(Variable::read(&text.parse().unwrap(), 1).is_err(), "{text}");
        }
        assert_eq!(variable("id=a-b").values, ["a-b"]);
    }
}
