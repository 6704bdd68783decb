//! Counts the events of a recording.

use super::kind::{FolderKind, Lookup, SearchKind};
use super::maps::{HashMap, HashSet};
use super::names::{Name, Names};
use super::options;
use super::search::{Bases, Search};
use super::stacks::StackTally;
use super::text::{base_name, suffix};
use super::timeline::Timeline;
use crate::call::{CALLS, CallKind};
use crate::event::{Event, EventKind, Syscall};
use crate::recording::{Header, Sink};

/// An analysis in progress.
#[derive(Debug)]
pub struct Analysis {
    pub(super) header: Header,
    /// The folders of `PATH`.
    pub(super) commands: HashSet<Vec<u8>>,
    pub(super) flags_not_of_files: u32,
    pub(super) names: Names,
    pub(super) bases: Bases,
    pub(super) calls: Vec<CallTally>,
    pub(super) tally: Tally,
    pub(super) suffixes: HashMap<Vec<u8>, SuffixTally>,
    pub(super) stacks: StackTally,
    pub(super) threads: HashMap<i32, ThreadLookups>,
    pub(super) processes: HashMap<i32, usize>,
    pub(super) programs: Vec<ProgramTally>,
    /// Files that were executed.
    pub(super) executed: HashSet<Name>,
    /// Commands that were not found.
    pub(super) commands_missed: HashSet<Name>,
    /// The processes and programs that looked up the time zone's file.
    pub(super) time_zone_readers: HashSet<(i32, usize)>,
    /// The properties of folders in which something was not found.
    pub(super) folders: HashMap<Name, FolderKind>,
    pub(super) timeline: Timeline,
}

/// Counts of a call.
#[derive(Debug, Clone, Default)]
pub(super) struct CallTally {
    pub(super) calls: u64,
    pub(super) duration_ns: u64,
    pub(super) errors: HashMap<i32, u64>,
}

/// Counts of the whole recording.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) events: u64,
    pub(super) file_calls: u64,
    pub(super) file_failures: u64,
    pub(super) lookups: u64,
    pub(super) missed: u64,
    pub(super) unlinked: u64,
    pub(super) refused: u64,
    pub(super) again: u64,
    pub(super) opened: u64,
    pub(super) opened_again: u64,
    pub(super) checked_then_opened: u64,
    pub(super) link_reads: u64,
    pub(super) link_walks: u64,
    pub(super) lists: u64,
    pub(super) lookups_ns: u64,
    pub(super) missed_ns: u64,
    pub(super) processes: u64,
    pub(super) threads: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SuffixTally {
    pub(super) missed: u64,
    pub(super) found: u64,
}

/// A program, summed over its processes.
#[derive(Debug, Clone)]
pub(super) struct ProgramTally {
    /// The name without folder.
    pub(super) name: Vec<u8>,
    /// The search that the program is known for.
    pub(super) searches: SearchKind,
    /// Whether the program searches for commands because a script or a person named them.
    is_shell: bool,
    pub(super) starts: u64,
    pub(super) lookups: u64,
    pub(super) missed: u64,
    /// Folders in its options, such as `-I`.
    pub(super) options: Vec<options::FolderOption>,
}

/// The latest look-ups of a thread.
#[derive(Debug, Default)]
pub(super) struct ThreadLookups {
    pub(super) search: Search,
    /// The name that was just queried successfully.
    pub(super) checked: Option<Name>,
    /// The name that was just read as a link.
    pub(super) link: Option<Name>,
}

/// The result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Found,
    /// The file does not exist.
    Missed,
    /// The file is not a link.
    Unlinked,
    /// Any other error: the file exists, or this is unknown.
    Refused,
}

/// Programs that search for a command because a script or a person named it.
const SHELLS: [&[u8]; 8] = [b"sh", b"dash", b"bash", b"zsh", b"ksh", b"mksh", b"busybox", b"fish"];
/// The file of the time zone, unless `TZ` names another one.
pub(super) const TIME_ZONE: &[u8] = b"/etc/localtime";
/// The most suffixes that are distinguished.
const SUFFIXES_MAX: usize = 1 << 12;
/// The most programs that are distinguished; the last one stands for all others.
const PROGRAMS_MAX: usize = 1 << 10;
/// The most different options kept for a program.
const OPTIONS_MAX: usize = 1 << 12;

impl Analysis {
    /// Creates the analysis of a recording with this header.
    #[must_use]
    pub fn new(header: Header) -> Self {
        let path = header.variable("PATH").unwrap_or_default();
        let commands = path.split(':').map(|folder| folder.trim_end_matches('/').into()).collect();
        let flags_not_of_files = flags_not_of_files(&header.machine);
        Self {
            header,
            commands,
            flags_not_of_files,
            names: Names::default(),
            bases: Bases::default(),
            calls: vec![CallTally::default(); CALLS.len()],
            tally: Tally::default(),
            suffixes: HashMap::default(),
            stacks: StackTally::default(),
            threads: HashMap::default(),
            processes: HashMap::default(),
            programs: vec![ProgramTally::new(b"")],
            executed: HashSet::default(),
            commands_missed: HashSet::default(),
            time_zone_readers: HashSet::default(),
            folders: HashMap::default(),
            timeline: Timeline::default(),
        }
    }

