//! A thread, process, request or file is *it*: words for persons are not for things.

use super::page::{self, Breach, Page};

/// Words for persons, with `ever` behind them or not.
const PERSONS: [&str; 2] = ["who", "whom"];

/// The parts of the other words for persons.
const BEGINNINGS: [&str; 4] = ["some", "any", "every", "no"];
const ENDS: [&str; 2] = ["body", "one"];

/// Pairs of words in the place of a thing's name.
const PAIRS: [[&str; 2]; 2] = [["one", "that"], ["ones", "that"]];

/// Lines that may have such a word: file, part of the line, and why.
const EXCUSED: [[&str; 3]; 4] = [
    ["xtask/src/text/language.rs", "const PERSONS", "the words that are looked for"],
    ["xtask/src/text/language.rs", "const PAIRS", "the words that are looked for"],
    ["STYLE.md", "1. A thread, process, request or file is *it*.", "the rule names the words"],
    ["gem/test/expand_path_test.rb", "PARTS = ", "the home of a user of that name"],
];

pub(super) fn breaches(pages: &[Page]) -> Vec<Breach> {
    let is_looked_at = |page: &&Page| {
        ["rs", "rb", "ru", "md"].iter().any(|suffix| page::has_suffix(&page.path, suffix))
    };
    pages.iter().filter(is_looked_at).flat_map(personified).collect()
}

fn personified(page: &Page) -> Vec<Breach> {
    let is_excused = |line: &str| {
        EXCUSED.iter().any(|[file, part, _]| page.path.ends_with(file) && line.contains(part))
    };
    let lines = page.lines().filter(|(_, line)| speaks_of_persons(line) && !is_excused(line));
    lines.map(|(number, line)| page.breach(number, line.trim().to_owned())).collect()
}

/// Whether the line has such a word. Names of tests are sentences too, so `_` parts words.
fn speaks_of_persons(line: &str) -> bool {
    let words: Vec<_> = line
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.iter().any(|word| is_person(word))
        || words.windows(2).any(|pair| PAIRS.iter().any(|known| pair == known))
}

fn is_person(word: &str) -> bool {
    let ends = BEGINNINGS.iter().filter_map(|beginning| word.strip_prefix(beginning));
    PERSONS.contains(&word.strip_suffix("ever").unwrap_or(word))
        || ends.into_iter().any(|end| ENDS.contains(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_persons_are_found_and_others_are_not() {
        let other = BEGINNINGS.iter().flat_map(|begin| ENDS.map(|end| format!("{begin}{end}")));
        for word in PERSONS.iter().map(|word| format!("{word}ever")).chain(other) {
            assert!(speaks_of_persons(&format!("/// {word}, it is said")), "{word}");
            assert!(speaks_of_persons(&format!("fn waits_for_{word}() {{")), "{word}");
        }
        assert!(speaks_of_persons(&format!("the file of {} it asks", PERSONS[0])));
        assert!(speaks_of_persons(&format!("the {} waits", PAIRS[0].join(" "))));
        assert!(!speaks_of_persons("the whole process, whose file one thread has"));
    }

    #[test]
    fn at_most_five_lines_are_excused() {
        assert!(EXCUSED.len() <= 5);
    }
}
