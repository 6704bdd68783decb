//! The first table of docs/benchmarks.md: a line for each of the tables below it.
//!
//! `summary.tsv` names the figure of each table, and the figure that it is compared with.

use std::cmp::Ordering;
use std::path::Path;

use super::document;
use xtask::published::{self, PublishedTable, SUMMARY, Section};

const LINES: &str = include_str!("summary.tsv");

/// Writes the table to its place on the page.
pub(super) fn write(root: &Path) -> Result<(), String> {
    document::replace(&published::page(root), SUMMARY, &text(&published::read(root)?, LINES)?)
}

/// One line of `summary.tsv`.
struct Line<'a> {
    what: &'a str,
    section: &'a Section,
    table: &'a PublishedTable,
    row: &'a str,
    column: &'a str,
    is_more_better: bool,
    peers: &'a str,
}

fn text(sections: &[Section], lines: &str) -> Result<String, String> {
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    let lines: Vec<_> = lines.map(|text| line(sections, text)).collect::<Result<_, _>>()?;
    untold(sections, &lines)?;
    let targets: Vec<_> = lines.iter().flat_map(|line| &line.table.targets).collect();
    let reached = targets.iter().filter(|is_reached| ***is_reached).count();
    let rows: Vec<_> = lines.iter().map(Line::text).collect::<Result<_, _>>()?;
    Ok(format!(
        "| what | ours | best peer | ours ÷ peer | targets | measured |\n\
         | --- | --- | --- | --- | --- | --- |\n{}\n\n\
         {reached} of {} targets are reached.",
        rows.join("\n"),
        targets.len()
    ))
}

/// One of our figures, relative to the best peer's.
pub(super) struct Ratio {
    pub(super) what: String,
    /// The name of the peer; empty if the table itself has a ratio.
    pub(super) peer: String,
    pub(super) ratio: f64,
    pub(super) is_more_better: bool,
}

