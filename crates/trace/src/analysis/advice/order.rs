//! Advice to reorder `PATH`. Every command must stay the same file, including commands on the disk that the
//! recording does not mention.

use super::super::disk::Listing;
use super::super::names::Name;
use super::context::{Context, SAVES_MIN, search};
use crate::analysis::kind::SearchKind;
use crate::analysis::maps::HashMap;
use crate::analysis::report::{Advice, AdviceForm};
use crate::analysis::text::{quoted, text};

/// A folder of `PATH`.
struct Entry<'a> {
    text: &'a str,
    name: Option<Name>,
    /// The names that the command found in the folder.
    found: Vec<&'a [u8]>,
    listing: Option<Listing>,
}

/// The reason why a folder stays in its place.
enum Conflict {
    /// A later folder has the same name for a different file.
    Shadows(Vec<u8>, String),
    /// The content of the folder is unknown.
    Unknown,
}

const TITLE: &str = "folders of PATH in the order of their use";

/// Advises to move unused folders to the end of `PATH`, unless one shares a name with a later folder. Used
/// folders keep their order.
pub(super) fn command_path(context: &Context<'_>) -> Option<Advice> {
    search(context.report, SearchKind::Commands)?;
    let path = context.analysis.header.variable("PATH")?;
    let (entries, is_candidate) = candidates(context)?;
    if context.report.is_elsewhere {
        return None;
    }
    let (is_moved, mut notes) = moved(context, &entries, &is_candidate);
    let part = |wanted: bool| {
        let with = entries.iter().zip(&is_moved).filter(move |(_, moved)| **moved == wanted);
        with.map(|(entry, _)| entry.text)
    };
    let order = part(false).chain(part(true)).collect::<Vec<_>>().join(":");
    notes.truncate(1);
    (order != path).then(|| Advice {
        note: notes.pop(),
        ..Advice::new(
            AdviceForm::Setting,
            TITLE,
            saved(context, &entries, &is_moved),
            format!("export PATH={}", quoted(&order)),
        )
    })
}

impl Entry<'_> {
    fn path(&self) -> &[u8] {
        trimmed(self.text).as_bytes()
    }

    /// Relative folders depend on the working directory.
    fn is_absolute(&self) -> bool {
        self.text.starts_with('/')
    }

    /// Whether the command found something in a folder that the disk lacks.
    fn is_gone(&self) -> bool {
        self.listing == Some(Listing::Missing) && !self.found.is_empty()
    }

    /// Returns the number of found names that the folder lacks.
    fn missing(&self) -> usize {
        let Some(Listing::Names(names)) = &self.listing else { return 0 };
        self.found.iter().filter(|found| !names.contains(**found)).count()
    }
}

/// Lists the folders on the disk, and returns which of them may move. Returns `None`, without listing them, if a new
/// order would save too little.
fn candidates<'a>(context: &Context<'a>) -> Option<(Vec<Entry<'a>>, Vec<bool>)> {
    let mut entries = entries(context, context.analysis.header.variable("PATH")?);
    let is_candidate: Vec<_> =
        entries.iter().map(|entry| entry.found.is_empty() && entry.is_absolute()).collect();
    if saved(context, &entries, &is_candidate) < SAVES_MIN {
        return None;
    }
    for entry in &mut entries {
        entry.listing = entry.is_absolute().then(|| context.disk.list(entry.path()));
    }
    Some((entries, is_candidate))
}

/// Whether another order of `PATH` could save look-ups, but the recording comes from another machine's disk.
pub(super) fn is_elsewhere(context: &Context<'_>) -> bool {
    let is_searched = search(context.report, SearchKind::Commands).is_some();
    let is_other = || candidates(context).is_some_and(|(entries, _)| lacks_found(&entries));
    is_searched && !context.disk.is_recorded_disk() && is_other()
}

