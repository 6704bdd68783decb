//! Checks of the project's own text: links have targets, lines fit, figures match the tables, and
//! tables of functions name tests. The quality of the
//! English is left to readers.

mod figures;
mod functions;
mod links;
mod page;
mod widths;

use std::path::Path;

use clap::{Args, ValueEnum};

use page::{Breach, pages};

/// Check the project's own text: links, lines, figures from tables
#[derive(Debug, Args)]
pub(crate) struct Text {
    /// Checks to make [default: all]
    #[arg(value_enum)]
    only: Vec<Look>,
    /// Show the number of lines per file instead of the lines
    #[arg(long)]
    count: bool,
}

/// A check of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Look {
    /// Links in Markdown without a target
    Links,
    /// Lines that are too long
    Widths,
    /// Figures that differ from the tables
    Figures,
    /// Rows of tables of functions without a test
    Functions,
}

impl Text {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let looks = if self.only.is_empty() { Look::value_variants() } else { &self.only };
        let breaches: Vec<_> = looks.iter().flat_map(|look| breaches(root, *look)).collect();
        let text = if self.count { counts(&breaches) } else { lines(&breaches) };
        if breaches.is_empty() {
            return Ok(());
        }
        Err(format!("{} lines\n{text}", breaches.len()))
    }
}

/// Returns the breaches of one check below `root`.
pub(crate) fn breaches(root: &Path, look: Look) -> Vec<Breach> {
    let pages = pages(root);
    match look {
        Look::Links => links::breaches(root, &pages),
        Look::Widths => widths::breaches(&pages),
        Look::Figures => figures::breaches(root, &pages),
        Look::Functions => functions::breaches(root, &pages),
    }
}

fn lines(breaches: &[Breach]) -> String {
    let line =
        |breach: &Breach| format!("{}:{}: {}", breach.path.display(), breach.line, breach.what);
    breaches.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// One line per file, in the order of the files.
fn counts(breaches: &[Breach]) -> String {
    let files = breaches.chunk_by(|a, b| a.path == b.path);
    let line = |file: &[Breach]| format!("{:5} {}", file.len(), file[0].path.display());
    files.map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_leads_somewhere() {
        assert_eq!(lines(&breaches(&crate::root(), Look::Links)), "");
    }

    #[test]
    fn every_marked_figure_is_that_of_its_table() {
        assert_eq!(lines(&breaches(&crate::root(), Look::Figures)), "");
    }

    #[test]
    fn every_function_of_a_peer_has_a_test_or_a_reason() {
        assert_eq!(lines(&breaches(&crate::root(), Look::Functions)), "");
    }

    #[test]
    fn breaches_are_counted_by_file() {
        let breach = |path: &str, line| page::page(path, "").breach(line, "long".into());
        let all = [breach("a.md", 1), breach("a.md", 3), breach("b.md", 2)];
        assert_eq!(counts(&all), "    2 a.md\n    1 b.md");
        assert_eq!(lines(&all[..1]), "a.md:1: long");
    }
}
