//! Runs the command, and passes the recorded calls to the analysis and to files.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use thruway_sys::printable;
use thruway_trace::analysis::LocalDisk;
use thruway_trace::{
    Attachment, Backend as Noting, Change, Command, Header, Outcome, Recorder, RecorderOptions,
    Writer, die_of,
};

use super::arguments::{Backend, Trace};
use super::report::{OVER_BUDGET, failure};
use super::sinks::Sinks;
use crate::output::{Answer, Failure, print_error};

/// Returns the working folder of a process.
fn folder_of(process: i32) -> String {
    let folder = std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default();
    folder.to_string_lossy().into_owned()
}

/// The recorded calls, and the end of the recording.
type RecordingResult = (Sinks, Outcome);
/// An environment variable.
type Variable = (OsString, OsString);

pub(super) fn run(trace: &Trace) -> Answer {
    trace.check_stacks()?;
    let against = trace.baseline()?;
    let processes = trace.attached_processes();
    let (mut sinks, outcome) = if processes.is_empty() {
        trace.record_command().map_err(|failure| trace.misplaced(failure))?
    } else {
        trace.record_processes(&processes)?
    };
    let report = sinks.analysis.report(&outcome, &LocalDisk::after_recording());
    // Failures from here on are reported, but the exit status is the command's.
    let mut failures = sinks.failures(trace);
    failures.extend(trace.write_page(&sinks.analysis, &report).err());
    if trace.is_shown() {
        print_error(&trace.report_text(&report, &io::stderr()));
    }
    failures.extend(trace.write_json(&report, against.as_ref()).err());
    failures.iter().for_each(Failure::show);
    print_error(trace.verdict(&report, against.as_ref()).as_bytes());
    Ok(trace.end(&outcome, trace.is_over(&report, against.as_ref())))
}

impl Trace {
    fn record_command(&self) -> Result<RecordingResult, Failure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let environment: Vec<_> = std::env::vars_os().collect();
        let command = Command::find(&self.command, &path, environment.iter().cloned());
        self.record(&command.map_err(failure)?, &environment)
    }

    /// Adds a hint if the file of `--json` follows a space, because the file is then taken for the command.
    fn misplaced(&self, failure: Failure) -> Failure {
        let is_name = |word: &OsString| word.as_bytes().ends_with(b".json");
        let is_file = self.json.is_some() && self.command.first().is_some_and(is_name);
        if !is_file {
            return failure;
        }
        failure
            .hint(format_args!("a file for JSON is --json={}", printable::path(&self.command[0])))
    }

    /// Refuses `--stacks` if the machine or another option prevents it. Stacks are read while a call is stopped.
    fn check_stacks(&self) -> Result<(), Failure> {
        if !self.stacks {
            return Ok(());
        }
        if !cfg!(target_arch = "x86_64") {
            return Err(Failure::new("--stacks is not available on this processor")
                .hint("stacks are recorded on x86-64"));
        }
        if matches!(self.backend, Backend::Stub) {
            return Err(Failure::new("--stacks and --backend stub exclude each other")
                .hint("a stack is read while its call stops: leave --backend out"));
        }
        Ok(())
    }

    /// Returns the processes to attach to, each once.
    fn attached_processes(&self) -> Vec<i32> {
        let mut processes: Vec<i32> = Vec::new();
        for process in self.pid.iter().flat_map(|ids| &ids.0) {
            if !processes.contains(process) {
                processes.push(*process);
            }
        }
        processes
    }

    /// Attaches to running processes. The report names the command of the first process.
    fn record_processes(&self, processes: &[i32]) -> Result<RecordingResult, Failure> {
        let process = processes[0];
        let command = Command::of_process(process);
        let mut header = Header::new(&command, Noting::Ptrace, &command.variables());
        header.folder = folder_of(process);
        header.attached = processes.to_vec();
        let attachment = Attachment::start(processes, self.stacks).map_err(failure)?;
        let writer = self.writer(&header)?;
        let mut sinks = self.sinks(header, writer)?;
        if !self.quiet {
            let ids: Vec<_> = processes.iter().map(i32::to_string).collect();
            let noun = if ids.len() == 1 { "process" } else { "processes" };
            let ids = ids.join(", ");
            let told = format!("attached to {noun} {ids}; Ctrl-C ends the recording\n");
            print_error(told.as_bytes());
        }
        let outcome = attachment.run(&mut sinks).map_err(failure)?;
        Ok((sinks, outcome))
    }

    /// Runs the command and records its calls with the chosen back end.
    fn record(
        &self,
        command: &Command,
        environment: &[Variable],
    ) -> Result<RecordingResult, Failure> {
        let backend = match self.backend {
            Backend::Auto if self.stacks => Noting::Ptrace,
            Backend::Auto | Backend::Stub => Noting::Stub,
            Backend::Ptrace => Noting::Ptrace,
        };
        let header = Header::new(command, backend, environment);
        let writer = self.writer(&header)?;
        let mut sinks = self.sinks(header, writer)?;
        let outcome =
            Recorder::start(command, RecorderOptions { backend, with_stacks: self.stacks })
                .and_then(|recorder| recorder.run(&mut sinks));
        Ok((sinks, outcome.map_err(failure)?))
    }

    fn writer(&self, header: &Header) -> Result<Option<Writer<File>>, Failure> {
        let Some(path) = &self.output else { return Ok(None) };
        let create = || Writer::new(File::create(path)?, header);
        let cannot =
            |error| Failure::new(format_args!("cannot write {}: {error}", printable::path(&path)));
        create().map(Some).map_err(cannot)
    }

    /// Ends with the command's status. If the command succeeds and a budget is exceeded, the result is negative.
    fn end(&self, outcome: &Outcome, is_over: bool) -> ExitCode {
        match outcome.end {
            Some(Change::Killed(signal)) => die_of(signal),
            Some(Change::Exited(status)) if status != 0 => ExitCode::from(status),
            _ if is_over => ExitCode::from(OVER_BUDGET),
            _ => ExitCode::SUCCESS,
        }
    }
}
