//! Compares two recordings: which look-ups became fewer and which became more.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::kind::SearchKind;
use super::names::Name;
use super::report::Report;
use super::tally::Analysis;
use super::text::text;

/// A count before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CountChange {
    /// The name of the count.
    pub what: String,
    /// The count in the first recording.
    pub before: u64,
    /// The count in the second recording.
    pub after: u64,
}

/// The differences between two recordings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The totals, whether they differ or not.
    pub sums: Vec<CountChange>,
    /// Look-ups by searched folder, or else by the folder of the name; largest change first.
    pub folders: Vec<CountChange>,
    /// System calls; largest change first.
    pub calls: Vec<CountChange>,
    /// The number of names that only the first recording looked up.
    pub gone: u64,
    /// The number of names that only the second recording looked up.
    pub new: u64,
}

impl Comparison {
    /// Compares two recordings, given their reports.
    #[must_use]
    pub fn new(before: (&Analysis, &Report), after: (&Analysis, &Report)) -> Self {
        let bases: HashSet<&str> = [before.1, after.1].into_iter().flat_map(bases).collect();
        let asked = |analysis: &Analysis| asked_names(analysis);
        let (old, new) = (asked(before.0), asked(after.0));
        Self {
            sums: sums(before.1, after.1),
            folders: changes(&by_folder(before.0, &bases), &by_folder(after.0, &bases)),
            calls: changes(&by_call(before.1), &by_call(after.1)),
            gone: old.difference(&new).count() as u64,
            new: new.difference(&old).count() as u64,
        }
    }
}

impl CountChange {
    /// Returns the size of the change, regardless of its direction.
    #[must_use]
    pub fn difference(&self) -> u64 {
        self.before.abs_diff(self.after)
    }
}

/// Returns the folders of known search paths.
fn bases(report: &Report) -> impl Iterator<Item = &str> {
    let known = report.searches.iter().filter(|search| search.kind != SearchKind::Other);
    known.flat_map(|search| &search.folders).map(|folder| folder.path.as_str())
}

fn asked_names(analysis: &Analysis) -> HashSet<Vec<u8>> {
    let names = &analysis.names;
    let asked = names.all().filter(|name| names.counts(*name).asked > 0);
    asked.map(|name| names.path(name)).collect()
}

fn sums(before: &Report, after: &Report) -> Vec<CountChange> {
    let (before, after) = (&before.totals, &after.totals);
    let change = |what: &str, before, after| CountChange { what: what.to_owned(), before, after };
    vec![
        change("names asked for", before.lookups, after.lookups),
        change("not there", before.missed, after.missed),
        change("not a link", before.unlinked, after.unlinked),
        change("found", before.found, after.found),
        change("asked again", before.again, after.again),
        change("files opened", before.opened, after.opened),
        change("calls", before.calls, after.calls),
        change("processes", before.processes, after.processes),
        change("wall_ns", before.wall_ns, after.wall_ns),
    ]
}

/// Counts look-ups by the nearest of these folders, or else by the folder of the name.
fn by_folder(analysis: &Analysis, bases: &HashSet<&str>) -> BTreeMap<String, u64> {
    let names = &analysis.names;
    let bases: HashSet<_> = bases.iter().filter_map(|base| names.find(base.as_bytes())).collect();
    let mut sums: HashMap<Name, u64> = HashMap::new();
    // A folder has a smaller index than its content, so its base is known here.
    let mut nearest: Vec<Option<Name>> = Vec::new();
    for name in names.all() {
        let parent = names.parent(name);
        let above = nearest.get(parent.index()).copied().flatten();
        *sums.entry(above.unwrap_or(parent)).or_default() += u64::from(names.counts(name).asked);
        nearest.push(if bases.contains(&name) { Some(name) } else { above });
    }
    sums.into_iter().map(|(name, sum)| (text(&names.path(name)), sum)).collect()
}

fn by_call(report: &Report) -> BTreeMap<String, u64> {
    report.calls.iter().map(|count| (count.call.to_owned(), count.calls)).collect()
}

/// Returns the counts that differ; largest difference first.
fn changes(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<CountChange> {
    let all: HashSet<_> = before.keys().chain(after.keys()).collect();
    let count =
        |counts: &BTreeMap<String, u64>, what: &String| counts.get(what).copied().unwrap_or(0);
    let change = |what: &String| CountChange {
        what: what.clone(),
        before: count(before, what),
        after: count(after, what),
    };
    let mut changes: Vec<_> = all.into_iter().map(change).collect();
    changes.retain(|change| change.difference() > 0);
    changes.sort_by(|one, other| {
        other.difference().cmp(&one.difference()).then_with(|| one.what.cmp(&other.what))
    });
    changes
}
