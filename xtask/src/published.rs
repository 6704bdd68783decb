//! The tables of docs/benchmarks.md as published, for comparison with figures elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

/// The path of the page.
pub fn page(root: &Path) -> PathBuf {
    root.join("docs/benchmarks.md")
}

/// The text between two markers, written by one run.
#[derive(Debug, PartialEq, Eq)]
pub struct Section {
    /// The name in the markers.
    pub name: String,
    /// The day of the run, as year, month and day.
    pub day: String,
    /// The tables in the order of the page.
    pub tables: Vec<PublishedTable>,
}

/// A table, and the targets below it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PublishedTable {
    /// The heading, without the marks of code.
    pub title: String,
    /// The heads of the columns; the first is that of the rows' names.
    pub columns: Vec<String>,
    /// The rows, each with its name first.
    pub rows: Vec<Vec<String>>,
    /// For each measured target, whether it was reached.
    pub targets: Vec<bool>,
}

/// Reads the sections of the page below `root`, except those derived from others.
pub fn read(root: &Path) -> Result<Vec<Section>, String> {
    let page = page(root);
    let text = fs::read_to_string(&page)
        .map_err(|error| format!("cannot read {}: {error}", page.display()))?;
    sections(&text)
}

/// The section that summarizes the others.
pub const SUMMARY: &str = "summary";

/// The section of the pictures, which show the others, too.
pub const PLOTS: &str = "plots";

/// Returns every section of a text between `<!-- NAME -->` and `<!-- end NAME -->`, except those derived from others.
pub fn sections(text: &str) -> Result<Vec<Section>, String> {
    let mut sections = Vec::new();
    for part in text.split("<!-- ").skip(1) {
        let Some((name, body)) = part.split_once(" -->") else { continue };
        if ![SUMMARY, PLOTS].contains(&name) && text.contains(&format!("<!-- end {name} -->")) {
            sections.push(section(name, body)?);
        }
    }
    Ok(sections)
}

fn section(name: &str, body: &str) -> Result<Section, String> {
    let mut tables: Vec<PublishedTable> = Vec::new();
    let mut day = "";
    for line in body.lines() {
        let row = || line.trim_matches('|').split(" | ").map(|cell| plain(cell.trim()));
        match tables.last_mut() {
            _ if line.starts_with("### ") => {
                tables
                    .push(PublishedTable { title: plain(&line[4..]), ..PublishedTable::default() });
            }
            // A table without a heading takes the head of its first column as its title.
            None if line.starts_with('|') => tables.push(PublishedTable {
                title: row().next().unwrap_or_default(),
                columns: row().collect(),
                ..PublishedTable::default()
            }),
            None => day = line.strip_suffix('.').and_then(day_of).unwrap_or(day),
            Some(_) if line.starts_with("| ---") => {}
            Some(table) if line.starts_with('|') && table.columns.is_empty() => {
                table.columns = row().collect();
            }
            Some(table) if line.starts_with('|') => table.rows.push(row().collect()),
            Some(table) => table.targets.extend(target(line)),
        }
    }
    match day {
        "" => Err(format!("{name} does not begin with the day of its run")),
        day => Ok(Section { name: name.to_owned(), day: day.to_owned(), tables }),
    }
}

/// The day in a line such as `2026-11-21: Linux 6.18, 2 processors; load 0.37 before, 1.60 after`.
fn day_of(line: &str) -> Option<&str> {
    let (day, _) = line.split_once(": Linux ")?;
    (day.len() == "2026-11-21".len()).then_some(day)
}

fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// Whether a target was reached; none for other lines, and for unmeasured targets.
fn target(line: &str) -> Option<bool> {
    let verdict = line.trim().strip_prefix("Target ")?;
    match (verdict.ends_with(", reached."), verdict.ends_with(", **missed**.")) {
        (false, false) => None,
        (is_reached, _) => Some(is_reached),
    }
}

/// The table of a section whose title begins with `title`.
pub fn table<'a>(
    sections: &'a [Section],
    name: &str,
    title: &str,
) -> Result<(&'a Section, &'a PublishedTable), String> {
    let section = sections.iter().find(|section| section.name == name);
    let section = section.ok_or_else(|| format!("no section {name}"))?;
    let table = section.tables.iter().find(|table| table.title.starts_with(title));
    Ok((section, table.ok_or_else(|| format!("{name} has no table {title}"))?))
}

impl PublishedTable {
    /// The cell in the named row and in the first column whose head begins with `column`.
    pub fn cell(&self, row: &str, column: &str) -> Result<&str, String> {
        let absent = |what: &str| format!("the table {} has no {what}", self.title);
        let place = self.columns.iter().position(|head| head.starts_with(column));
        let place = place.ok_or_else(|| absent(&format!("column {column}")))?;
        let found = self.rows.iter().find(|cells| cells[0] == row);
        let found = found.ok_or_else(|| absent(&format!("row {row}")))?;
        found.get(place).map(String::as_str).ok_or_else(|| absent(&format!("cell {row}, {column}")))
    }
}

/// The number at the start of a cell, without its spread or unit.
pub fn number(cell: &str) -> Option<f64> {
    cell.split([' ', ',']).next()?.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Benchmarks\n<!-- other -->\n<!-- a-short -->\n\
        2026-11-21: Linux 6.18, 2 processors; load 0.37 before, 1.60 after.\n\n\
        ### Short, `-w 2`\n| server | requests/s | p99 ms |\n| --- | --- | --- |\n\
        | ours | 126707 ± 5 % | 0.42 |\n| `b` | 28736 ± 8 % | – |\n\n\
        Target ≥ 3 × b: 4.41, reached.  \nTarget p99: 0.42, **missed**.  \n\
        Target of another: not measured in this run.\nA note.\n<!-- end a-short -->\n";

    #[test]
    fn a_section_has_its_day_its_tables_and_their_verdicts() {
        let sections = sections(PAGE).expect("it is well made");
        assert_eq!(sections.len(), 1);
        let (section, table) = table(&sections, "a-short", "Short").expect("it is there");
        assert_eq!((section.day.as_str(), table.title.as_str()), ("2026-11-21", "Short, -w 2"));
        assert_eq!(table.targets, [true, false]);
        assert_eq!(table.cell("b", "requests"), Ok("28736 ± 8 %"));
        assert_eq!(number(table.cell("ours", "p99").expect("a cell")), Some(0.42));
        assert_eq!(number(table.cell("b", "p99").expect("a cell")), None);
        assert!(table.cell("c", "p99").unwrap_err().ends_with("has no row c"));
    }

    #[test]
    fn a_section_without_its_day_is_an_error() {
        let error = sections(&PAGE.replace("2026-11-21: ", "")).unwrap_err();
        assert_eq!(error, "a-short does not begin with the day of its run");
    }
}
