//! The results of an analysis: plain numbers and names, ready for display.

use std::num::NonZeroU32;

use serde::Serialize;

use super::disk::Disk;
use super::kind::SearchKind;
use super::maps::HashMap;
use super::names::{Counts, Name, Names};
use super::stacks::StackCount;
use super::tally::{Analysis, ProgramTally, Tally};
use super::text::text;
use super::timeline::Bucket;
use crate::call::{CALLS, CallKind};
use crate::{Backend, Change, Outcome};

/// The results of an analysis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The totals.
    #[serde(flatten)]
    pub totals: Totals,
    /// Counts of each system call; most frequent first.
    #[serde(skip)]
    pub calls: Vec<CallCount>,
    /// Search paths; most misses first.
    #[serde(skip)]
    pub searches: Vec<SearchPath>,
    /// Folders by the look-ups wasted on names directly in them; most first.
    #[serde(skip)]
    pub folders: Vec<Folder>,
    /// Suffixes; most misses first.
    #[serde(skip)]
    pub suffixes: Vec<Suffix>,
    /// Names that were looked up more than once; most frequent first.
    #[serde(skip)]
    pub repeated: Vec<RepeatedName>,
    /// Stacks that look-ups come from, if they were recorded; most look-ups first.
    #[serde(skip)]
    pub stacks: Vec<StackCount>,
    /// Programs; most look-ups first.
    #[serde(skip)]
    pub programs: Vec<Program>,
    /// Advice on how to avoid wasted look-ups; largest saving first.
    #[serde(skip)]
    pub advice: Vec<Advice>,
    /// Whether `PATH` is left as it is because its folders are not on the disk of this machine.
    #[serde(skip)]
    pub is_elsewhere: bool,
    /// Commands that are in no folder of `PATH`, though all folders were searched for them; most misses first.
    #[serde(skip)]
    pub absent_commands: Vec<AbsentCommand>,
    /// Lists that were shortened.
    #[serde(skip)]
    pub cuts: Vec<Cut>,
    /// Look-ups over time.
    #[serde(skip)]
    pub buckets: Vec<Bucket>,
    /// The duration of a bucket, in nanoseconds.
    #[serde(skip)]
    pub bucket_ns: u64,
}

/// A command that is in no folder of `PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AbsentCommand {
    /// The name of the command.
    pub command: String,
    /// The number of look-ups for the command.
    pub missed: u64,
}

/// A list that was shortened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// The name of the list: `folder`, `suffix`, `repeated` or `stack`.
    pub list: &'static str,
    /// The number of entries in the report.
    pub shown: u64,
    /// The number of entries before shortening.
    pub all: u64,
}