    /// The description of the recording.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The tree of names with their counts.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The number of calls in strace's class `%file` and the number of misses so far.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.tally.file_calls, self.tally.missed)
    }

    /// Whether any process has changed its working directory so far.
    pub(super) fn has_moved(&self) -> bool {
        self.made(CallKind::ChangeDirectory) > 0
    }

    /// Returns the number of successful calls of a kind.
    pub(super) fn made(&self, kind: CallKind) -> u64 {
        let of_kind = CALLS.iter().zip(&self.calls).filter(|(call, _)| call.kind == kind);
        of_kind.map(|(_, tally)| tally.calls - tally.errors.values().sum::<u64>()).sum()
    }

    fn syscall(&mut self, event: &Event<'_>, syscall: &Syscall<'_>) {
        let errno = syscall.errno();
        let count = &mut self.calls[syscall.call.index()];
        count.calls += 1;
        count.duration_ns += syscall.duration_ns;
        if let Some(errno) = errno {
            *count.errors.entry(errno).or_default() += 1;
        }
        if syscall.call.is_file_class {
            self.tally.file_calls += 1;
            self.tally.file_failures += u64::from(errno.is_some());
        }
        self.tally.lists += u64::from(syscall.call.kind == CallKind::List);
        if !syscall.names[0].is_empty() {
            self.looked_up(event, syscall);
        }
    }

    fn looked_up(&mut self, event: &Event<'_>, syscall: &Syscall<'_>) {
        let path = syscall.names[0];
        let answer = Answer::of(syscall);
        let (name, is_exact) = self.names.intern(path);
        self.count(name, is_exact, syscall, answer);
        let program = self.processes.get(&event.process).copied().unwrap_or(0);
        self.programs[program].lookups += 1;
        self.programs[program].missed += u64::from(answer == Answer::Missed);
        if path == TIME_ZONE {
            self.time_zone_readers.insert((event.process, program));
        }
        self.timeline.push(event.at_ns, answer == Answer::Missed);
        let component = base_name(path);
        self.suffix(component, answer);
        if let Some(stack) = syscall.stack {
            let is_opened = self.is_open_of_file(syscall) && answer == Answer::Found;
            let count = self.stacks.count(stack, path);
            count.missed += u64::from(answer == Answer::Missed);
            count.opened += u64::from(is_opened);
        }
        if is_exact {
            self.follow((event.thread, program), syscall, (name, component), answer);
        }
    }

    fn count(&mut self, name: Name, is_exact: bool, syscall: &Syscall<'_>, answer: Answer) {
        let is_open_of_file = self.is_open_of_file(syscall);
        let counts = self.names.counts_mut(name);
        let tally = &mut self.tally;
        tally.lookups += 1;
        tally.lookups_ns += syscall.duration_ns;
        tally.again += u64::from(is_exact && counts.asked > 0);
        counts.asked += 1;
        match answer {
            Answer::Missed => {
                counts.missed += 1;
                tally.missed += 1;
                tally.missed_ns += syscall.duration_ns;
            }
            Answer::Unlinked => {
                counts.unlinked += 1;
                tally.unlinked += 1;
            }
            Answer::Refused => {
                counts.refused += 1;
                tally.refused += 1;
            }
            Answer::Found if is_open_of_file => {
                tally.opened += 1;
                tally.opened_again += u64::from(is_exact && counts.opened > 0);
                counts.opened += 1;
            }
            Answer::Found => {
                let is_check = matches!(
                    syscall.call.kind,
                    CallKind::Status | CallKind::Access | CallKind::ReadLink
                );
                counts.checked += u32::from(is_check && is_exact);
            }
        }
    }

    fn is_open_of_file(&self, syscall: &Syscall<'_>) -> bool {
        syscall.call.kind == CallKind::Open && syscall.flags & self.flags_not_of_files == 0
    }

    fn suffix(&mut self, component: &[u8], answer: Answer) {
        let suffix = suffix(component);
        let missed = u64::from(answer == Answer::Missed);
        let found = u64::from(answer == Answer::Found);
        if let Some(tally) = self.suffixes.get_mut(suffix) {
            tally.missed += missed;
            tally.found += found;
        } else if self.suffixes.len() < SUFFIXES_MAX {
            self.suffixes.insert(suffix.to_vec(), SuffixTally { missed, found });
        }
    }

    /// Relates a look-up to the previous one of the same thread. `component` is the last one of the name.
    fn follow(
        &mut self,
        (thread, program): (i32, usize),
        syscall: &Syscall<'_>,
        (name, component): (Name, &[u8]),
        answer: Answer,
    ) {
        let Self { threads, names, tally, bases, commands, programs, folders, executed, .. } = self;
        let commands_missed = &mut self.commands_missed;
        let thread = threads.entry(thread).or_default();
        let (kind, path) = (syscall.call.kind, syscall.names[0]);
        if matches!(kind, CallKind::Open | CallKind::Execute) && thread.checked == Some(name) {
            tally.checked_then_opened += 1;
        }
        if kind == CallKind::Execute && answer == Answer::Found && executed.len() < PROGRAMS_MAX {
            executed.insert(name);
        }
        let is_check =
            matches!(kind, CallKind::Status | CallKind::Access) && answer == Answer::Found;
        thread.checked = is_check.then_some(name);
        if kind == CallKind::ReadLink {
            tally.link_reads += 1;
            let goes_on = thread.link.is_some_and(|before| names.parent(name) == before);
            tally.link_walks += u64::from(!goes_on);
            thread.link = Some(name);
        }
        let is_shell = programs[program].is_shell;
        let program = programs[program].searches;
        let above = &path[..path.len() - component.len()];
        let (mut folder, mut component) = (names.parent(name), component);
        if program == SearchKind::Node
            && component == b"package.json"
            && names.component(names.parent(folder)) == b"node_modules"
        {
            // Node looks up a package by the file that describes it.
            let path = path.strip_suffix(b"/package.json").unwrap_or(path);
            (folder, component) = (names.parent(folder), base_name(path));
        }
        // After a refused look-up, programs continue with the next folder.
        let is_question = matches!(
            kind,
            CallKind::Open | CallKind::Status | CallKind::Access | CallKind::Execute
        );
        let goes_on = answer == Answer::Missed || answer == Answer::Refused && is_question;
        if goes_on {
            let above = || FolderKind::of(above.strip_suffix(b"/").unwrap_or(above), commands);
            let folder_kind = *folders.entry(names.parent(name)).or_insert_with(above);
            let lookup = Lookup { program, call: kind, folder: folder_kind, component };
            let search_kind = lookup.kind();
            // Other programs may try optional helpers, as Go does with gccgo.
            let is_wanted = kind == CallKind::Execute || is_shell;
            if search_kind == SearchKind::Commands && is_wanted {
                commands_missed.insert(name);
            }
            thread.search.missed(bases, names, (folder, component), search_kind);
        } else {
            thread.search.found(bases, names, (folder, component));
        }
    }

    fn became(&mut self, process: i32, words: &[&[u8]]) {
        let program = words.first().map_or(&b""[..], |word| base_name(word));
        let known = self.programs.iter().position(|known| known.name == program);
        let index = known.unwrap_or_else(|| {
            if self.programs.len() < PROGRAMS_MAX {
                self.programs.push(ProgramTally::new(program));
            }
            self.programs.len() - 1
        });
        self.programs[index].starts += 1;
        let options = options::of(program, words, self.has_moved());
        let known = &mut self.programs[index].options;
        for option in options {
            if known.len() < OPTIONS_MAX && !known.contains(&option) {
                known.push(option);
            }
        }
        self.processes.insert(process, index);
    }
}

