//! Compares two recordings, on a terminal or as JSON.

use std::fmt::Write;

use serde::Serialize;
use thruway_trace::analysis::{Comparison, CountChange, Report, shell_line};

use super::canvas::{Canvas, Ink, percent};
use super::json::VERSION;
use crate::output::Failure;
use crate::units::{thousands, time};

/// The lines of a list on one screen, and with `--all`.
const SHOWN: usize = 12;
const ALL_SHOWN: usize = 200;
/// The width of a number, and of one on a narrow screen.
const NUMBER: usize = 13;
const NUMBER_NARROW: usize = 10;
/// The width of a share.
const SHARE: usize = 8;

pub(super) fn text(
    comparison: &Comparison,
    [before, after]: [&Report; 2],
    canvas: &Canvas,
    all: bool,
) -> String {
    let mut text = String::new();
    let room = canvas.width.saturating_sub(10);
    for (which, report) in [("before", before), ("after", after)] {
        let command = canvas.cut(&shell_line(&report.totals.command), room);
        let _ = writeln!(text, "{}  {command}", canvas.paint(Ink::Heading, &format!("{which:<6}")));
    }
    table(&mut text, canvas, "", &comparison.sums);
    let shown = if all { ALL_SHOWN } else { SHOWN };
    let list = |changes: &[CountChange]| changes.iter().take(shown).cloned().collect::<Vec<_>>();
    table(&mut text, canvas, "LOOK-UPS BY FOLDER", &list(&comparison.folders));
    table(&mut text, canvas, "SYSTEM CALLS", &list(&comparison.calls));
    let (gone, new) = (thousands(comparison.gone), thousands(comparison.new));
    let names = format!("{gone} names are no longer asked for, {new} are new");
    let _ = writeln!(text, "\n  {}", canvas.paint(Ink::Faint, &names));
    canvas.finished(&text)
}

fn table(text: &mut String, canvas: &Canvas, title: &str, changes: &[CountChange]) {
    if changes.is_empty() {
        return;
    }
    let number = number_width(canvas);
    let room = canvas.width.saturating_sub(4 + 3 * number + SHARE);
    let title = canvas.paint(Ink::Heading, &canvas.fit(title, room + 2));
    let heads = format!("{:>number$}{:>number$}{:>number$}", "before", "after", "change");
    let _ = writeln!(text, "\n  {title}{}", canvas.paint(Ink::Faint, &heads));
    for change in changes {
        let _ = writeln!(text, "{}", row(canvas, change, room));
    }
}

fn number_width(canvas: &Canvas) -> usize {
    if canvas.is_narrow() { NUMBER_NARROW } else { NUMBER }
}

fn row(canvas: &Canvas, change: &CountChange, room: usize) -> String {
    let number = number_width(canvas);
    let is_time = change.what.ends_with("_ns");
    let shown = |number: u64| if is_time { time(number) } else { thousands(number) };
    let label = if is_time { "time" } else { &change.what };
    let (sign, ink) = match change.before.cmp(&change.after) {
        std::cmp::Ordering::Equal => ("", Ink::Faint),
        std::cmp::Ordering::Greater => ("−", Ink::Use),
        std::cmp::Ordering::Less => ("+", Ink::Waste),
    };
    let difference = match change.difference() {
        0 => "–".to_owned(),
        difference => format!("{sign}{}", shown(difference)),
    };
    let share = match (change.before, change.difference()) {
        (0, _) | (_, 0) => String::new(),
        (before, difference) => {
            format!("{sign}{}", percent(difference, before))
        }
    };
    let difference = canvas.paint(ink, &format!("{difference:>number$}{share:>SHARE$}"));
    let (before, after) = (shown(change.before), shown(change.after));
    format!("    {}{before:>number$}{after:>number$}{difference}", canvas.fit(label, room))
        .trim_end()
        .to_owned()
}

/// Returns the version of the format, and then a line for each change: its group, and the numbers.
pub(super) fn json(comparison: &Comparison) -> Result<Vec<u8>, Failure> {
    #[derive(Serialize)]
    struct Line<'a> {
        group: &'static str,
        #[serde(flatten)]
        change: &'a CountChange,
    }
    let groups =
        [("sum", &comparison.sums), ("folder", &comparison.folders), ("call", &comparison.calls)];
    let mut text = format!("{{\"group\":\"comparison\",\"version\":{VERSION}}}\n").into_bytes();
    for (group, change) in
        groups.iter().flat_map(|(group, all)| all.iter().map(move |one| (*group, one)))
    {
        serde_json::to_writer(&mut text, &Line { group, change })
            .map_err(|error| Failure::new(format_args!("cannot write JSON: {error}")))?;
        text.push(b'\n');
    }
    Ok(text)
}