/// Totals of a recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Totals {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The mechanism that recorded the calls.
    pub backend: Backend,
    /// The exit status of the command, if it exited.
    pub status: Option<u8>,
    /// The signal that killed the command, if any.
    pub signal: Option<i32>,
    /// Whether the recording ends before the command.
    pub is_cut_short: bool,
    /// The run time of the command, in nanoseconds.
    pub wall_ns: u64,
    /// An estimate of the run time without tracing, in nanoseconds.
    pub untraced_ns: u64,
    /// The number of calls in strace's class `%file`.
    pub calls: u64,
    /// The number of failed calls among them.
    pub failed: u64,
    /// The number of calls with a name.
    pub lookups: u64,
    /// Successful look-ups.
    pub found: u64,
    /// Look-ups that failed because the file does not exist.
    pub missed: u64,
    /// Readings of a link that failed because the file is not a link.
    pub unlinked: u64,
    /// Look-ups that failed for any other reason.
    pub refused: u64,
    /// Look-ups without use: the file does not exist, is not a link, or had been queried before.
    pub wasted: u64,
    /// Look-ups of a name that had been looked up before.
    pub again: u64,
    /// The number of different names.
    pub names: u64,
    /// Whether there were more names than the analysis can distinguish, in which case `again` and `wasted`
    /// are too small.
    pub is_names_full: bool,
    /// The number of opens of files.
    pub opened: u64,
    /// Opens of a file that had been opened before.
    pub opened_again: u64,
    /// Files opened or executed just after the same thread had queried them.
    pub checked_then_opened: u64,
    /// Readings of links, including of files that are not links.
    pub link_reads: u64,
    /// The runs of such readings that follow one path from folder to folder, as `realpath` does.
    pub link_walks: u64,
    /// Different names among these readings.
    pub link_names: u64,
    /// Readings of a folder's entries.
    pub lists: u64,
    /// The total duration of all look-ups, in nanoseconds; `None` if it includes stops for the tracer.
    pub lookups_ns: Option<u64>,
    /// The part of `lookups_ns` spent on missing files.
    pub missed_ns: Option<u64>,
    /// The number of processes, including the command or the processes that were attached to.
    pub processes: u64,
    /// The number of additional threads.
    pub threads: u64,
    /// The number of times a program stopped for the tracer.
    pub stops: u64,
    /// The number of calls that the tracer recorded itself.
    pub traced: u64,
    /// The number of io_uring instances. Look-ups through them bypass system calls and are not counted.
    pub rings: u64,
    /// Programs with the set-user-ID or set-group-ID bit, which ran without the rights that these grant.
    pub without_rights: Vec<String>,
}

/// Counts of a system call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallCount {
    /// The name of the call.
    pub call: &'static str,
    /// Whether the call is in strace's class `%file`.
    pub is_file_class: bool,
    /// The number of calls.
    pub calls: u64,
    /// The number of failed calls.
    pub failed: u64,
    /// The total duration of all calls, in nanoseconds.
    #[serde(rename = "took_ns")]
    pub duration_ns: u64,
    /// Failures by error number.
    pub errors: Vec<(i32, u64)>,
}

/// A list of folders that were searched for names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchPath {
    /// The kind of search path.
    pub kind: SearchKind,
    /// Misses in all folders.
    pub missed: u64,
    /// The folders; most misses first.
    pub folders: Vec<SearchedFolder>,
    /// The number of folders in which nothing was found.
    pub unused: u64,
    /// Misses in those folders.
    pub unused_missed: u64,
}

/// A folder of a search path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchedFolder {
    /// The path of the folder.
    pub path: String,
    /// Misses in the folder and below. Each miss counts for the nearest folder of a search path above it.
    pub missed: u64,
    /// Opens of files there.
    pub opened: u64,
    /// Successful look-ups there.
    pub found: u64,
    /// Whether a search found something in the folder.
    pub is_used: bool,
}

/// A folder, with the look-ups of names directly in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Folder {
    /// The path of the folder.
    pub path: String,
    /// The number of look-ups.
    pub asked: u64,
    /// Look-ups that missed.
    pub missed: u64,
    /// Look-ups without use.
    pub wasted: u64,
    /// Opens of files.
    pub opened: u64,
}

/// A suffix with its dot; empty for names without a suffix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Suffix {
    /// The suffix.
    pub suffix: String,
    /// Look-ups that missed.
    pub missed: u64,
    /// Successful look-ups.
    pub found: u64,
}

/// A name that was looked up more than once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepeatedName {
    /// The name.
    pub name: String,
    /// The number of look-ups, except readings as a link when the file is not a link.
    pub asked: u64,
    /// The number of misses.
    pub missed: u64,
    /// The number of opens.
    pub opened: u64,
}

/// A program, summed over its processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// The name without folder.
    pub program: String,
    /// The number of starts.
    pub starts: u64,
    /// The number of look-ups.
    pub lookups: u64,
    /// Look-ups that missed.
    pub missed: u64,
}

/// Advice that would avoid look-ups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The change, in a few words.
    pub title: String,
    /// The number of look-ups saved, at most.
    pub saves: u64,
    /// The line or the words, exactly as they are to be used.
    pub how: String,
    /// The use of `how`.
    pub form: AdviceForm,
    /// A caveat to consider before following the advice.
    pub note: Option<String>,
}

