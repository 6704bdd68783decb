//! Running the command: what is recorded goes to the analysis, and to files if they are wanted.

use std::fs::File;
use std::io;
use std::process::ExitCode;

use thruway_trace::analysis::{Analysis, Report};
use thruway_trace::{Change, Command, Header, Outcome, Recorder, Writer, die_of};

use super::progress::Progress;
use super::sinks::Sinks;
use super::{Backend, OVER_BUDGET, Trace, failure};
use crate::output::{Answer, Failure, print, print_error};

pub(super) fn run(trace: &Trace) -> Answer {
    let against = trace.baseline()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let environment: Vec<_> = std::env::vars_os().collect();
    let command =
        Command::find(&trace.command, &path, environment.iter().cloned()).map_err(failure)?;
    let backend = match trace.backend {
        Backend::Auto | Backend::Stub => thruway_trace::Backend::Stub,
        Backend::Ptrace => thruway_trace::Backend::Ptrace,
    };
    let header = Header::new(&command, backend, &environment);
    let writer = trace.writer(&header)?;
    let events = trace.trace_events()?;
    let recorder = Recorder::start(&command, backend).map_err(failure)?;
    let progress = Some(Progress::new());
    let mut sinks = Sinks { analysis: Analysis::new(header), writer, events, progress };
    let outcome = recorder.run(&mut sinks).map_err(failure)?;
    let report = sinks.analysis.report(&outcome);
    // Whatever goes wrong from here on is told, but the exit status is the command's.
    let mut failures = sinks.failures(trace);
    failures.extend(trace.write_page(&sinks.analysis, &report).err());
    failures.extend(trace.show(&report).err());
    failures.iter().for_each(Failure::show);
    print_error(trace.verdict(&report, against.as_ref()).as_bytes());
    Ok(trace.end(&outcome, trace.is_over(&report, against.as_ref())))
}

impl Trace {
    fn writer(&self, header: &Header) -> Result<Option<Writer<File>>, Failure> {
        let Some(path) = &self.output else { return Ok(None) };
        let create = || Writer::new(File::create(path)?, header);
        let cannot = |error| Failure::new(format_args!("cannot write {}: {error}", path.display()));
        create().map(Some).map_err(cannot)
    }

    /// The command has stdout for itself, unless the report was asked for there.
    fn show(&self, report: &Report) -> Result<(), Failure> {
        if self.json {
            return print(&self.written(report, &io::stdout())?);
        }
        print_error(&self.written(report, &io::stderr())?);
        Ok(())
    }

    /// Ends as the command did; if that was well, over budget is still an honest no.
    fn end(&self, outcome: &Outcome, is_over: bool) -> ExitCode {
        match outcome.end {
            Some(Change::Killed(signal)) => die_of(signal),
            Some(Change::Exited(status)) if status != 0 => ExitCode::from(status),
            _ if is_over => ExitCode::from(OVER_BUDGET),
            _ => ExitCode::SUCCESS,
        }
    }
}