impl ProgramTally {
    fn new(name: &[u8]) -> Self {
        Self {
            name: name.to_vec(),
            searches: SearchKind::of_program(name),
            is_shell: SHELLS.contains(&name),
            starts: 0,
            lookups: 0,
            missed: 0,
            options: Vec::new(),
        }
    }
}

impl Sink for Analysis {
    fn event(&mut self, event: &Event<'_>) {
        self.tally.events += 1;
        match &event.kind {
            EventKind::Syscall(syscall) => self.syscall(event, syscall),
            EventKind::Spawn { child, is_thread } => {
                self.tally.threads += u64::from(*is_thread);
                self.tally.processes += u64::from(!is_thread);
                let program = self.processes.get(&event.process).copied();
                if let (Some(program), false) = (program, is_thread) {
                    self.processes.insert(*child, program);
                }
            }
            EventKind::Exec(words) => self.became(event.process, words),
            EventKind::Exit => {
                if let Some(thread) = self.threads.remove(&event.thread) {
                    self.bases.push(&thread.search, &self.names);
                }
                self.processes.remove(&event.thread);
            }
        }
    }
}

impl Answer {
    fn of(syscall: &Syscall<'_>) -> Self {
        const ENOENT: i32 = 2;
        const ENOTDIR: i32 = 20;
        const EINVAL: i32 = 22;
        match syscall.errno() {
            None => Self::Found,
            Some(ENOENT | ENOTDIR) => Self::Missed,
            Some(EINVAL) if syscall.call.kind == CallKind::ReadLink => Self::Unlinked,
            Some(_) => Self::Refused,
        }
    }
}

/// Flags of an open that is not about a file's bytes: `O_DIRECTORY`, by architecture, and `O_PATH`.
fn flags_not_of_files(machine: &str) -> u32 {
    const PATH: u32 = 0o10_000_000;
    PATH | if matches!(machine, "aarch64" | "arm") { 0o40_000 } else { 0o200_000 }
}