/// The ratios of all lines that have one.
pub(super) fn ratios(sections: &[Section]) -> Result<Vec<Ratio>, String> {
    let lines = LINES.lines().filter(|line| !line.starts_with('#'));
    let ratios = lines.map(|text| line(sections, text)?.ratio());
    Ok(ratios.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

fn line<'a>(sections: &'a [Section], text: &'a str) -> Result<Line<'a>, String> {
    let [what, section, table, row, column, better, peers] =
        text.split('\t').collect::<Vec<_>>()[..]
    else {
        return Err(format!("summary.tsv: not seven columns: {text}"));
    };
    let (section, table) = published::table(sections, section, table)?;
    Ok(Line { what, section, table, row, column, is_more_better: better == "more", peers })
}

/// Returns an error for a table with targets but without a line: its targets would go unnoticed.
fn untold(sections: &[Section], lines: &[Line<'_>]) -> Result<(), String> {
    let is_told = |table: &PublishedTable| lines.iter().any(|line| std::ptr::eq(line.table, table));
    let tables = sections.iter().flat_map(|section| &section.tables);
    match tables.into_iter().find(|table| !table.targets.is_empty() && !is_told(table)) {
        Some(table) => Err(format!("summary.tsv has no line for the table {}", table.title)),
        None => Ok(()),
    }
}

impl Line<'_> {
    fn text(&self) -> Result<String, String> {
        let ours = self.figure(self.row, self.column)?;
        let (own, peer, ratio) = match (self.peers, self.best_peer()?) {
            ("=", _) => (String::new(), String::new(), format!("{ours:.2}")),
            (_, None) => (ours.to_string(), String::new(), String::new()),
            (_, Some((name, best))) => {
                let name = name.split(',').next().unwrap_or(&name);
                (ours.to_string(), format!("{best}, {name}"), format!("{:.2}", ours / best))
            }
        };
        let (targets, day) = (verdict(&self.table.targets), &self.section.day);
        Ok(format!("| {} | {own} | {peer} | {ratio} | {targets} | {day} |", self.what))
    }

    fn ratio(&self) -> Result<Option<Ratio>, String> {
        let ours = self.figure(self.row, self.column)?;
        let (peer, ratio) = match (self.peers, self.best_peer()?) {
            ("=", _) => (String::new(), ours),
            (_, None) => return Ok(None),
            (_, Some((name, best))) => {
                (name.split(',').next().unwrap_or_default().to_owned(), ours / best)
            }
        };
        let is_more_better = self.is_more_better;
        Ok(Some(Ratio { what: self.what.to_owned(), peer, ratio, is_more_better }))
    }

    fn figure(&self, row: &str, column: &str) -> Result<f64, String> {
        let cell = self.table.cell(row, column)?;
        published::number(cell).ok_or_else(|| format!("{}: no figure in {cell}", self.what))
    }

    /// The peer with the best figure, and the figure.
    fn best_peer(&self) -> Result<Option<(String, f64)>, String> {
        let mut peers = Vec::new();
        for name in self.peer_names() {
            let is_row = self.table.rows.iter().any(|cells| cells[0] == name);
            let figure = if is_row {
                self.figure(&name, self.column)?
            } else {
                self.figure(self.row, &name)?
            };
            peers.push((name, figure));
        }
        let better = |a: &(String, f64), b: &(String, f64)| -> Ordering {
            let order = a.1.total_cmp(&b.1);
            if self.is_more_better { order } else { order.reverse() }
        };
        Ok(peers.into_iter().max_by(better))
    }

    fn peer_names(&self) -> Vec<String> {
        let rows = self.table.rows.iter().map(|cells| cells[0].clone());
        match self.peers {
            "" | "=" => Vec::new(),
            "*" => rows.filter(|name| !name.starts_with("thruway")).collect(),
            names => names.split("; ").map(str::to_owned).collect(),
        }
    }
}

/// The number of a table's targets that are reached.
fn verdict(targets: &[bool]) -> String {
    let reached = targets.iter().filter(|is_reached| **is_reached).count();
    match targets.len() {
        0 => String::new(),
        all if reached == all => "reached".into(),
        1 => "**missed**".into(),
        all => format!("**missed** {} of {all}", all - reached),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an error if the table on the page does not follow from its sections.
    fn check(root: &Path) -> Result<(), String> {
        let expected = text(&published::read(root)?, LINES)?;
        let page =
            std::fs::read_to_string(published::page(root)).map_err(|error| error.to_string())?;
        let is_there =
            page.contains(&format!("<!-- {SUMMARY} -->\n{expected}\n<!-- end {SUMMARY} -->"));
        let cure = "the first table of docs/benchmarks.md is not that of the tables below it: \
                    run cargo x bench --summary";
        is_there.then_some(()).ok_or_else(|| cure.into())
    }

    #[test]
    fn the_page_opens_with_the_summary_of_its_tables() {
        assert_eq!(check(&xtask::root()), Ok(()));
    }

    fn sections() -> Vec<Section> {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let table = PublishedTable {
            title: "Short".into(),
            columns: row(&["server", "requests/s"]),
            rows: vec![
                row(&["thruway", "300 ± 5 %"]),
                row(&["a", "100"]),
                row(&["b", "200 ± 1 %"]),
            ],
            targets: vec![true, false],
        };
        vec![Section { name: "s".into(), day: "2026-11-21".into(), tables: vec![table] }]
    }

    #[test]
    fn the_best_peer_depends_on_which_way_is_better() {
        let lines = "# a comment\nmore\ts\tShort\tthruway\trequests\tmore\t*\n\
                     less\ts\tShort\tthruway\trequests\tless\t*\nratio\ts\tShort\tb\trequests\tless\t=\n\
                     alone\ts\tShort\tthruway\trequests\tless\t";
        let text = text(&sections(), lines).expect("the lines are well made");
        let expected = "| more | 300 | 200, b | 1.50 | **missed** 1 of 2 | 2026-11-21 |\n\
                        | less | 300 | 100, a | 3.00 | **missed** 1 of 2 | 2026-11-21 |\n\
                        | ratio |  |  | 200.00 | **missed** 1 of 2 | 2026-11-21 |\n\
                        | alone | 300 |  |  | **missed** 1 of 2 | 2026-11-21 |\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.ends_with("\n\n4 of 8 targets are reached."), "{text}");
    }

    #[test]
    fn a_table_with_targets_and_no_line_is_an_error() {
        let error = text(&sections(), "# nothing").unwrap_err();
        assert_eq!(error, "summary.tsv has no line for the table Short");
    }
}
