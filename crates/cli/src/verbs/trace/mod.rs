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
use std::io::{self, BufReader, IsTerminal, Write};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use thruway_trace::analysis::{Analysis, Comparison, Report};
use thruway_trace::{Error, Reader, TraceEvents};

use crate::output::{Answer, Failure, colourful, print, print_error};
use crate::units::thousands;
use canvas::Canvas;
use sinks::Sinks;

/// Exit status of a command that made more look-ups than it may.
const OVER_BUDGET: u8 = 1;
/// Exit statuses of a command that is there and cannot be run, and of one that is not there: as
/// shells and env(1) have them.
const CANNOT_RUN: u8 = 126;
const NOT_THERE: u8 = 127;

/// Show the wasted look-ups of a command and what would fix them
///
/// Runs the command and records every system call that asks for a file by its name, of all the
/// processes and threads that come from it. Counts are equal to those of strace -f -c -e trace=%file.
/// The report goes to stderr, and the exit status is the command's.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Write a recording to this file, a line of JSON a call
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Report on an earlier recording instead of running a command
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
    /// Print the report on stdout as JSON: a line with the sums, then one a group
    #[arg(long)]
    json: bool,
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
        let ((old, old_report), (new, new_report)) = (read(before)?, read(after)?);
        let comparison = Comparison::new((&old, &old_report), (&new, &new_report));
        let text = if self.json {
            compare::json(&comparison)?
        } else {
            let canvas = self.canvas(&io::stdout());
            compare::text(&comparison, [&old_report, &new_report], &canvas, self.all).into_bytes()
        };
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn report_on(&self, file: &Path) -> Answer {
        let against = self.baseline()?;
        let reader = open(file)?;
        let analysis = Analysis::new(reader.header().clone());
        let mut sinks =
            Sinks { analysis, writer: None, events: self.trace_events()?, progress: None };
        let outcome = reader.run(&mut sinks).map_err(failure)?;
        let report = sinks.analysis.report(&outcome);
        print(&self.written(&report, &io::stdout())?)?;
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
        self.against.as_deref().map(|file| Ok(read(file)?.1)).transpose()
    }

    /// The report as it is to be shown on a stream.
    fn written(&self, report: &Report, stream: &impl IsTerminal) -> Result<Vec<u8>, Failure> {
        if self.json {
            return json::lines(report);
        }
        Ok(terminal::report(report, &self.canvas(stream), self.all).into_bytes())
    }

    fn canvas(&self, stream: &impl IsTerminal) -> Canvas {
        Canvas::new(colourful(stream), stream.is_terminal())
    }

    fn write_page(&self, analysis: &Analysis, report: &Report) -> Result<(), Failure> {
        let Some(file) = &self.html else { return Ok(()) };
        let cannot = |error| Failure::new(format_args!("cannot write {}: {error}", file.display()));
        let text = html::page(analysis, report)?;
        let mut page = File::create(file).map_err(cannot)?;
        page.write_all(&text).map_err(|error| {
            // A part of a page could be taken for a page. A device stays.
            if page.metadata().is_ok_and(|metadata| metadata.is_file()) {
                let _ = fs::remove_file(file);
            }
            cannot(error)
        })
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
                _ => format!("within budget: {made} calls of {limit_text}\n"),
            }
        };
        self.limits(against).map(line).collect()
    }
}

fn open(file: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    let cannot = |error| Failure::new(format_args!("cannot open {}: {error}", file.display()));
    let input = BufReader::with_capacity(1 << 20, File::open(file).map_err(cannot)?);
    Reader::new(input, file.as_os_str().as_bytes()).map_err(failure)
}

/// Reads a whole recording.
fn read(file: &Path) -> Result<(Analysis, Report), Failure> {
    let reader = open(file)?;
    let mut analysis = Analysis::new(reader.header().clone());
    let outcome = reader.run(&mut analysis).map_err(failure)?;
    let report = analysis.report(&outcome);
    Ok((analysis, report))
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
