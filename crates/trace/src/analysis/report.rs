//! What the counts come to: plain numbers and names, ready to be shown.

use std::num::NonZeroU32;

use serde::Serialize;

use super::disk::Disk;
use super::kind::SearchKind;
use super::maps::HashMap;
use super::names::{Counts, Name, Names};
use super::tally::{Analysis, ProgramTally, Tally};
use super::text::text;
use super::timeline::Bucket;
use crate::call::{CALLS, CallKind};
use crate::{Backend, Change, Outcome};

/// What a recording shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Numbers of the whole.
    #[serde(flatten)]
    pub totals: Totals,
    /// By system call, the most frequent first.
    #[serde(skip)]
    pub calls: Vec<CallCount>,
    /// Search paths, the most misses first.
    #[serde(skip)]
    pub searches: Vec<SearchPath>,
    /// Folders by the look-ups wasted on what is directly in them, the most first.
    #[serde(skip)]
    pub folders: Vec<Folder>,
    /// Suffixes, the most misses first.
    #[serde(skip)]
    pub suffixes: Vec<Suffix>,
    /// Names that were asked for again, the most often first.
    #[serde(skip)]
    pub repeated: Vec<Repeated>,
    /// Programs, the most look-ups first.
    #[serde(skip)]
    pub programs: Vec<Program>,
    /// What would fix it, the most saved first.
    #[serde(skip)]
    pub advice: Vec<Advice>,
    /// Lists that were longer than is shown.
    #[serde(skip)]
    pub cuts: Vec<Cut>,
    /// Look-ups over time.
    #[serde(skip)]
    pub buckets: Vec<Bucket>,
    /// How long a bucket is.
    #[serde(skip)]
    pub bucket_ns: u64,
}

/// A list of which only the beginning is in the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Which list: `folder`, `suffix` or `repeated`.
    pub list: &'static str,
    /// How many of it are in the report.
    pub shown: u64,
    /// How many there are.
    pub all: u64,
}

/// Numbers of a whole recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Totals {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// How calls were noted.
    pub backend: Backend,
    /// The command's exit status, if it had one.
    pub status: Option<u8>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Whether the recording ends before the command.
    pub is_cut_short: bool,
    /// How long the command ran, in nanoseconds.
    pub wall_ns: u64,
    /// How long it would have run, as far as one can tell.
    pub untraced_ns: u64,
    /// Calls of strace's class `%file`.
    pub calls: u64,
    /// Those that ended with an error.
    pub failed: u64,
    /// Calls that asked for a name.
    pub lookups: u64,
    /// Answered by what is there.
    pub found: u64,
    /// Answered by "there is no such file".
    pub missed: u64,
    /// Answered by "this is no symbolic link".
    pub unlinked: u64,
    /// Answered by any other error.
    pub refused: u64,
    /// Whose answer was of no use: what missed, what is no link, and what had been asked before.
    pub wasted: u64,
    /// For a name that had been asked for before.
    pub again: u64,
    /// Different names.
    pub names: u64,
    /// Whether there were more names than are kept apart; `again` and `wasted` are then too small.
    pub is_names_full: bool,
    /// Files that were opened: how often, and how many of them for the second or a later time.
    pub opened: u64,
    /// Opens of a file that had been opened before.
    pub opened_again: u64,
    /// Files opened or started that the same thread had checked just before.
    pub checked_then_opened: u64,
    /// Links that were read, or taken for links.
    pub link_reads: u64,
    /// In how many walks along a path.
    pub link_walks: u64,
    /// Different names among them.
    pub link_names: u64,
    /// Readings of a folder's entries.
    pub lists: u64,
    /// The sum of the time of all look-ups, in nanoseconds; none where stops for the tracer are in
    /// it.
    pub lookups_ns: Option<u64>,
    /// The part of those that missed.
    pub missed_ns: Option<u64>,
    /// Processes, the command among them.
    pub processes: u64,
    /// Further threads.
    pub threads: u64,
    /// How often a program was stopped for the tracer.
    pub stops: u64,
    /// Calls that the tracer noted itself.
    pub traced: u64,
    /// Rings of io_uring that were made. Look-ups through them are no calls, and in no count.
    pub rings: u64,
    /// Programs with set-user-ID or set-group-ID bits, which ran without the rights that these give.
    pub without_rights: Vec<String>,
}

