//! The pictures of docs/benchmarks.md: the figures of the tables as bars, one file per table.
//!
//! `plots.tsv` names the table and the column of each picture; the first picture shows the first table of the page.
//! Each is an SVG without scripts, in the reader's light or dark colours.

mod chart;

use std::fs;
use std::path::Path;

use super::document;
use super::summary::{self, Ratio};
use chart::{Bar, Chart};
use xtask::published::{self, PLOTS, PublishedTable, SUMMARY, Section};

const LINES: &str = include_str!("plots.tsv");
const FOLDER: &str = "docs/pictures";
/// The factor beyond which bars are cut off: one long bar would make all others short.
const FACTOR_MAX: f64 = 32.0;

/// A picture.
struct Plot {
    /// The name without the folder.
    file: String,
    title: String,
    text: String,
}

/// Draws all pictures, and shows them below the first table of the page.
pub(super) fn write(root: &Path) -> Result<(), String> {
    let plots = plots(&published::read(root)?, LINES)?;
    let folder = root.join(FOLDER);
    let failed = |path: &Path, error| format!("{}: {error}", path.display());
    fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    for plot in &plots {
        let path = folder.join(&plot.file);
        fs::write(&path, &plot.text).map_err(|error| failed(&path, error))?;
    }
    document::insert_after(&published::page(root), SUMMARY, PLOTS)?;
    document::replace(&published::page(root), PLOTS, &section(&plots))
}

/// The path of a picture from the page.
fn picture_path(plot: &Plot) -> String {
    format!("pictures/{}", plot.file)
}

fn section(plots: &[Plot]) -> String {
    let lines = plots.iter().map(|plot| format!("![{}]({})", plot.title, picture_path(plot)));
    lines.collect::<Vec<_>>().join("\n\n")
}

fn plots(sections: &[Section], lines: &str) -> Result<Vec<Plot>, String> {
    let mut plots = vec![overview(&summary::ratios(sections)?)];
    for line in lines.lines().filter(|line| !line.starts_with('#')) {
        plots.push(plot(sections, line)?);
    }
    Ok(plots)
}

/// Draws how many times better or worse each figure is than that of its best peer.
fn overview(ratios: &[Ratio]) -> Plot {
    let title = "Thruway beside its best peer: times better (right) or worse (left)".to_owned();
    let bars = ratios.iter().map(|ratio| {
        let factor = if ratio.is_more_better { ratio.ratio } else { 1.0 / ratio.ratio };
        let length = factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX).log2() / FACTOR_MAX.log2();
        Bar {
            name: ratio.what.replace('`', ""),
            figure: format!("{} {}", times(factor), peer_of(ratio)),
            length,
            is_ours: true,
        }
    });
    Plot {
        file: "overview.svg".into(),
        text: Chart { title: &title, bars: bars.collect() }.svg(),
        title,
    }
}

/// The name of the peer. Some tables name no peer: their cell is a ratio to the best one.
fn peer_of(ratio: &Ratio) -> &str {
    if ratio.peer.is_empty() { "the best" } else { &ratio.peer }
}

/// Formats a factor such as `2.2 ×`, whichever side is better.
fn times(factor: f64) -> String {
    let times = factor.max(1.0 / factor);
    if times >= 9.95 { format!("{times:.0} ×") } else { format!("{times:.1} ×") }
}

fn plot(sections: &[Section], line: &str) -> Result<Plot, String> {
    let [file, title, section, table, column, better] = line.split('\t').collect::<Vec<_>>()[..]
    else {
        return Err(format!("plots.tsv: not six columns: {line}"));
    };
    let (_, table) = published::table(sections, section, table)?;
    let title = format!("{title} ({better} is better)");
    let bars = bars(table, column)?;
    Ok(Plot { file: format!("{file}.svg"), text: Chart { title: &title, bars }.svg(), title })
}

/// A bar for each row with a figure.
fn bars(table: &PublishedTable, column: &str) -> Result<Vec<Bar>, String> {
    let mut rows = Vec::new();
    for row in &table.rows {
        let cell = table.cell(&row[0], column)?;
        let figure = cell.split(" ± ").next().unwrap_or(cell).to_owned();
        rows.extend(published::number(cell).map(|number| (row[0].clone(), figure, number)));
    }
    let largest = rows.iter().map(|row| row.2).fold(0.0, f64::max);
    let bars = rows.into_iter().map(|(name, figure, number)| Bar {
        is_ours: name.starts_with("thruway"),
        name,
        figure,
        length: (number / largest).max(0.0),
    });
    Ok(bars.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an error if a picture on the page differs from its table.
    fn check(root: &Path) -> Result<(), String> {
        let page = published::page(root);
        let page = fs::read_to_string(page).map_err(|error| error.to_string())?;
        for plot in plots(&published::read(root)?, LINES)? {
            let path = root.join(FOLDER).join(&plot.file);
            let is_shown = page.contains(&format!("({})", picture_path(&plot)));
            if is_shown && fs::read_to_string(&path).ok().as_deref() != Some(plot.text.as_str()) {
                return Err(format!(
                    "{FOLDER}/{} is not that of its table: run cargo x bench --summary",
                    plot.file
                ));
            }
        }
        Ok(())
    }

    #[test]
    fn the_pictures_show_the_tables_of_the_page() {
        assert_eq!(check(&xtask::root()), Ok(()));
    }

    #[test]
    fn a_row_without_a_figure_has_no_bar() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let table = PublishedTable {
            title: "Short".into(),
            columns: row(["server", "p99 ms"]),
            rows: vec![row(["ours", "0.42"]), row(["b", "–"])],
            targets: Vec::new(),
        };
        let section =
            Section { name: "a-short".into(), day: "2026-11-21".into(), tables: vec![table] };
        let sections = [section];
        let line = "short\tShort\ta-short\tShort\tp99\tless";
        let plot = plot(&sections, line).expect("the table has the column");
        assert_eq!(plot.title, "Short (less is better)");
        assert!(plot.text.contains(">ours<") && !plot.text.contains(">b<"), "{}", plot.text);
        let absent = "short\tShort\ta-short\tShort\tno such column\tless";
        assert!(super::plot(&sections, absent).is_err());
    }

    #[test]
    fn a_figure_that_is_half_as_good_goes_as_far_to_the_left() {
        let ratio = |ratio, is_more_better| Ratio {
            what: "a & b".into(),
            peer: "c".into(),
            ratio,
            is_more_better,
        };
        let plot = overview(&[ratio(2.0, true), ratio(0.5, false), ratio(2.0, false)]);
        let widths: Vec<_> = plot.text.split("width=\"").skip(3).collect();
        assert!(widths.windows(2).all(|two| two[0][..4] == two[1][..4]), "{}", plot.text);
        assert_eq!(plot.text.matches("class=\"worse\"").count(), 1);
        assert_eq!(plot.text.matches("2.0 × c").count(), 3);
        assert!(plot.text.contains("a &amp; b") && !plot.text.contains("a & b"));
    }
}
