//! `thruway trace`: look-ups of a command, which were wasted, and what would fix it.

mod canvas;
mod json;
mod live;
mod progress;
mod sinks;
mod terminal;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use thruway_trace::analysis::{Analysis, Report};
use thruway_trace::{Error, Reader};

use crate::output::{Answer, Failure, colourful, print};
use canvas::Canvas;
use sinks::Sinks;

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
    /// Show everything, not only what fits one screen
    #[arg(long)]
    all: bool,
    /// Print the report on stdout as JSON: a line with the sums, then one a group
    #[arg(long)]
    json: bool,
    /// How calls are noted
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "from"
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
}

impl Trace {
    pub(crate) fn run(self) -> Answer {
        match &self.from {
            Some(file) => self.report_on(file),
            None => live::run(&self),
        }
    }

    fn report_on(&self, file: &Path) -> Answer {
        let reader = open(file)?;
        let analysis = Analysis::new(reader.header().clone());
        let mut sinks = Sinks { analysis, writer: None, progress: None };
        let outcome = reader.run(&mut sinks).map_err(failure)?;
        print(&self.written(&sinks.analysis.report(&outcome), &io::stdout())?)?;
        Ok(ExitCode::SUCCESS)
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
}

fn open(file: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    let cannot = |error| Failure::new(format_args!("cannot open {}: {error}", file.display()));
    let input = BufReader::with_capacity(1 << 20, File::open(file).map_err(cannot)?);
    Reader::new(input, file.as_os_str().as_bytes()).map_err(failure)
}

fn failure(error: Error) -> Failure {
    let failure = Failure::new(&error);
    if error.is_refused() {
        return failure.hint(
            "something forbids tracing: a container (docker run --cap-add SYS_PTRACE), \
             or another tracer that has the command already",
        );
    }
    if error.is_no_program() {
        return failure
            .hint("it is no program; a script without a first line #! is run as sh SCRIPT");
    }
    failure
}
