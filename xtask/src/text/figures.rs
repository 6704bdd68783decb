//! Figures in prose that come from a table of docs/benchmarks.md.
//!
//! A comment after the figures names their cells. The figure of each cell has to be in the same paragraph, item or row,
//! or in the table before the comment:
//! `677 → 333 ms <!-- boot-commands > rails runner 0 > plain > wall ; boot-commands > … -->`.
//! A figure may be rounded, but not to fewer than two digits.

use std::path::Path;

use super::page::{Breach, Page};
use xtask::published::{self, Section};

pub(super) fn breaches(root: &Path, pages: &[Page]) -> Vec<Breach> {
    let pages = pages.iter().filter(|page| page.is_markdown());
    match published::read(root) {
        Ok(sections) => pages.flat_map(|page| wrong(page, &sections)).collect(),
        Err(error) => vec![Breach { path: "docs/benchmarks.md".into(), line: 1, what: error }],
    }
}

fn wrong(page: &Page, sections: &[Section]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut block = String::new();
    for (number, line) in page.lines() {
        if line.is_empty() || line.starts_with("- ") {
            block.clear();
        }
        block.push_str(line);
        block.push('\n');
        let place = if line.starts_with("| ") { line } else { &block };
        for cell in cells(line) {
            if let Err(what) = holds(place, cell, sections) {
                breaches.push(page.breach(number, what));
            }
        }
    }
    breaches
}

/// The cells that the comments of a line name: `SECTION > TABLE > ROW > COLUMN`, separated by ` ; `.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    let comments = line.split("<!-- ").skip(1).filter_map(|rest| rest.split_once(" -->"));
    let named = comments.filter(|(comment, _)| comment.contains(" > "));
    named.flat_map(|(comment, _)| comment.split(" ; "))
}

/// Whether the text outside of comments contains the figure of the cell.
fn holds(block: &str, cell: &str, sections: &[Section]) -> Result<(), String> {
    let [section, title, row, column] = cell.split(" > ").collect::<Vec<_>>()[..] else {
        return Err(format!("{cell}: write it as SECTION > TABLE > ROW > COLUMN"));
    };
    let (_, table) = published::table(sections, section, title)?;
    let text = table.cell(row, column)?;
    let value = published::number(text).ok_or_else(|| format!("{cell}: no figure in {text}"))?;
    let shown = block.split("<!-- ").flat_map(|part| match part.split_once(" -->") {
        Some((_, outside)) => outside.split(is_no_figure),
        None => part.split(is_no_figure),
    });
    let mut shown = shown.filter(|word| word.contains(|c: char| c.is_ascii_digit()));
    let is_there = shown.any(|word| is_rounded(&word.replace(',', ""), value));
    is_there.then_some(()).ok_or_else(|| format!("{cell} is {text}, and not here"))
}

fn is_no_figure(c: char) -> bool {
    !c.is_ascii_digit() && c != '.' && c != ','
}

/// Whether `shown` is `value`, or `value` rounded to as many places, with at least two digits.
fn is_rounded(shown: &str, value: f64) -> bool {
    let shown = shown.trim_end_matches('.');
    let places = shown.split_once('.').map_or(0, |(_, places)| places.len());
    let digits = shown.trim_start_matches(['0', '.']).replace('.', "").len();
    let rounded = format!("{value:.places$}");
    let is_same = rounded.trim_start_matches('0') == shown.trim_start_matches('0');
    is_same && (digits >= 2 || format!("{value}") == rounded)
}

#[cfg(test)]
mod tests {
    use super::super::page::page;
    use super::*;

    const PAGE: &str = "<!-- a-short -->\n2026-11-21: Linux 6.18, 2 processors; load 0.37 before, 1.60 after.\n\n\
        ### Short\n| server | requests/s |\n| --- | --- |\n| `b` | 28736 ± 8 % |\n<!-- end a-short -->\n";

    fn whats(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("docs")).expect("made");
        std::fs::write(published::page(folder.path()), PAGE).expect("written");
        let found = breaches(folder.path(), &[page("README.md", text)]);
        found.into_iter().map(|breach| breach.what).collect()
    }

    #[test]
    fn a_figure_that_is_not_in_its_table_is_found() {
        let cell = "a-short > Short > b > requests/s";
        assert!(whats(&format!("28,736 a second <!-- {cell} -->")).is_empty());
        assert!(whats(&format!("28,736\na second\n<!-- {cell} -->")).is_empty());
        let wrong = format!("{cell} is 28736 ± 8 %, and not here");
        assert_eq!(whats(&format!("28,737 a second <!-- {cell} -->")), [&*wrong]);
        assert_eq!(whats(&format!("- 28,736\n- others <!-- {cell} -->")), [&*wrong]);
        assert!(whats(&format!("| 28,736 |\n| others |\n<!-- {cell} -->")).is_empty());
        assert_eq!(whats(&format!("| 28,736 |\n| others <!-- {cell} --> |")), [&*wrong]);
        assert_eq!(whats("9 <!-- no > Short > b > p99 -->"), ["no section no"]);
    }

    #[test]
    fn figures_may_be_rounded_but_not_to_one_digit() {
        assert!(is_rounded("3.0", 2.99) && is_rounded("2.5", 2.51) && is_rounded(".42", 0.42));
        assert!(is_rounded("677", 677.0) && is_rounded("0", 0.0) && is_rounded("3", 3.0));
        assert!(!is_rounded("3", 2.99) && !is_rounded("2.6", 2.51) && !is_rounded("67", 677.0));
    }
}
