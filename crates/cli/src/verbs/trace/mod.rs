//! `thruway trace`: look-ups of a command, which were wasted, and what would fix it.

mod canvas;
mod compare;
mod html;
mod json;
mod live;
mod progress;
mod sinks;
mod terminal;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use thruway_trace::analysis::{Analysis, Comparison, LocalDisk, Report, Selection};
use thruway_trace::{Error, Header, Reader, TraceEvents, Writer};

use crate::output::{Answer, Failure, colourful, print, print_error};
use crate::units::thousands;
use canvas::Canvas;
use progress::Progress;
use sinks::Sinks;

/// Exit status of a command that made more look-ups than it may.
const OVER_BUDGET: u8 = 1;
/// Standard input or output in the place of a file.
const STANDARD: &str = "-";
/// Exit statuses of a command that is there and cannot be run, and of one that is not there: as
/// shells and env(1) have them.
const CANNOT_RUN: u8 = 126;
const NOT_THERE: u8 = 127;

/// Show the wasted look-ups of a command and what would fix them
///
/// Runs the command and records every system call that asks for a file by its name, of all the
/// processes and threads that come from it. Counts are equal to those of strace -f -c -e trace=%file.
/// The report goes to stderr. The exit status is the command's; where that is 0 and a budget is
/// exceeded, it is 1.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Write a recording to this file, a line of JSON a call
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Report on an earlier recording instead of running a command; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "output", "backend"])]
    from: Option<PathBuf>,
    /// Compare two recordings, before and after a change
    #[arg(
        long,
        value_names = ["BEFORE", "AFTER"],
        num_args = 2,
        conflicts_with_all = ["command", "output", "backend", "from", "html", "perfetto", "budget", "against"]
    )]
    compare: Option<Vec<PathBuf>>,
    /// Show everything, not only what fits one screen
    #[arg(long)]
    all: bool,
    /// Write the report as JSON, a line with the sums, then one a group: to FILE, or else to stdout
    ///
    /// Alone or as --json=- it goes to stdout, in the place of the report for people, and behind
    /// what the command writes there.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = STANDARD
    )]
    json: Option<PathBuf>,
    /// Write the report to this file as one page for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write every call to this file as trace events, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// The most calls that the command may make; the exit status is 1 if it makes more
    #[arg(long, value_name = "CALLS")]
    budget: Option<u64>,
    /// An earlier recording: the exit status is 1 if the command makes more calls than that
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Report only on calls for what fits this pattern, as in .gitignore; may be repeated
    #[arg(long = "path", value_name = "PATTERN")]
    paths: Vec<OsString>,
    /// Report only on calls of processes that run this program, or of this process; may be repeated
    #[arg(long = "process", value_name = "NAME|PID")]
    processes: Vec<OsString>,
    /// Report only on these system calls
    #[arg(long = "call", value_name = "CALL", value_delimiter = ',')]
    calls: Vec<String>,
    /// Print no report; a budget that is exceeded is told all the same
    #[arg(short, long, conflicts_with = "compare")]
    quiet: bool,
    /// Print a line every two seconds that tells how far the command has come
    #[arg(long, conflicts_with_all = ["from", "compare"])]
    progress: bool,
    /// How calls are noted
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// Record a process that runs already, until it ends or Ctrl-C
    ///
    /// Each system call of its threads, and of all that come from it, stops twice meanwhile. Nothing is left
    /// behind in it.
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "from", "compare", "backend"])]
    pid: Option<NonZeroU32>,
    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present_any = ["from", "compare", "pid"]
    )]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Backend {
    /// The fastest that this system permits
    Auto,
    /// Programs note their own calls, by machine code that is put into them
    Stub,
    /// Every call stops for a tracer
    Ptrace,
    /// Programs in the kernel note the calls, and nothing stops; takes root, and thruway with the feature ebpf
    Ebpf,
}

impl Trace {
    pub(crate) fn run(self) -> Answer {
        match (&self.from, self.compare.as_deref()) {
            (_, Some([before, after])) => self.compare(before, after),
            (Some(file), _) => self.report_on(file),
            _ => live::run(&self),
        }
    }

