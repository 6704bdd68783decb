//! The arguments of `thruway trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

/// The word for standard input or output in place of a file.
pub(super) const STANDARD: &str = "-";

/// Show the wasted look-ups of a command and what would fix them
///
/// Runs the command and records every system call that asks for a file by its name. The calls of all
/// the processes and threads that come from it are recorded. Counts are equal to those of
/// strace -f -c -e trace=%file. The report goes to stderr. The exit status is the command's; where that
/// is 0 and a budget is exceeded, it is 1.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// Write a recording to this file, one line of JSON per call
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Report on an earlier recording instead of running a command; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "output", "backend"])]
    pub(super) from: Option<PathBuf>,
    /// Compare two recordings, before and after a change
    #[arg(
        long,
        value_names = ["BEFORE", "AFTER"],
        num_args = 2,
        conflicts_with_all = ["command", "output", "backend", "from", "html", "perfetto", "budget", "against"]
    )]
    pub(super) compare: Option<Vec<PathBuf>>,
    /// Show the whole report, not only one screen
    #[arg(long)]
    pub(super) all: bool,
    /// Write the report as JSON to FILE or stdout: a line with the sums, then a line for each group
    ///
    /// Without FILE, or with --json=-, the report goes to stdout, in place of the report for people and after
    /// the output of the command.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = STANDARD
    )]
    pub(super) json: Option<PathBuf>,
    /// Write the report to this file as a single HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write every call to this file as trace events, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub(super) perfetto: Option<PathBuf>,
    /// The most calls that the command may make; the exit status is 1 if it makes more
    #[arg(long, value_name = "CALLS")]
    pub(super) budget: Option<u64>,
    /// An earlier recording; the exit status is 1 if the command makes more calls than that
    #[arg(long, value_name = "FILE")]
    pub(super) against: Option<PathBuf>,
    /// Report only on names that match this pattern, as in .gitignore; may be repeated
    #[arg(long = "path", value_name = "PATTERN")]
    pub(super) paths: Vec<OsString>,
    /// Report only on calls of processes that run this program, or of this process; may be repeated
    #[arg(long = "process", value_name = "NAME|PID")]
    pub(super) processes: Vec<OsString>,
    /// Report only on these system calls
    #[arg(long = "call", value_name = "CALL", value_delimiter = ',')]
    pub(super) calls: Vec<String>,
    /// Report only on calls that ended like this: successful, failed, or an error such as ENOENT
    #[arg(long = "status", value_name = "STATUS", value_delimiter = ',')]
    pub(super) statuses: Vec<String>,
    /// Print each call in a line, as soon as it has ended
    ///
    /// The lines go to stderr; those of a recording go to stdout. --path, --process, --call and --status
    /// choose the calls.
    #[arg(short, long, conflicts_with = "compare")]
    pub(super) follow: bool,
    /// Record from which code each look-up comes, and show the stacks with most look-ups
    ///
    /// Each call stops for the tracer then. Functions and lines come from the symbols and the debugging
    /// information of the programs (gcc -g). With --follow, a call is followed by its stack.
    #[arg(long, conflicts_with_all = ["from", "compare"])]
    pub(super) stacks: bool,
    /// Print no report, except for an exceeded budget
    #[arg(short, long, conflicts_with = "compare")]
    pub(super) quiet: bool,
    /// Print a line of progress every two seconds
    #[arg(long, conflicts_with_all = ["from", "compare"])]
    pub(super) progress: bool,
    /// How calls are recorded
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub(super) backend: Backend,
    /// Record running processes, until they end or Ctrl-C; may be repeated
    ///
    /// Several processes are separated by commas or spaces, as pidof prints them. Meanwhile, each system call
    /// of their threads and new descendants stops twice. Afterwards, the processes are unchanged.
    #[arg(
        short,
        long,
        value_name = "PID,PID",
        value_parser = process_ids,
        conflicts_with_all = ["command", "from", "compare", "backend"]
    )]
    pub(super) pid: Vec<ProcessIds>,
    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        value_hint = ValueHint::CommandWithArguments,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present_any = ["from", "compare", "pid"]
    )]
    pub(super) command: Vec<OsString>,
}

/// The process IDs in one value of `--pid`.
#[derive(Debug, Clone)]
pub(super) struct ProcessIds(pub(super) Vec<i32>);

fn process_ids(text: &str) -> Result<ProcessIds, String> {
    let words = text.split([',', ' ', '\t', '\n']).filter(|word| !word.is_empty());
    let id = |word: &str| match word.parse() {
        Ok(id @ 1..) => Ok(id),
        _ => Err(format!("{word} is not the ID of a process")),
    };
    let ids = words.map(id).collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() { Err("no process".to_owned()) } else { Ok(ProcessIds(ids)) }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Backend {
    /// The fastest that this system permits
    Auto,
    /// Programs record their own calls, with machine code that is injected into them
    Stub,
    /// A tracer stops every call
    Ptrace,
}
