//! Checks that lines fit on a screen.

use super::page::{Breach, Page};

/// The maximum number of columns in a line of code.
const CODE_COLUMNS_MAX: usize = 120;

/// The maximum number of columns in a line of Markdown, including rows of tables.
const MARKDOWN_COLUMNS_MAX: usize = 160;

pub(super) fn breaches(pages: &[Page]) -> Vec<Breach> {
    pages.iter().flat_map(too_long).collect()
}

fn too_long(page: &Page) -> Vec<Breach> {
    let columns_max = if page.is_markdown() { MARKDOWN_COLUMNS_MAX } else { CODE_COLUMNS_MAX };
    let long = page.lines().map(|(number, line)| (number, line.chars().count()));
    let long = long.filter(|(_, columns)| *columns > columns_max);
    long.map(|(number, columns)| page.breach(number, format!("{columns} columns"))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::page::page;
    use super::*;

    #[test]
    fn code_ends_at_120_and_markdown_at_160_columns() {
        let found = |path, text: &str| too_long(&page(path, text)).len();
        assert_eq!(found("a.rs", &"ü".repeat(120)), 0);
        assert_eq!(found("a.rs", &"ü".repeat(121)), 1);
        assert_eq!(found("a.md", &"x".repeat(160)), 0);
        assert_eq!(found("a.md", &format!("x\n{}", "x".repeat(161))), 1);
        assert_eq!(found("a.md", &format!("| {} |", "x".repeat(161))), 1);
    }
}
