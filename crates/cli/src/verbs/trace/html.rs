//! The report as a single page that contains its style, script and data, and loads nothing else.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};
use thruway_sys::printable;
use thruway_trace::Frame;
use thruway_trace::analysis::{
    Analysis, Counts, Name, Names, Report, SearchPath, StackCount, shell_line,
};

use super::stacks::{asking_frames, frame_text, unread_interpreters};
use crate::output::Failure;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The names in the page's table, in order of waste: some 3 MB.
const NAMES_SHOWN: usize = 50_000;

pub(super) fn page(analysis: &Analysis, report: &Report) -> Result<Vec<u8>, Failure> {
    let data = serde_json::to_string(&printed(data(analysis, report)))
        .map_err(|error| Failure::new(format_args!("cannot write the page: {error}")))?;
    // `</script>` in the data would end the script element.
    let data = data.replace('<', "\\u003c");
    let page = PAGE.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", SCRIPT);
    Ok(page.replace("/*DATA*/", &data).into_bytes())
}

/// Escapes the control characters of all texts, and the direction marks, which a page obeys too.
fn printed(value: Value) -> Value {
    match value {
        Value::String(text) => printable::text(&text).into(),
        Value::Array(values) => values.into_iter().map(printed).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, printed(value))).collect()
        }
        other => other,
    }
}

fn data(analysis: &Analysis, report: &Report) -> Value {
    let names = analysis.names();
    let folders = Folders::new(names);
    let (rows, left_out) = rows(names, &folders);
    let (stacks, frames) = stacks(&report.stacks);
    let left_out_stacks = report.cuts.iter().find(|cut| cut.list == "stack");
    json!({
        "line": shell_line(&report.totals.command),
        "totals": report.totals,
        "advice": report.advice,
        "searches": report.searches.iter().map(search).collect::<Vec<_>>(),
        "calls": report.calls,
        "buckets": report.buckets,
        "bucket_ns": report.bucket_ns,
        "folders": folders.rows(names),
        "names": rows,
        "names_left_out": left_out,
        "started": started(analysis.header().started),
        "stacks": stacks,
        "stacks_left_out": left_out_stacks.map_or(0, |cut| cut.all - cut.shown),
        "frames": frames,
        "unread_interpreters": unread_interpreters(&report.stacks),
    })
}

#[derive(Serialize)]
struct TitledSearch<'a> {
    title: &'static str,
    #[serde(flatten)]
    search: &'a SearchPath,
}

fn search(search: &SearchPath) -> Value {
    json!(TitledSearch { title: search.kind.title(), search })
}

/// Returns a row for each stack, and the texts of all frames, to which the rows refer.
fn stacks(stacks: &[StackCount]) -> (Vec<Value>, Vec<String>) {
    let (mut numbers, mut texts) = (HashMap::new(), Vec::new());
    let mut number = |frame: &Frame| {
        let text = frame_text(frame);
        *numbers.entry(text).or_insert_with_key(|text| {
            texts.push(text.clone());
            texts.len() - 1
        })
    };
    let mut row = |stack: &StackCount| {
        let frames: Vec<_> = asking_frames(stack).iter().map(&mut number).collect();
        json!([stack.asked, stack.missed, stack.opened, stack.name, frames])
    };
    let rows = stacks.iter().map(&mut row).collect();
    (rows, texts)
}

/// The folders that contain names, with the sums of all names below them.
struct Folders {
    /// The place of each name among the folders, if the name is a folder.
    places: Vec<Option<usize>>,
    names: Vec<Name>,
    sums: Vec<Sum>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    asked: u64,
    missed: u64,
    wasted: u64,
    opened: u64,
}

impl Folders {
    fn new(names: &Names) -> Self {
        let mut is_folder = vec![false; names.count()];
        is_folder[Name::ROOT.index()] = true;
        for name in names.all().filter(|name| *name != Name::ROOT) {
            is_folder[names.parent(name).index()] = true;
        }
        let all: Vec<_> = names.all().filter(|name| is_folder[name.index()]).collect();
        let mut places = vec![None; is_folder.len()];
        for (place, name) in all.iter().enumerate() {
            places[name.index()] = Some(place);
        }
        let mut folders = Self { places, sums: vec![Sum::default(); all.len()], names: all };
        folders.add_up(names);
        folders
    }

    /// Adds up the counts of names. A folder precedes its contents, so going backwards, every sum is complete before it
    /// is added to the sum of the parent.
    fn add_up(&mut self, names: &Names) {
        for name in names.all().filter(|name| *name != Name::ROOT) {
            let parent = self.place(names.parent(name));
            self.sums[parent].add(&Sum::of(names.counts(name)));
        }
        for place in (1..self.names.len()).rev() {
            let sum = self.sums[place];
            let parent = self.place(names.parent(self.names[place]));
            self.sums[parent].add(&sum);
        }
    }

    fn place(&self, folder: Name) -> usize {
        self.places[folder.index()].unwrap_or(0)
    }

    fn rows(&self, names: &Names) -> Vec<Value> {
        let row = |(name, sum): (&Name, &Sum)| {
            let (parent, text) = (self.place(names.parent(*name)), text(names, *name));
            json!([parent, text, sum.asked, sum.missed, sum.wasted, sum.opened])
        };
        self.names.iter().zip(&self.sums).map(row).collect()
    }
}

impl Sum {
    fn of(counts: &Counts) -> Self {
        Self {
            asked: counts.asked.into(),
            missed: counts.missed.into(),
            wasted: counts.wasted().into(),
            opened: counts.opened.into(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.missed += other.missed;
        self.wasted += other.wasted;
        self.opened += other.opened;
    }
}

/// Returns a row for each requested name, and the number of names that are left out.
fn rows(names: &Names, folders: &Folders) -> (Vec<Value>, usize) {
    let asked = |name: &Name| *name != Name::ROOT && names.counts(*name).asked > 0;
    let mut all: Vec<_> = names.all().filter(asked).collect();
    let left_out = all.len().saturating_sub(NAMES_SHOWN);
    if left_out > 0 {
        all.sort_by_key(|name| {
            std::cmp::Reverse((names.counts(*name).wasted(), names.counts(*name).asked))
        });
        all.truncate(NAMES_SHOWN);
    }
    let row = |name: Name| {
        let Counts { asked, missed, unlinked, checked, opened, .. } = *names.counts(name);
        let folder = folders.place(names.parent(name));
        json!([folder, text(names, name), asked, missed, unlinked, checked, opened])
    };
    (all.into_iter().map(row).collect(), left_out)
}

fn text(names: &Names, name: Name) -> String {
    String::from_utf8_lossy(names.component(name)).into_owned()
}

/// Formats seconds since 1970 as a date and a time of day, in UTC.
fn started(seconds: u64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // The days since 1 March of the year 0, in cycles of 400 years.
    let days = day + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = cycle * 400 + year + later;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_its_date() {
        assert_eq!(started(0), "1970-01-01 00:00 UTC");
        assert_eq!(started(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(started(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(started(1_767_225_599), "2025-12-31 23:59 UTC");
    }

    #[test]
    fn the_page_asks_for_nothing_from_elsewhere() {
        for text in [PAGE, STYLE, SCRIPT] {
            let elsewhere = ["src=", "href=", "url(", "@import", "fetch(", "XMLHttp", "import("];
            assert!(elsewhere.iter().all(|piece| !text.contains(piece)));
            let links =
                text.matches("://").count() - text.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(links, 0);
        }
    }
}
