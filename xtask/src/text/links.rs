//! Checks links in Markdown: the file and the heading of each link must exist.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::page::{Breach, Page};

pub(super) fn breaches(root: &Path, pages: &[Page]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for page in pages.iter().filter(|page| page.is_markdown()) {
        for (number, line) in page.lines() {
            for target in targets(line).filter(|target| !leads_somewhere(root, page, target)) {
                breaches.push(page.breach(number, format!("no {target}")));
            }
        }
    }
    breaches
}

/// Returns the targets of links, `](TARGET)`, other than addresses.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target).filter(|target| !target.contains(':'))
}

fn leads_somewhere(root: &Path, page: &Page, target: &str) -> bool {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = match file {
        "" => page.path.clone(),
        file => plain(&page.path.with_file_name(file)),
    };
    match heading {
        "" => fs::metadata(root.join(file)).is_ok(),
        heading => fs::read_to_string(root.join(file))
            .is_ok_and(|text| anchors(&text).any(|anchor| anchor == heading)),
    }
}

/// The path without `..`, as browsers resolve it.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = plain.pop(),
            component => plain.push(component),
        }
    }
    plain
}

/// The anchors of a page's headings on repository sites: lower-case letters, digits, and `-` for a space.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|heading| {
        let kept = heading.trim_start_matches('#').trim().chars();
        let kept = kept.filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::page::page;
    use super::*;

    #[test]
    fn a_link_to_a_missing_file_or_heading_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("docs")).expect("made");
        fs::write(folder.path().join("README.md"), "# Two commands\n").expect("written");
        let text = "[a](../README.md) [b](../README.md#two-commands) [c](https://none.example)\n\
                    [d](../none.md), [e](../README.md#three)\n[f](#here)";
        let found = breaches(folder.path(), &[page("docs/a.md", text)]);
        let whats: Vec<_> = found.iter().map(|breach| (breach.line, &*breach.what)).collect();
        assert_eq!(whats, [(2, "no ../none.md"), (2, "no ../README.md#three"), (3, "no #here")]);
    }

    #[test]
    fn a_heading_is_named_as_browsers_name_it() {
        let found: Vec<_> = anchors("## Over io_uring\ntext\n# `run`: how, why?\n").collect();
        assert_eq!(found, ["over-io_uring", "run-how-why"]);
    }
}
