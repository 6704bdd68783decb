//! `thruway mount`, `thruway mount status` and `thruway unmount`.

mod failure;
pub(crate) mod helper;
mod log;
mod service;
mod status;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use failure::failure;
use helper::Remount;
use thruway_mount::{
    AccessTimes, Changes, CreatePolicy, LogTarget, Manner, Mode, Plan, PolicyFile, Transport,
};
use thruway_sys::printable;

use crate::output::{Answer, Failure};

/// Show folders at another place, with data moved by the kernel
///
/// The mount is there, and answers, when the command returns. With several sources, the first that
/// has a name wins.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Mount {
    #[command(subcommand)]
    command: Option<MountCommand>,
    #[command(flatten)]
    options: Options,
    /// The folders that are shown
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<PathBuf>,
    /// The folder that they are shown at
    #[arg(value_name = "TARGET", required = true)]
    target: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum MountCommand {
    Status(status::Status),
}

/// How a mount behaves.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The sources do not change: read-only, and opens never reach the daemon
    #[arg(long)]
    frozen: bool,
    /// With several sources: which of them gets what is made
    #[arg(long, value_name = "WHERE", default_value = "parent")]
    create: Create,
    /// Let other users in; permissions are checked as on the sources
    #[arg(long)]
    allow_other: bool,
    /// Let nothing be changed through the mount
    #[arg(long)]
    read_only: bool,
    /// Let set-user-id programs keep their rights
    #[arg(long)]
    suid: bool,
    /// Let device nodes work
    #[arg(long)]
    dev: bool,
    /// Let no program be started
    #[arg(long)]
    no_exec: bool,
    /// When reads change access times: never, files, relative, or always. With relative, reads change them if they
    /// are older than the last change or a day [default: as the sources are mounted]
    #[arg(long, value_name = "WHEN")]
    atime: Option<Atime>,
    /// Mount over a folder that is not empty, and hide what is in it
    #[arg(long)]
    nonempty: bool,
    /// Whether the kernel moves the data of files where it can (on), or all of it goes through the
    /// daemon (off)
    #[arg(long, value_name = "WHEN", default_value = "on")]
    passthrough: Switch,
    /// How requests arrive from the kernel: over /dev/fuse, where none is lost when a daemon dies, or over
    /// io_uring, which is faster
    #[arg(long, value_name = "WAY", default_value = "device")]
    transport: Way,
    /// Pass extended attributes and access lists on
    #[arg(long, value_name = "WHEN", default_value = "on")]
    xattr: Switch,
    /// Where POSIX record locks are visible: only on the mount (local), or also to programs that use the sources
    /// directly (shared). With shared, each close costs a request. flock is always visible
    #[arg(long, value_name = "WHERE", default_value = "local")]
    locks: Locks,
    /// Rules about which users may open and change which files; read again at SIGHUP
    #[arg(long, value_name = "FILE", conflicts_with = "frozen")]
    policy: Option<PathBuf>,
    /// How changes behind the mount are noticed: told, asked or ignored. With told, they invalidate the kernel's cache
    /// at once, which needs root. With asked, each look-up asks. With ignored, none is noticed before the timeouts end
    #[arg(long, value_name = "HOW", default_value = "told")]
    changes: Noticed,
    /// How long the kernel may keep names without asking again
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = seconds)]
    entry_timeout: Duration,
    /// How long the kernel may keep attributes without asking again
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = seconds)]
    attribute_timeout: Duration,
    /// Where the daemon writes to: stderr, journal, or a file [default: stderr with --foreground,
    /// else the journal where there is one]
    #[arg(long, value_name = "WHERE", value_parser = log_target)]
    log: Option<LogTarget>,
    /// Stay in the foreground; Ctrl-C unmounts
    #[arg(short, long)]
    foreground: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Atime {
    Never,
    Files,
    Relative,
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    Device,
    #[value(alias = "uring")]
    IoUring,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Create {
    /// The first that has the folder
    Parent,
    /// The first of all; folders are made there as need be
    First,
    /// The one with the most space; folders are made there as need be
    MostFree,
    /// None: nothing can be made
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Locks {
    Local,
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Noticed {
    Told,
    Asked,
    Ignored,
}

impl From<Noticed> for Changes {
    fn from(noticed: Noticed) -> Self {
        match noticed {
            Noticed::Told => Self::Told,
            Noticed::Asked => Self::Asked,
            Noticed::Ignored => Self::Ignored,
        }
    }
}

impl Mount {
    pub(crate) fn run(self) -> Answer {
        match (self.command, self.target) {
            (Some(MountCommand::Status(status)), _) => status.run(),
            (None, Some(target)) => self.options.mount(&self.sources, &target),
            (None, None) => Err(Failure::new("no target").hint("thruway help mount")),
        }
    }
}

impl Options {
    fn mount(self, sources: &[PathBuf], target: &Path) -> Answer {
        let ready: Option<&dyn Fn()> = self.foreground.then_some(&service::say_ready);
        let plan = self.plan(sources, target)?;
        thruway_mount::start(plan, ready, log::open).map_err(failure)?;
        Ok(ExitCode::SUCCESS)
    }

    fn plan(self, sources: &[PathBuf], target: &Path) -> Result<Plan, Failure> {
        let sources: Result<_, _> = sources.iter().map(|source| absolute(source)).collect();
        Ok(Plan {
            sources: sources?,
            target: thruway_mount::resolve_new_target(target).map_err(failure)?,
            mode: if self.frozen { Mode::Frozen } else { Mode::Live },
            create: match self.create {
                Create::Parent => CreatePolicy::Parent,
                Create::First => CreatePolicy::First,
                Create::MostFree => CreatePolicy::MostFree,
                Create::None => CreatePolicy::None,
            },
            allow_other: self.allow_other,
            read_only: self.read_only,
            suid: self.suid,
            dev: self.dev,
            exec: !self.no_exec,
            access_times: self.atime.map(|when| match when {
                Atime::Never => AccessTimes::Never,
                Atime::Files => AccessTimes::FilesOnly,
                Atime::Relative => AccessTimes::Relative,
                Atime::Always => AccessTimes::Always,
            }),
            nonempty: self.nonempty,
            passthrough: self.passthrough == Switch::On,
            transport: match self.transport {
                Way::Device => Transport::Device,
                Way::IoUring => Transport::IoUring,
            },
            xattr: self.xattr == Switch::On,
            shared_locks: self.locks == Locks::Shared,
            policy: self.policy.as_deref().map(policy).transpose()?,
            changes: self.changes.into(),
            entry_timeout: self.entry_timeout,
            attribute_timeout: self.attribute_timeout,
            log: self.log.unwrap_or_else(|| log::default_target(self.foreground)),
        })
    }
}

/// Changes a mount while it is there. A policy with an error leaves all as it is.
pub(crate) fn remount(remount: &Remount) -> Answer {
    let policy_file = remount.policy.as_deref().map(policy).transpose()?;
    let status = remount.command().status();
    let status =
        status.map_err(|error| Failure::new(format_args!("cannot start mount: {error}")))?;
    if !status.success() {
        return Ok(ExitCode::FAILURE);
    }
    if policy_file.is_some() {
        let target = thruway_mount::resolve_target(&remount.target).map_err(failure)?;
        thruway_mount::read_policy_again(&target).map_err(failure)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Unmount
///
/// That also works if the daemon of the mount has died.
#[derive(Debug, Args)]
pub(crate) struct Unmount {
    /// Unmount once the mount is no longer in use; there are no new users from now on
    #[arg(short = 'z', long)]
    lazy: bool,
    /// Unmount at once: programs that wait for a reply get an error, and the daemon is ended
    #[arg(short, long, conflicts_with = "lazy")]
    force: bool,
    /// Where it is
    #[arg(value_name = "TARGET")]
    target: PathBuf,
}

impl Unmount {
    pub(crate) fn run(self) -> Answer {
        let target = thruway_mount::resolve_target(&self.target).map_err(failure)?;
        let manner = match (self.lazy, self.force) {
            (true, _) => Manner::Lazy,
            (_, true) => Manner::Forced,
            _ => Manner::Orderly,
        };
        thruway_mount::unmount(&target, manner).map_err(failure)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Run as a process of a mount; not for users
#[derive(Debug, Args)]
pub(crate) struct MountProcess {}

impl MountProcess {
    pub(crate) fn run(self) -> Answer {
        thruway_mount::run_inner(log::open).map_err(failure)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        Failure::new(format_args!("no such path {}: {error}", printable::path(&path)))
    })
}

fn policy(path: &Path) -> Result<PolicyFile, Failure> {
    PolicyFile::read(&absolute(path)?).map_err(failure)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn log_target(text: &str) -> Result<LogTarget, String> {
    Ok(match text {
        "stderr" => LogTarget::Stderr,
        "journal" => LogTarget::Journal,
        file => LogTarget::File(std::path::absolute(file).map_err(|error| error.to_string())?),
    })
}