    fn compare(&self, before: &Path, after: &Path) -> Answer {
        let ((old, old_report), (new, new_report)) = (self.read(before)?, self.read(after)?);
        let comparison = Comparison::new((&old, &old_report), (&new, &new_report));
        if let Some(file) = &self.json {
            write_json(file, &compare::json(&comparison)?)?;
        }
        if !self.is_json_printed() {
            let canvas = self.canvas(&io::stdout());
            let reports = [&old_report, &new_report];
            print(compare::text(&comparison, reports, &canvas, self.all).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn report_on(&self, file: &Path) -> Answer {
        let against = self.baseline()?;
        let reader = open(file)?;
        let mut sinks = self.sinks(reader.header().clone(), None)?;
        let outcome = reader.run(&mut sinks).map_err(failure)?;
        let report = sinks.analysis.report(&outcome, &LocalDisk::default());
        if self.is_shown() {
            print(&self.written(&report, &io::stdout()))?;
        }
        self.write_json(&report, against.as_ref())?;
        self.write_page(&sinks.analysis, &report)?;
        print_error(self.verdict(&report, against.as_ref()).as_bytes());
        if let Some(failure) = sinks.failures(self).pop() {
            return Err(failure);
        }
        let is_over = self.is_over(&report, against.as_ref());
        Ok(if is_over { ExitCode::from(OVER_BUDGET) } else { ExitCode::SUCCESS })
    }

    /// The recording that this one may not exceed.
    fn baseline(&self) -> Result<Option<Report>, Failure> {
        self.against.as_deref().map(|file| Ok(self.read(file)?.1)).transpose()
    }

    /// Where everything goes that comes from a command, or from a recording with this header.
    fn sinks(&self, header: Header, writer: Option<Writer<File>>) -> Result<Sinks, Failure> {
        let selection = self.selection(&header)?;
        let events = self.trace_events()?;
        let progress = self.progress.then(Progress::new);
        Ok(Sinks { analysis: Analysis::new(header), selection, writer, events, progress })
    }

    /// What reports are about, if not everything.
    fn selection(&self, header: &Header) -> Result<Option<Selection>, Failure> {
        let mut selection = Selection::default();
        for pattern in &self.paths {
            selection.path(pattern.as_bytes(), header.folder.as_bytes());
        }
        self.processes.iter().for_each(|process| selection.process(process.as_bytes()));
        for call in &self.calls {
            if !selection.call(call) {
                return Err(Failure::new(format_args!("no call that is recorded is named {call}"))
                    .hint("thruway trace --all lists the calls of a command"));
            }
        }
        let is_any = !self.paths.is_empty() || !self.processes.is_empty() || !self.calls.is_empty();
        Ok(is_any.then_some(selection))
    }

    /// Reads a whole recording.
    fn read(&self, file: &Path) -> Result<(Analysis, Report), Failure> {
        let reader = open(file)?;
        let header = reader.header().clone();
        let selection = self.selection(&header)?;
        let analysis = Analysis::new(header);
        let mut sinks = Sinks { analysis, selection, writer: None, events: None, progress: None };
        let outcome = reader.run(&mut sinks).map_err(failure)?;
        let report = sinks.analysis.report(&outcome, &LocalDisk::default());
        Ok((sinks.analysis, report))
    }

    /// Whether JSON has stdout for itself.
    fn is_json_printed(&self) -> bool {
        self.json.as_deref() == Some(Path::new(STANDARD))
    }

    /// Whether the report for people is wanted.
    fn is_shown(&self) -> bool {
        !self.quiet && !self.is_json_printed()
    }

    /// The report as it is to be shown on a stream.
    fn written(&self, report: &Report, stream: &impl IsTerminal) -> Vec<u8> {
        terminal::report(report, &self.canvas(stream), self.all).into_bytes()
    }

    fn write_json(&self, report: &Report, against: Option<&Report>) -> Result<(), Failure> {
        let Some(file) = &self.json else { return Ok(()) };
        let limits: Vec<_> = self.limits(against).collect();
        write_json(file, &json::lines(report, &limits)?)
    }

    fn canvas(&self, stream: &impl IsTerminal) -> Canvas {
        Canvas::new(colourful(stream), stream.is_terminal())
    }

    fn write_page(&self, analysis: &Analysis, report: &Report) -> Result<(), Failure> {
        let Some(file) = &self.html else { return Ok(()) };
        write_whole(file, &html::page(analysis, report)?)
    }

    fn trace_events(&self) -> Result<Option<TraceEvents<File>>, Failure> {
        let Some(file) = &self.perfetto else { return Ok(None) };
        let cannot = |error| Failure::new(format_args!("cannot write {}: {error}", file.display()));
        Ok(Some(TraceEvents::new(File::create(file).map_err(cannot)?)))
    }

    /// The most calls that are allowed, by the number or by the earlier recording.
    fn limits(&self, against: Option<&Report>) -> impl Iterator<Item = u64> {
        self.budget.into_iter().chain(against.map(|report| report.totals.calls))
    }

    fn is_over(&self, report: &Report, against: Option<&Report>) -> bool {
        self.limits(against).any(|limit| report.totals.calls > limit)
    }

    /// A line for each limit, if there is one.
    fn verdict(&self, report: &Report, against: Option<&Report>) -> String {
        let calls = report.totals.calls;
        let line = |limit: u64| {
            let (made, limit_text) = (thousands(calls), thousands(limit));
            match calls.checked_sub(limit) {
                Some(over @ 1..) => {
                    format!(
                        "over budget: {made} calls, {} more than {limit_text}\n",
                        thousands(over)
                    )
                }
                _ if self.quiet => String::new(),
                _ => format!("within budget: {made} calls of {limit_text}\n"),
            }
        };
        self.limits(against).map(line).collect()
    }
}

/// Opens a recording; `-` is standard input.
fn open(file: &Path) -> Result<Reader<BufReader<Box<dyn Read>>>, Failure> {
    let cannot = |error| Failure::new(format_args!("cannot open {}: {error}", file.display()));
    let (input, name): (Box<dyn Read>, _) = if file == Path::new(STANDARD) {
        (Box::new(io::stdin()), &b"standard input"[..])
    } else {
        (Box::new(File::open(file).map_err(cannot)?), file.as_os_str().as_bytes())
    };
    Reader::new(BufReader::with_capacity(1 << 20, input), name).map_err(failure)
}

/// Writes JSON to a file, or to stdout.
fn write_json(file: &Path, text: &[u8]) -> Result<(), Failure> {
    if file == Path::new(STANDARD) { print(text) } else { write_whole(file, text) }
}

fn write_whole(file: &Path, text: &[u8]) -> Result<(), Failure> {
    let cannot = |error| Failure::new(format_args!("cannot write {}: {error}", file.display()));
    let mut output = File::create(file).map_err(cannot)?;
    output.write_all(text).map_err(|error| {
        // A part of a page could be taken for a page. A device stays.
        if output.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let _ = fs::remove_file(file);
        }
        cannot(error)
    })
}

fn failure(error: Error) -> Failure {
    let failure = Failure::new(&error);
    if error.is_refused() {
        return failure.hint(
            "something forbids tracing: a container (docker run --cap-add SYS_PTRACE), \
             or another tracer that has the command already",
        );
    }
    if let Some(is_forbidden) = error.is_kernel_forbidden() {
        return failure.hint(match (cfg!(feature = "ebpf"), is_forbidden) {
            (false, _) => {
                "build one that has it: cargo build --release -p thruway-cli --features ebpf"
            }
            (true, true) => "it takes root, or the capabilities CAP_BPF and CAP_PERFMON",
            (true, false) => {
                "it takes Linux 5.11 or later with type information for BPF (CONFIG_DEBUG_INFO_BTF)"
            }
        });
    }
    if error.is_too_large() {
        return failure
            .hint("tracing needs a file in memory of 300 MB, most of it empty: raise ulimit -f");
    }
    if error.is_no_program() {
        return failure
            .status(CANNOT_RUN)
            .hint("it is no program; a script without a first line #! is run as sh SCRIPT");
    }
    match error.is_command_there() {
        Some(true) => failure.status(CANNOT_RUN),
        Some(false) => failure.status(NOT_THERE),
        None => failure,
    }
}