/// Whether the disk lacks a folder, or most names that the command found. A few files may have been removed
/// since the recording.
fn lacks_found(entries: &[Entry<'_>]) -> bool {
    let found: usize = entries.iter().map(|entry| entry.found.len()).sum();
    let missing: usize = entries.iter().map(Entry::missing).sum();
    entries.iter().any(Entry::is_gone) || 2 * missing > found
}

fn trimmed(folder: &str) -> &str {
    let trimmed = folder.trim_end_matches('/');
    if trimmed.is_empty() && !folder.is_empty() { "/" } else { trimmed }
}

/// Returns the folders without repetitions. The second of two equal folders never provides anything.
fn entries<'a>(context: &Context<'a>, path: &'a str) -> Vec<Entry<'a>> {
    let names = &context.analysis.names;
    let mut entries: Vec<Entry<'a>> = Vec::new();
    for text in path.split(':') {
        if !entries.iter().any(|entry| trimmed(entry.text) == trimmed(text)) {
            let name = names.find(trimmed(text).as_bytes()).filter(|_| text.starts_with('/'));
            entries.push(Entry { text, name, found: Vec::new(), listing: None });
        }
    }
    let places = places(&entries);
    let is_folder = names.marks(places.keys().copied());
    for name in names.all().filter(|name| is_folder[names.parent(*name).index()]) {
        if names.counts(name).found() > 0
            && let Some(place) = places.get(&names.parent(name))
        {
            entries[*place].found.push(names.component(name));
        }
    }
    entries
}

/// Returns the index of the entry for each name.
fn places(entries: &[Entry<'_>]) -> HashMap<Name, usize> {
    let known = entries.iter().enumerate();
    known.filter_map(|(place, entry)| Some((entry.name?, place))).collect()
}

/// Counts misses in folders that would move, for names that a later folder has.
fn saved(context: &Context<'_>, entries: &[Entry<'_>], is_moved: &[bool]) -> u64 {
    let names = &context.analysis.names;
    let places = places(entries);
    let is_folder = names.marks(places.keys().copied());
    let mut last: HashMap<&[u8], usize> = HashMap::default();
    for (place, entry) in entries.iter().enumerate() {
        last.extend(entry.found.iter().map(|found| (*found, place)));
    }
    let missed = names.all().filter(|name| names.counts(*name).missed > 0);
    let inside = missed.filter(|name| is_folder[names.parent(*name).index()]);
    let saved = inside.filter(|name| {
        let place = places.get(&names.parent(*name)).copied().unwrap_or(0);
        is_moved[place] && last.get(names.component(*name)).is_some_and(|last| *last > place)
    });
    saved.map(|name| u64::from(names.counts(name).missed)).sum()
}

/// Decides which folders move to the end, and notes why other candidates stay.
fn moved(
    context: &Context<'_>,
    entries: &[Entry<'_>],
    is_candidate: &[bool],
) -> (Vec<bool>, Vec<String>) {
    let (mut is_moved, mut notes) = (is_candidate.to_vec(), Vec::new());
    // Going backwards, all folders that stay behind this one are decided.
    for place in (0..entries.len()).rev().filter(|place| is_candidate[*place]) {
        let behind = (place + 1..entries.len()).filter(|behind| !is_moved[*behind]);
        let conflict =
            behind.filter_map(|behind| conflict(context, &entries[place], &entries[behind])).next();
        is_moved[place] = conflict.is_none();
        let folder = entries[place].text;
        notes.extend(conflict.map(|conflict| match conflict {
            Conflict::Shadows(name, other) => {
                format!("{folder} stays before {other}: both have {}", text(&name))
            }
            Conflict::Unknown => format!("{folder} stays: what is in it cannot be compared"),
        }));
    }
    notes.reverse();
    (is_moved, notes)
}

/// Returns the reason why one folder must stay in front of another.
fn conflict(context: &Context<'_>, one: &Entry<'_>, other: &Entry<'_>) -> Option<Conflict> {
    let (Some(here), Some(there)) = (&one.listing, &other.listing) else {
        return Some(Conflict::Unknown);
    };
    let (Listing::Names(here), Listing::Names(there)) = (here, there) else {
        let is_empty = |one: &Listing| match one {
            Listing::Missing => true,
            Listing::Unknown => false,
            Listing::Names(names) => names.is_empty(),
        };
        return (!is_empty(here) && !is_empty(there)).then_some(Conflict::Unknown);
    };
    if context.disk.is_same(one.path(), other.path()) {
        return None;
    }
    let in_folder = |folder: &[u8], name: &[u8]| [folder, b"/", name].concat();
    let (few, many) = if here.len() < there.len() { (here, there) } else { (there, here) };
    let differs = |name: &&Vec<u8>| {
        !context.disk.is_same(&in_folder(one.path(), name), &in_folder(other.path(), name))
    };
    // The smallest name, so that reports are reproducible.
    let shared = few.iter().filter(|name| many.contains(*name)).filter(differs).min()?;
    Some(Conflict::Shadows(shared.clone(), other.text.to_owned()))
}
