//! A thread, process, request or file is *it*: words for persons are not for things.

use super::page::{self, Breach, Page};

/// Words that are for persons, and pairs of words that stand for a thing that has a name.
const WORDS: &str =
    "who whom whoever whomever somebody someone nobody anybody anyone everybody everyone";
const PAIRS: [[&str; 2]; 2] = [["one", "that"], ["ones", "that"]];

/// Lines that may have such a word: file, part of the line, and why.
const EXCUSED: [[&str; 3]; 2] = [
    ["xtask/src/text/language.rs", "const ", "these are the words that are looked for"],
    [
        "STYLE.md",
        "1. A thread, process, request or file is *it*.",
        "the rule itself names the words",
    ],
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
    words.iter().any(|word| WORDS.split(' ').any(|known| known == word))
        || words.windows(2).any(|pair| PAIRS.iter().any(|known| pair == known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_persons_are_found_and_others_are_not() {
        let [one, that] = PAIRS[0];
        for word in WORDS.split(' ') {
            assert!(speaks_of_persons(&format!("/// {word}, it is said")), "{word}");
            assert!(speaks_of_persons(&format!("fn waits_for_{word}() {{")), "{word}");
        }
        assert!(speaks_of_persons(&format!("the {one} {that} waits")));
        assert!(!speaks_of_persons("the whole process, whose file one thread has"));
    }

    #[test]
    fn at_most_five_lines_are_excused() {
        assert!(EXCUSED.len() <= 5);
    }
}
