//! `thruway run`: any command, with Ruby's boot answered from a pack.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use thruway_boot::{Environment, Options, Part, Trust};
use thruway_spawn::{Command, Error};

use super::preload;
use crate::command::of_words;
use crate::gem::Gem;
use crate::output::{Answer, Failure, print_error};
use crate::quantities::megabytes;

/// Exit statuses of a command that cannot be run, and of a command that does not exist: as
/// shells and env(1) have them.
const CANNOT_RUN: u8 = 126;
const NOT_THERE: u8 = 127;

/// Run a command whose Rubies boot from a pack
///
/// The command replaces this process, and keeps its signals, streams and process group; the exit status is the
/// command's. Every Ruby that it starts finds its features in the application's pack instead of searching for them.
/// Features that the pack lacks are added to the pack when that Ruby ends. Programs that are not Ruby run unchanged.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    boot: BootOptions,
    /// Fork the command from a template: the booted application that an earlier run has left behind
    #[arg(long)]
    preload: bool,
    /// With --preload: a file that the boot reads in a way that thruway cannot see, such as through a native library;
    /// may be repeated
    #[arg(long, value_name = "FILE")]
    preload_file: Vec<PathBuf>,
    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// The options of Ruby's boot.
#[derive(Debug, Args)]
pub(crate) struct BootOptions {
    /// The pack [default: the application's own, in tmp/cache/thruway or the user's cache]
    #[arg(long, value_name = "FILE")]
    pack: Option<PathBuf>,
    /// Check folders for changes once, at the start, and files never; for container images
    #[arg(long, conflicts_with = "digest")]
    frozen: bool,
    /// Like --frozen, but without any check; for a pack and files that were built into the same image
    #[arg(long, conflicts_with = "digest")]
    trust_image: bool,
    /// Compare the contents of files whose times differ; for CI machines, which check out anew each time
    #[arg(long)]
    digest: bool,
    /// Do not write the pack; files that the pack lacks are compiled each time
    #[arg(long)]
    read_only: bool,
    /// Do not intercept Ruby's system calls, as on systems where that is impossible; slower
    #[arg(long)]
    portable: bool,
    /// Leave a part to Ruby
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = parts())]
    without: Vec<String>,
    /// Postpone garbage collection until Ruby has allocated this much memory, in MB or with a unit (64M); faster, but
    /// uses that memory
    #[arg(long, value_name = "SIZE", value_parser = megabytes)]
    gc_after: Option<u32>,
    /// Report at the end what came from the pack, what did not, and why
    #[arg(long)]
    explain: bool,
}

fn parts() -> PossibleValuesParser {
    PossibleValuesParser::new(Part::ALL.map(Part::name))
}

impl Run {
    pub(crate) fn run(self) -> Answer {
        let options = self.boot.options()?;
        if options.pack.is_none() && keeps_no_pack() {
            print_error(format!("thruway: note: {NO_PACK}\n").as_bytes());
        }
        let mut command = accelerated(of_words(&self.command), &options);
        if !self.preload_file.is_empty() {
            let files = self.preload_file.iter().map(|path| absolute(path));
            command = preload::with_files(command, files.collect::<Result<_, _>>()?)?;
        }
        if self.preload || preload::is_wanted() {
            command = match preload::run(&self.command, &options, command)? {
                ControlFlow::Break(status) => return Ok(status),
                ControlFlow::Continue(as_always) => as_always,
            };
        }
        let error = match replace_process(&command) {
            Ok(never) => return Ok(never),
            Err(error) => error,
        };
        let status = if error.is_not_found() { NOT_THERE } else { CANNOT_RUN };
        Err(Failure::new(error).status(status))
    }
}

/// Replaces this process by the command. Returns only on failure.
#[cfg(unix)]
fn replace_process(command: &Command) -> Result<ExitCode, Error> {
    Err(command.replace())
}

/// Runs the command, and ends this process as the command ended: Windows cannot replace a process.
#[cfg(windows)]
#[expect(
    clippy::disallowed_methods,
    reason = "an exit status has 32 bits here, and an ExitCode eight"
)]
fn replace_process(command: &Command) -> Result<ExitCode, Error> {
    // A program without a console has no Ctrl-C.
    let _ = thruway_sys::console::leave_interrupts_to_others();
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(i32::from(CANNOT_RUN)))
}

impl BootOptions {
    fn options(&self) -> Result<Options, Failure> {
        let trust = match (self.trust_image, self.frozen, self.digest) {
            (true, ..) => Trust::Image,
            (_, true, _) => Trust::Frozen,
            (_, _, true) => Trust::Digest,
            _ => Trust::Validated,
        };
        let has = |part: &Part| self.without.iter().any(|name| name == part.name());
        let pack = self.pack.as_deref().map(absolute).transpose()?;
        let without = Part::ALL.into_iter().filter(has).collect();
        let (explain, gc_after_mb) = (self.explain, self.gc_after);
        let options = Options { pack, trust, without, explain, gc_after_mb, ..Options::default() };
        Ok(Options { read_only: self.read_only, portable: self.portable, ..options })
    }
}

/// The reason why no boot finds a pack.
pub(crate) const NO_PACK: &str = "no pack is kept: neither XDG_CACHE_HOME nor HOME names a folder \
     of this user's, and the application has no tmp folder";

/// Whether a command in this folder finds no pack, and leaves none.
pub(crate) fn keeps_no_pack() -> bool {
    let environment = Environment::from_environment(|name| std::env::var_os(name));
    std::env::current_dir().is_ok_and(|folder| environment.keeps_no_pack(&folder))
}

/// Makes a path absolute, because the command may change its working directory before the path is used.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::new(format_args!("cannot find the current folder: {error}")))
}

/// The command in an environment in which Ruby loads the boot before anything else.
pub(crate) fn accelerated(command: Command, options: &Options) -> Command {
    let Some(gem) = Gem::find() else {
        Failure::new("the gem is not installed, so Ruby boots as always")
            .hint("install the .gem file of this version with `gem install`, or run `make build` in a checkout")
            .show();
        return command;
    };
    let mut command = gem.preload(command);
    match options.words() {
        words if words.is_empty() => command = command.env_remove("THRUWAY_BOOT"),
        words => command = command.env("THRUWAY_BOOT", words),
    }
    match &options.pack {
        Some(pack) => command.env("THRUWAY_PACK", pack),
        None => command,
    }
}