/// A system call's numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallCount {
    /// Its name.
    pub call: &'static str,
    /// Whether strace counts it in its class `%file`.
    pub is_file_class: bool,
    /// How often it was made.
    pub calls: u64,
    /// How often it failed.
    pub failed: u64,
    /// How long all took together, in nanoseconds.
    #[serde(rename = "took_ns")]
    pub duration_ns: u64,
    /// Failures by error number.
    pub errors: Vec<(i32, u64)>,
}

/// A list of folders that were searched for names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchPath {
    /// Which search path it is.
    pub kind: SearchKind,
    /// Misses in all of them.
    pub missed: u64,
    /// Its folders, the most misses first.
    pub folders: Vec<SearchedFolder>,
    /// How many of them gave nothing at all.
    pub unused: u64,
    /// The misses of those.
    pub unused_missed: u64,
}

/// A folder of a search path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchedFolder {
    /// Its path.
    pub path: String,
    /// Misses in it and below, as far as no other folder is nearer.
    pub missed: u64,
    /// Files opened there.
    pub opened: u64,
    /// Other questions that were answered by what is there.
    pub found: u64,
    /// Whether it gave anything that was searched for.
    pub is_used: bool,
}

/// A folder and what was asked of the names directly in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Folder {
    /// Its path.
    pub path: String,
    /// Look-ups.
    pub asked: u64,
    /// Those that missed.
    pub missed: u64,
    /// Those whose answer was of no use.
    pub wasted: u64,
    /// Files opened.
    pub opened: u64,
}

/// A suffix, with its dot; empty for names without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Suffix {
    /// The suffix.
    pub suffix: String,
    /// Look-ups that missed.
    pub missed: u64,
    /// Look-ups that were answered by what is there.
    pub found: u64,
}

/// A name that was asked for more than once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repeated {
    /// The name.
    pub name: String,
    /// How often it was asked for, other than as a link that it is not.
    pub asked: u64,
    /// How often it was not there.
    pub missed: u64,
    /// How often it was opened.
    pub opened: u64,
}

/// A program, whatever processes it ran in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its name, without folder.
    pub program: String,
    /// How often it was started.
    pub starts: u64,
    /// Its look-ups.
    pub lookups: u64,
    /// Those that missed.
    pub missed: u64,
}

/// Something that would save look-ups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What is to be done, in a few words.
    pub title: String,
    /// How many look-ups it saves, at most.
    pub saves: u64,
    /// The command or the setting.
    pub how: String,
    /// The title of the advice that saves these as well.
    pub part_of: Option<String>,
    /// What else is to be known before it is followed.
    pub note: Option<String>,
}

impl Advice {
    pub(super) fn new(title: impl Into<String>, saves: u64, how: String) -> Self {
        Self { title: title.into(), saves, how, part_of: None, note: None }
    }
}

/// What is shown of long lists is taken from this many.
const LIST_MAX: usize = 1000;

impl Analysis {
    /// What has come so far, of a recording with this outcome, without advice.
    pub(super) fn findings(&mut self, outcome: &Outcome, disk: &dyn Disk) -> Report {
        for thread in std::mem::take(&mut self.threads).into_values() {
            self.bases.push(&thread.search, &self.names);
        }
        let (bucket_ns, buckets) = self.timeline.buckets();
        let mut cuts = Vec::new();
        Report {
            totals: Totals { without_rights: self.without_rights(disk), ..self.totals(outcome) },
            calls: self.call_counts(),
            searches: self.search_paths(),
            folders: self.folders(&mut cuts),
            suffixes: self.suffix_counts(&mut cuts),
            repeated: self.repeated(&mut cuts),
            programs: self.program_counts(),
            advice: Vec::new(),
            cuts,
            buckets: buckets.to_vec(),
            bucket_ns,
        }
    }

    fn totals(&self, outcome: &Outcome) -> Totals {
        let tally = &self.tally;
        let Tally { lookups, missed, unlinked, refused, .. } = *tally;
        let mut whole = Counts64::default();
        for name in self.names.all() {
            whole.add(self.names.counts(name));
        }
        // Where every other call stopped, its time says more about the tracer.
        let is_timed = outcome.traced * 10 <= tally.events;
        let (status, signal) = match outcome.end {
            Some(Change::Exited(status)) => (Some(status), None),
            Some(Change::Killed(signal)) => (None, Some(signal)),
            _ => (None, None),
        };
        Totals {
            command: self.header.command.clone(),
            backend: self.header.backend,
            status,
            signal,
            is_cut_short: outcome.is_cut_short,
            wall_ns: outcome.wall_ns,
            untraced_ns: untraced_ns(tally.events, outcome),
            calls: tally.file_calls,
            failed: tally.file_failures,
            lookups,
            found: lookups - missed - unlinked - refused,
            missed,
            unlinked,
            refused,
            wasted: whole.wasted,
            again: tally.again,
            names: whole.names,
            is_names_full: self.names.is_full(),
            opened: tally.opened,
            opened_again: tally.opened_again,
            checked_then_opened: tally.checked_then_opened,
            link_reads: tally.link_reads,
            link_walks: tally.link_walks,
            link_names: whole.unlinked_names,
            lists: tally.lists,
            lookups_ns: is_timed.then_some(tally.lookups_ns),
            missed_ns: is_timed.then_some(tally.missed_ns),
            processes: tally.processes + 1,
            threads: tally.threads,
            stops: outcome.stops,
            traced: outcome.traced,
            rings: self.made(CallKind::Ring),
            without_rights: Vec::new(),
        }
    }

