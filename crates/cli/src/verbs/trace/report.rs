//! Reports on a command and on recordings.

use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use thruway_sys::printable;
use thruway_trace::analysis::{Analysis, Comparison, LocalDisk, Report, Selection};
use thruway_trace::{Error, Header, Reader, TraceEvents, Writer};

use super::arguments::{STANDARD, Trace};
use super::canvas::Canvas;
use super::follow::CallLines;
use super::progress::Progress;
use super::sinks::Sinks;
use super::{compare, html, json, terminal};
use crate::output::{Answer, Failure, print, print_error};
use crate::units::thousands;

/// The exit status of a command with more look-ups than its budget.
pub(super) const OVER_BUDGET: u8 = 1;
/// The exit statuses of a command that cannot be run, and of a command that does not exist, as in shells and env(1).
const CANNOT_RUN: u8 = 126;
const NOT_THERE: u8 = 127;

impl Trace {
    pub(super) fn compare(&self, before: &Path, after: &Path) -> Answer {
        let ((old, old_report), (new, new_report)) = (self.read(before)?, self.read(after)?);
        let comparison = Comparison::new((&old, &old_report), (&new, &new_report));
        if let Some(file) = &self.json {
            write_json(file, &compare::json(&comparison)?)?;
        }
        if !self.is_json_printed() {
            let reports = [&old_report, &new_report];
            let canvas = Canvas::of(&io::stdout());
            print(compare::text(&comparison, reports, &canvas, self.all).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn report_on(&self, file: &Path) -> Answer {
        if self.follow && self.is_json_printed() {
            return Err(Failure::new("the lines of --follow and JSON cannot both go to stdout")
                .hint("write the JSON to a file: --json=FILE"));
        }
        let against = self.baseline()?;
        let reader = open(file)?;
        let mut sinks = self.sinks(reader.header().clone(), None)?;
        let outcome = reader.run(&mut sinks).map_err(failure)?;
        let report = sinks.analysis.report(&outcome, &LocalDisk::default());
        if self.is_shown() {
            print(&self.report_text(&report, &io::stdout()))?;
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

    /// Reads the recording whose count of calls is the limit.
    pub(super) fn baseline(&self) -> Result<Option<Report>, Failure> {
        self.against.as_deref().map(|file| Ok(self.read(file)?.1)).transpose()
    }

    /// Creates the sinks of the events of a command, or of a recording with this header.
    pub(super) fn sinks(
        &self,
        header: Header,
        writer: Option<Writer<File>>,
    ) -> Result<Sinks, Failure> {
        let selection = self.selection(&header)?;
        let events = self.trace_events()?;
        let progress = self.progress.then(Progress::new);
        let lines = self.follow.then(|| CallLines::new(self.from.is_some()));
        let analysis = Analysis::new(header);
        Ok(Sinks { analysis, selection, writer, events, progress, lines })
    }

    /// Returns the selection to which reports are limited, if any.
    fn selection(&self, header: &Header) -> Result<Option<Selection>, Failure> {
        let mut selection = Selection::default();
        for pattern in &self.paths {
            selection.path(pattern.as_bytes(), header.folder.as_bytes());
        }
        self.processes.iter().for_each(|process| selection.process(process.as_bytes()));
        for call in &self.calls {
            if !selection.call(call) {
                return Err(Failure::new(format_args!("unknown system call {call}"))
                    .hint("thruway trace --all lists the calls of a command"));
            }
        }
        for status in &self.statuses {
            if !selection.status(status) {
                return Err(Failure::new(format_args!("unknown status {status}")).hint(
                    "a status is successful, failed, or an error in capitals, such as ENOENT",
                ));
            }
        }
        let is_any = !self.paths.is_empty()
            || !self.processes.is_empty()
            || !self.calls.is_empty()
            || !self.statuses.is_empty();
        Ok(is_any.then_some(selection))
    }

    /// Reads a whole recording.
    fn read(&self, file: &Path) -> Result<(Analysis, Report), Failure> {
        let reader = open(file)?;
        let header = reader.header().clone();
        let selection = self.selection(&header)?;
        let analysis = Analysis::new(header);
        let (writer, events, progress, lines) = (None, None, None, None);
        let mut sinks = Sinks { analysis, selection, writer, events, progress, lines };
        let outcome = reader.run(&mut sinks).map_err(failure)?;
        let report = sinks.analysis.report(&outcome, &LocalDisk::default());
        Ok((sinks.analysis, report))
    }

    /// Whether JSON occupies stdout.
    fn is_json_printed(&self) -> bool {
        self.json.as_deref() == Some(Path::new(STANDARD))
    }

    /// Whether the report for people is shown.
    pub(super) fn is_shown(&self) -> bool {
        !self.quiet && !self.is_json_printed()
    }

    /// Formats the report for a stream.
    pub(super) fn report_text(
        &self,
        report: &Report,
        stream: &(impl IsTerminal + AsFd),
    ) -> Vec<u8> {
        terminal::report(report, &Canvas::of(stream), self.all).into_bytes()
    }

    pub(super) fn write_json(
        &self,
        report: &Report,
        against: Option<&Report>,
    ) -> Result<(), Failure> {
        let Some(file) = &self.json else { return Ok(()) };
        let limits: Vec<_> = self.limits(against).collect();
        write_json(file, &json::lines(report, &limits)?)
    }

    pub(super) fn write_page(&self, analysis: &Analysis, report: &Report) -> Result<(), Failure> {
        let Some(file) = &self.html else { return Ok(()) };
        write_whole(file, &html::page(analysis, report)?)
    }

    fn trace_events(&self) -> Result<Option<TraceEvents<File>>, Failure> {
        let Some(file) = &self.perfetto else { return Ok(None) };
        let cannot =
            |error| Failure::new(format_args!("cannot write {}: {error}", printable::path(&file)));
        Ok(Some(TraceEvents::new(File::create(file).map_err(cannot)?)))
    }

    /// Returns the limits on calls: the budget, and the count of the earlier recording.
    fn limits(&self, against: Option<&Report>) -> impl Iterator<Item = u64> {
        self.budget.into_iter().chain(against.map(|report| report.totals.calls))
    }

    pub(super) fn is_over(&self, report: &Report, against: Option<&Report>) -> bool {
        self.limits(against).any(|limit| report.totals.calls > limit)
    }

    /// Returns a line for each limit.
    pub(super) fn verdict(&self, report: &Report, against: Option<&Report>) -> String {
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
    let cannot =
        |error| Failure::new(format_args!("cannot open {}: {error}", printable::path(&file)));
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
    let cannot =
        |error| Failure::new(format_args!("cannot write {}: {error}", printable::path(&file)));
    let mut output = File::create(file).map_err(cannot)?;
    output.write_all(text).map_err(|error| {
        // An incomplete page could be mistaken for a whole one, and is removed, unless the output is a device.
        if output.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let _ = fs::remove_file(file);
        }
        cannot(error)
    })
}

pub(super) fn failure(error: Error) -> Failure {
    let failure = Failure::new(&error);
    if error.is_refused() {
        return failure.hint(
            "something forbids tracing: a container (docker run --cap-add SYS_PTRACE), \
             or another tracer that has the command already",
        );
    }
    if error.is_too_large() {
        return failure
            .hint("tracing needs a file in memory of 600 MB, most of it empty: raise ulimit -f");
    }
    if error.is_no_program() {
        return failure
            .status(CANNOT_RUN)
            .hint("the file is not a program; run a script without a first line #! as sh SCRIPT");
    }
    match error.is_command_there() {
        Some(true) => failure.status(CANNOT_RUN),
        Some(false) => failure.status(NOT_THERE),
        None => failure,
    }
}
