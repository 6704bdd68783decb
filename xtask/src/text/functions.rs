//! Checks tables of peers' functions: in a table whose last column is `tested`, each row names a test that exists, or
//! says no with its reason.

use std::fs;
use std::path::Path;

use super::page::{Breach, Page};

/// The head of the column with the tests.
const TESTED: &str = "tested";
/// The least length of a reason.
const REASON_MIN: usize = 12;

pub(super) fn breaches(root: &Path, pages: &[Page]) -> Vec<Breach> {
    pages.iter().filter(|page| page.is_markdown()).flat_map(|page| wrong(root, page)).collect()
}

fn wrong(root: &Path, page: &Page) -> Vec<Breach> {
    let (mut breaches, mut is_in_table) = (Vec::new(), false);
    for (number, line) in page.lines() {
        let cells = cells(line);
        let is_row = is_in_table && !cells.is_empty();
        is_in_table = is_row || cells.last() == Some(&TESTED);
        let is_rule = cells.iter().all(|cell| cell.trim_matches('-').is_empty());
        if !is_row || is_rule && cells.first() == Some(&"---") {
            continue;
        }
        let (tests, others) = cells.split_last().map_or(("", &[][..]), |(last, rest)| (last, rest));
        if tests.is_empty() && !others.iter().any(|cell| is_reason(cell)) {
            breaches.push(page.breach(number, "a row without a test or a reason".to_owned()));
        }
        let missing = names(tests).filter(|name| !exists(root, name));
        breaches.extend(missing.map(|name| page.breach(number, format!("no test {name}"))));
        if !tests.is_empty() && names(tests).next().is_none() {
            breaches.push(page.breach(number, format!("no name of a test: {tests}")));
        }
    }
    breaches
}

/// Returns the cells of a row, or nothing for another line.
fn cells(line: &str) -> Vec<&str> {
    let inner = line.strip_prefix('|').and_then(|line| line.trim_end().strip_suffix('|'));
    inner.map_or_else(Vec::new, |inner| inner.split('|').map(str::trim).collect())
}

/// Whether a cell refuses a function and says why.
fn is_reason(cell: &str) -> bool {
    let reason = cell.strip_prefix("no: ").or(cell.strip_prefix("no, "));
    reason.is_some_and(|reason| reason.chars().count() >= REASON_MIN)
}

/// Returns the texts in backticks.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Whether `FILE` has a test, or `FILE::NAME` is one.
fn exists(root: &Path, name: &str) -> bool {
    let (file, function) = name.split_once("::").unwrap_or((name, ""));
    let Ok(text) = fs::read_to_string(root.join(file)) else { return false };
    match function {
        "" => text.contains("#[test]") || text.contains("proptest!"),
        function => text.contains(&format!("fn {function}(")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::page;
    use super::*;

    #[test]
    fn a_row_without_a_test_or_a_reason_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a.rs"), "#[test]\nfn it_works() {}\n").expect("written");
        fs::write(folder.path().join("b.rs"), "fn no_test() {}\n").expect("written");
        let text = "| function | here | tested |\n| --- | --- | --- |\n| a | yes | `a.rs` |\n\
                    | b | yes | `a.rs::it_works` |\n| c | no: it costs too much | |\n\
                    | d | yes | |\n| e | no | |\n| f | yes | `b.rs` |\n| g | yes | `a.rs::gone` |\n\
                    | h | yes | by hand |\n\n| other | table |\n| --- | --- |\n| a | |\n";
        let found = breaches(folder.path(), &[page("docs/a.md", text)]);
        let whats: Vec<_> = found.iter().map(|breach| (breach.line, &*breach.what)).collect();
        let without = "a row without a test or a reason";
        let expected = [
            (6, without),
            (7, without),
            (8, "no test b.rs"),
            (9, "no test a.rs::gone"),
            (10, "no name of a test: by hand"),
        ];
        assert_eq!(whats, expected);
    }
}
