//! Sentences that are understood at once, in pages and in comments: at most 25 words.

use std::borrow::Cow;
use std::path::Path;

use super::page::{Breach, Page};

/// Words of a sentence, at most.
const WORDS_MAX: usize = 25;

/// Pages that are read by the line: changes, and figures of runs.
const LEFT_OUT: [&str; 2] = ["CHANGELOG.md", "docs/benchmarks.md"];

/// What a page has read so far.
#[derive(Debug, Default)]
struct Sentences {
    /// The line of each, and its words.
    found: Vec<(usize, usize)>,
    /// The last one goes on.
    is_open: bool,
    /// The last word ended in a colon or a semicolon.
    after_colon: bool,
}

pub(super) fn breaches(pages: &[Page]) -> Vec<Breach> {
    let is_left_out = |page: &Page| LEFT_OUT.iter().any(|path| page.path == Path::new(path));
    pages.iter().filter(|page| !is_left_out(page)).flat_map(too_long).collect()
}

fn too_long(page: &Page) -> Vec<Breach> {
    let prose = prose(page);
    let long = sentences(&prose).into_iter().filter(|(_, words)| *words > WORDS_MAX);
    long.map(|(line, words)| page.breach(line, format!("a sentence of {words} words"))).collect()
}

/// A page's text, or a program's comments; other lines are empty.
fn prose(page: &Page) -> Cow<'_, str> {
    let marks: &[&str] = match page.path.extension().and_then(|end| end.to_str()) {
        Some("md") => return Cow::Borrowed(&page.text),
        Some("rs") => &["///", "//!", "//"],
        Some("rb") => &["#"],
        _ => &[],
    };
    let comment = |line: &str| {
        let line = line.trim_start();
        let text = marks.iter().find_map(|mark| line.strip_prefix(mark));
        text.unwrap_or_default().to_owned() + "\n"
    };
    page.text.lines().map(comment).collect::<String>().into()
}

/// The sentences outside code, tables and headings.
fn sentences(text: &str) -> Vec<(usize, usize)> {
    let mut sentences = Sentences::default();
    let mut is_code = false;
    for (index, line) in without_comments(text).lines().enumerate() {
        let line = line.trim_start();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.is_empty() || line.starts_with(['|', '#']) {
            sentences.end();
            continue;
        }
        let item = item(line);
        if item.is_some() {
            sentences.end();
        }
        let words = item.unwrap_or(line).split_whitespace();
        words.for_each(|word| sentences.add(index + 1, word));
    }
    sentences.found
}

/// What stands in the first line of an item of a list.
fn item(line: &str) -> Option<&str> {
    let (mark, text) = line.split_once(' ')?;
    let number = mark.strip_suffix('.').unwrap_or_default();
    (matches!(mark, "-" | "*") || number.parse::<u32>().is_ok()).then_some(text)
}

/// The text with what browsers do not show left out, line by line.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("<!--") {
        let (comment, after) = comment.split_once("-->").unwrap_or((comment, ""));
        kept.push_str(before);
        kept.extend(comment.matches('\n'));
        rest = after;
    }
    kept + rest
}

impl Sentences {
    fn add(&mut self, line: usize, word: &str) {
        // What follows a colon is a sentence of its own if it looks like one.
        if self.after_colon && word.starts_with(begins_a_sentence) {
            self.end();
        }
        if word.contains(char::is_alphanumeric) {
            match self.found.last_mut().filter(|_| self.is_open) {
                Some((_, words)) => *words += 1,
                None => self.found.push((line, 1)),
            }
            self.is_open = true;
        }
        let word = word.trim_end_matches(['*', ')', '"', '\'', '`', '_']);
        self.after_colon = word.ends_with([':', ';']);
        if word.ends_with(['.', '?', '!']) {
            self.end();
        }
    }

    fn end(&mut self) {
        (self.is_open, self.after_colon) = (false, false);
    }
}

fn begins_a_sentence(first: char) -> bool {
    first.is_uppercase() || first.is_ascii_digit() || matches!(first, '*' | '`' | '(' | '[')
}

#[cfg(test)]
mod tests {
    use super::super::page::page;
    use super::*;

    fn words(text: &str) -> Vec<usize> {
        sentences(text).into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn a_sentence_has_at_most_25_words() {
        let found = |path, words| too_long(&page(path, &"word ".repeat(words))).len();
        assert_eq!((found("a.md", 25), found("a.md", 26)), (0, 1));
        let pages = ["a.rs", "CHANGELOG.md"].map(|path| page(path, &"word ".repeat(26)));
        assert_eq!(breaches(&pages), []);
        for (path, mark) in [("a.rs", "//"), ("a.rs", "    ///"), ("a.rs", "//!"), ("a.rb", "  #")]
        {
            let comment = |words| format!("{mark} One {}", format!("\n{mark} word").repeat(words));
            let found = |words| too_long(&page(path, &comment(words))).len();
            assert_eq!((found(24), found(25)), (0, 1), "{mark}");
        }
        let long = format!("One.\n\nTwo {}", "word\n".repeat(26));
        assert_eq!(
            breaches(&[page("a.md", &long)]),
            [page("a.md", "").breach(3, "a sentence of 27 words".into())]
        );
    }

    #[test]
    fn sentences_end_at_their_marks_and_with_their_paragraph() {
        assert_eq!(words("One two. Three (four five.) six? **Seven.** Eight"), [2, 3, 1, 1, 1]);
        assert_eq!(words("One 1.5 ms — two: three; Four: `five`"), [5, 1, 1]);
        assert_eq!(words("# Zero\nOne\ntwo\n\nThree\n- four\n  five\n1. six"), [2, 1, 2, 1]);
        assert_eq!(words("One\n| zero | zero |\ntwo\n```\nzero zero\n```\nthree"), [1, 1, 1]);
        assert_eq!(words("One <!-- zero\nzero. --> two\nthree"), [3]);
    }
}