    /// The kernel takes those rights from a program that is traced, unless the tracer is root.
    fn without_rights(&self, disk: &dyn Disk) -> Vec<String> {
        let Some(user) = self.header.user.filter(|user| *user != 0) else {
            return Vec::new();
        };
        let programs = self.executed.iter().map(|name| self.names.path(*name));
        let programs = programs.filter(|program| disk.has_rights(program, user));
        let mut programs: Vec<_> = programs.map(|program| text(&program)).collect();
        programs.sort();
        programs
    }

    fn call_counts(&self) -> Vec<CallCount> {
        let counts = CALLS.iter().zip(&self.calls).filter(|(_, count)| count.calls > 0);
        let mut counts: Vec<_> = counts
            .map(|(call, count)| {
                let mut errors: Vec<_> =
                    count.errors.iter().map(|(errno, n)| (*errno, *n)).collect();
                errors.sort_unstable();
                CallCount {
                    call: call.name,
                    is_file_class: call.is_file_class,
                    calls: count.calls,
                    failed: errors.iter().map(|(_, count)| count).sum(),
                    duration_ns: count.duration_ns,
                    errors,
                }
            })
            .collect();
        counts.sort_by_key(|count| (std::cmp::Reverse(count.calls), count.call));
        counts
    }

    fn search_paths(&self) -> Vec<SearchPath> {
        let bases = self.bases.all(&self.names);
        let below = below(&self.names, bases.keys().copied());
        let mut paths: HashMap<SearchKind, Vec<SearchedFolder>> = HashMap::default();
        for (name, kind) in &bases {
            let counts = below.get(name).copied().unwrap_or_default();
            let is_checked = kind.is_satisfied_by_checks() && counts.found > 0;
            paths.entry(*kind).or_default().push(SearchedFolder {
                path: text(&self.names.path(*name)),
                missed: counts.missed,
                opened: counts.opened,
                found: counts.found,
                is_used: counts.opened > 0 || is_checked,
            });
        }
        let mut paths: Vec<_> =
            paths.into_iter().map(|(kind, folders)| path(kind, folders)).collect();
        paths.sort_by_key(|path| (std::cmp::Reverse(path.missed), path.kind));
        paths
    }

    fn folders(&self, cuts: &mut Vec<Cut>) -> Vec<Folder> {
        let mut sums: Vec<(Name, Counts64)> = Vec::new();
        // Where each folder's sum is.
        let mut places: Vec<Option<NonZeroU32>> = vec![None; self.names.count()];
        for name in self.names.all().filter(|name| *name != Name::ROOT) {
            let folder = self.names.parent(name);
            let place = places[folder.index()].unwrap_or_else(|| {
                sums.push((folder, Counts64::default()));
                NonZeroU32::MIN.saturating_add(sums.len() as u32 - 1)
            });
            places[folder.index()] = Some(place);
            sums[place.get() as usize - 1].1.add(self.names.counts(name));
        }
        sums.retain(|(_, sum)| sum.wasted > 0);
        sums.sort_by_key(|(name, sum)| (std::cmp::Reverse(sum.wasted), *name));
        cut(&mut sums, "folder", cuts);
        let folder = |(name, sum): (Name, Counts64)| Folder {
            path: text(&self.names.path(name)),
            asked: sum.asked,
            missed: sum.missed,
            wasted: sum.wasted,
            opened: sum.opened,
        };
        sums.into_iter().map(folder).collect()
    }