/// The way in which advice is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AdviceForm {
    /// A line for a shell, to run once before the command.
    Setting,
    /// A line for a shell, to run in the place of the command.
    Command,
    /// Words to leave out of the place that they come from, such as the options in a makefile.
    Edit,
}

impl Advice {
    pub(super) fn new(form: AdviceForm, title: impl Into<String>, saves: u64, how: String) -> Self {
        Self { title: title.into(), saves, how, form, note: None }
    }
}

/// The most entries of a list in the report.
const LIST_MAX: usize = 1000;

impl Analysis {
    /// Returns the report without advice, for a recording with this outcome.
    pub(super) fn findings(&mut self, outcome: &Outcome, disk: &dyn Disk) -> Report {
        for thread in std::mem::take(&mut self.threads).into_values() {
            self.bases.push(&thread.search, &self.names);
        }
        let (bucket_ns, buckets) = self.timeline.buckets();
        let mut cuts = Vec::new();
        let mut stacks = self.stacks.counts();
        cut(&mut stacks, "stack", &mut cuts);
        Report {
            totals: Totals { without_rights: self.without_rights(disk), ..self.totals(outcome) },
            calls: self.call_counts(),
            searches: self.search_paths(),
            folders: self.folders(&mut cuts),
            suffixes: self.suffix_counts(&mut cuts),
            repeated: self.repeated(&mut cuts),
            stacks,
            programs: self.program_counts(),
            advice: Vec::new(),
            is_elsewhere: false,
            absent_commands: Vec::new(),
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
        // If many calls stopped, their durations measure the tracer rather than the calls.
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
            processes: tally.processes + self.header.attached.len().max(1) as u64,
            threads: tally.threads,
            stops: outcome.stops,
            traced: outcome.traced,
            rings: self.made(CallKind::Ring),
            without_rights: Vec::new(),
        }
    }

    /// Returns programs that lost their rights: the kernel withholds set-user-ID rights from a traced program
    /// unless the tracer is root.
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
        // The position of each folder's sum, counted from 1.
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

    fn repeated(&self, cuts: &mut Vec<Cut>) -> Vec<RepeatedName> {
        // Walks along a path read the folders at its start most often, and are reported separately.
        let asked = |name: &Name| {
            let counts = self.names.counts(*name);
            counts.asked - counts.unlinked
        };
        let mut again: Vec<_> = self.names.all().filter(|name| asked(name) > 1).collect();
        again.sort_by_key(|name| (std::cmp::Reverse(asked(name)), *name));
        cut(&mut again, "repeated", cuts);
        let repeated = |name: Name| {
            let counts = self.names.counts(name);
            RepeatedName {
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

/// Shortens a list that is too long, and records the fact.
fn cut<T>(all: &mut Vec<T>, list: &'static str, cuts: &mut Vec<Cut>) {
    if all.len() > LIST_MAX {
        cuts.push(Cut { list, shown: LIST_MAX as u64, all: all.len() as u64 });
        all.truncate(LIST_MAX);
    }
}

/// Sums over many names, which may exceed the counters of one name.
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

/// Returns the sums below each of these folders, except for names closer to another of them.
pub(super) fn below(
    names: &Names,
    bases: impl IntoIterator<Item = Name>,
) -> HashMap<Name, Counts64> {
    let is_base = names.marks(bases);
    let mut sums = vec![(Name::ROOT, Counts64::default())];
    // The position of the sum for the content of each name. A folder precedes its content.
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

/// Returns the run time without the cost of recording: that of stops, and that of calls recorded without a
/// stop.
fn untraced_ns(events: u64, outcome: &Outcome) -> u64 {
    const STOP_NS: u64 = 12_000;
    const NOTED_NS: u64 = 180;
    let noted = events.saturating_sub(outcome.traced);
    outcome.wall_ns.saturating_sub(outcome.stops * STOP_NS + noted * NOTED_NS)
}