    fn suffix_counts(&self, cuts: &mut Vec<Cut>) -> Vec<Suffix> {
        let missed = self.suffixes.iter().filter(|(_, tally)| tally.missed > 0);
        let mut suffixes: Vec<_> = missed
            .map(|(suffix, tally)| Suffix {
                suffix: text(suffix),
                missed: tally.missed,
                found: tally.found,
            })
            .collect();
        suffixes.sort_by(|one, other| {
            other.missed.cmp(&one.missed).then_with(|| one.suffix.cmp(&other.suffix))
        });
        cut(&mut suffixes, "suffix", cuts);
        suffixes
    }

    fn repeated(&self, cuts: &mut Vec<Cut>) -> Vec<Repeated> {
        // Walks along a path ask for the folders at its start most often, and are told of elsewhere.
        let asked = |name: &Name| {
            let counts = self.names.counts(*name);
            counts.asked - counts.unlinked
        };
        let mut again: Vec<_> = self.names.all().filter(|name| asked(name) > 1).collect();
        again.sort_by_key(|name| (std::cmp::Reverse(asked(name)), *name));
        cut(&mut again, "repeated", cuts);
        let repeated = |name: Name| {
            let counts = self.names.counts(name);
            Repeated {
                name: text(&self.names.path(name)),
                asked: asked(&name).into(),
                missed: counts.missed.into(),
                opened: counts.opened.into(),
            }
        };
        again.into_iter().map(repeated).collect()
    }

    fn program_counts(&self) -> Vec<Program> {
        let program = |tally: &ProgramTally| Program {
            program: text(&tally.name),
            starts: tally.starts,
            lookups: tally.lookups,
            missed: tally.missed,
        };
        let active =
            self.programs.iter().filter(|program| program.lookups > 0 || program.starts > 0);
        let mut programs: Vec<_> = active.map(program).collect();
        programs.sort_by(|one, other| {
            other.lookups.cmp(&one.lookups).then_with(|| one.program.cmp(&other.program))
        });
        programs
    }
}

/// Shortens a list that is too long, and notes it.
fn cut<T>(all: &mut Vec<T>, list: &'static str, cuts: &mut Vec<Cut>) {
    if all.len() > LIST_MAX {
        cuts.push(Cut { list, shown: LIST_MAX as u64, all: all.len() as u64 });
        all.truncate(LIST_MAX);
    }
}

/// Sums that may exceed what one name can have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts64 {
    names: u64,
    pub(super) asked: u64,
    missed: u64,
    wasted: u64,
    pub(super) opened: u64,
    pub(super) found: u64,
    unlinked_names: u64,
}

impl Counts64 {
    fn add(&mut self, counts: &Counts) {
        self.names += u64::from(counts.asked > 0);
        self.asked += u64::from(counts.asked);
        self.missed += u64::from(counts.missed);
        self.wasted += u64::from(counts.wasted());
        self.opened += u64::from(counts.opened);
        self.found += u64::from(counts.found());
        self.unlinked_names += u64::from(counts.unlinked > 0);
    }
}

/// What was asked below each of these folders, as far as no other of them is nearer.
pub(super) fn below(
    names: &Names,
    bases: impl IntoIterator<Item = Name>,
) -> HashMap<Name, Counts64> {
    let is_base = names.marks(bases);
    let mut sums = vec![(Name::ROOT, Counts64::default())];
    // Where the sum of what is in each name is; a folder comes before what is in it.
    let mut places: Vec<u32> = Vec::with_capacity(is_base.len());
    for name in names.all() {
        let above = if name == Name::ROOT { 0 } else { places[names.parent(name).index()] };
        sums[above as usize].1.add(names.counts(name));
        places.push(if is_base[name.index()] { sums.len() as u32 } else { above });
        if is_base[name.index()] {
            sums.push((name, Counts64::default()));
        }
    }
    sums.into_iter().skip(1).collect()
}

fn path(kind: SearchKind, mut folders: Vec<SearchedFolder>) -> SearchPath {
    folders.sort_by(|one, other| {
        other.missed.cmp(&one.missed).then_with(|| one.path.cmp(&other.path))
    });
    let unused = folders.iter().filter(|folder| !folder.is_used);
    SearchPath {
        kind,
        missed: folders.iter().map(|folder| folder.missed).sum(),
        unused: unused.clone().count() as u64,
        unused_missed: unused.map(|folder| folder.missed).sum(),
        folders,
    }
}

/// The command's time without what noting costs: a stop, and a call that is noted without one.
fn untraced_ns(events: u64, outcome: &Outcome) -> u64 {
    const STOP_NS: u64 = 12_000;
    const NOTED_NS: u64 = 180;
    let noted = events.saturating_sub(outcome.traced);
    outcome.wall_ns.saturating_sub(outcome.stops * STOP_NS + noted * NOTED_NS)
}
