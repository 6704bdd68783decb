//! `thruway mount`, `thruway mount status` and `thruway unmount`.

mod create;
mod failure;
mod foreign_words;
pub(crate) mod helper;
mod log;
#[cfg(test)]
mod mergerfs_table;
mod owners;
mod relocate;
mod service;
mod sources;
mod status;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use failure::failure;
use helper::Remount;
use thruway_mount::{
    AccessTimes, Changes, CreatePolicy, FollowLinks, LogTarget, Manner, Mode, OnFull, OnMissing,
    Plan, PolicyFile, Presence, Transport,
};
use thruway_sys::printable;

use crate::output::{Answer, Failure};
use crate::quantities::seconds;

/// Mount folders at another place; the kernel moves the data of files
///
/// The mount is ready when the command returns. With several sources, the first that
/// contains a name wins.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    allow_missing_positional = true
)]
pub(crate) struct Mount {
    #[command(subcommand)]
    command: Option<MountCommand>,
    #[command(flatten)]
    options: Options,
    /// The folders to show, or patterns of folders such as '/mnt/disk*'. After a source, =RO makes it read-only, =NC
    /// keeps new files away, and a size is the minimal free space: /mnt/a=NC,50G
    #[arg(value_name = "SOURCE")]
    folders: Vec<OsString>,
    /// The folder to mount them on
    #[arg(value_name = "TARGET", required = true)]
    target: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum MountCommand {
    Status(status::Status),
    Add(sources::Add),
    Remove(sources::Remove),
    Reload(sources::Reload),
    Where(relocate::Where),
    Move(relocate::Move),
}

/// The options of a mount.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Promise that the sources do not change; the mount is read-only, and the kernel opens files without the daemon
    #[arg(long)]
    frozen: bool,
    /// The folder that takes all changes, so that the sources stay as they are: a file is copied there before it is
    /// changed, and removed names are hidden. The folder can be read by overlayfs, and a folder of overlayfs here
    #[arg(long, value_name = "DIR", conflicts_with_all = ["frozen", "read_only", "policy", "sources"])]
    upper: Option<PathBuf>,
    /// With several sources: the source in which new files and folders are created. One of first, most-free,
    /// least-free, least-used, least-filled, random and random-by-free, where the folder is created if necessary. With
    /// parent- before it, only sources that have the folder count; with near-, those that have the folder or one above
    /// come first. parent is parent-first; none creates nothing. Sources that are full are skipped
    #[arg(long, value_name = "WHERE", default_value = "parent", value_parser = create::policy())]
    create: CreatePolicy,
    /// Create files in a source only while this much space is free there; a source's own limit replaces it
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = thruway_mount::parse_bytes)]
    free_min: u64,
    /// If a source is full in the middle of a write: fail, or move the file to the source with the most
    /// free space. With move, written data goes through the daemon
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    on_full: WhenFull,
    /// Whether a hard link or rename into a folder that the file's source lacks creates the folder there (on), or fails
    /// as it does between file systems (off)
    #[arg(long, value_name = "WHEN", default_value = "on")]
    make_folders: Switch,
    /// A file with further sources, one per line; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    sources: Option<PathBuf>,
    /// If a source is missing: fail, wait for it, or skip it until it appears
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    missing: MissingSource,
    /// How long to wait for missing sources
    #[arg(long, value_name = "TIME", default_value = "90", value_parser = seconds)]
    missing_timeout: Duration,
    /// Treat a source as missing unless it is a mount point, so that nothing is written below an absent disk
    #[arg(long)]
    require_mount_point: bool,
    /// Treat a source as missing unless it contains a file with this name
    #[arg(long, value_name = "NAME", value_parser = file_name)]
    require_marker: Option<String>,
    /// Allow other users; permissions are checked as on the sources
    #[arg(long)]
    allow_other: bool,
    /// Refuse all changes through the mount
    #[arg(long)]
    read_only: bool,
    /// Honour set-user-ID and set-group-ID bits
    #[arg(long)]
    suid: bool,
    /// Allow device nodes
    #[arg(long)]
    dev: bool,
    /// Refuse to start programs
    #[arg(long)]
    no_exec: bool,
    /// When reads update access times: never, files, relative, or always. With relative, a read updates times that
    /// are older than the last change or than a day [default: as the sources are mounted]
    #[arg(long, value_name = "WHEN")]
    atime: Option<Atime>,
    /// Mount over a folder that is not empty, and hide its contents
    #[arg(long)]
    nonempty: bool,
    /// Whether the kernel moves the data of files where possible (on), or all data passes through the
    /// daemon (off)
    #[arg(long, value_name = "WHEN", default_value = "on")]
    passthrough: Switch,
    /// How requests arrive from the kernel: through /dev/fuse, which loses none when a daemon dies, or through
    /// io_uring, which is faster
    #[arg(long, value_name = "WAY", default_value = "device")]
    transport: Way,
    /// Pass on extended attributes and access control lists (ACLs)
    #[arg(long, value_name = "WHEN", default_value = "on")]
    xattr: Switch,
    #[command(flatten)]
    owners: owners::OwnerOptions,
    /// Which symbolic links are shown as the files to which they lead: never, or regular for links to regular files.
    /// Only links whose target is below a source are followed, and whose owner could make a hard link to the file
    #[arg(long, value_name = "WHICH", default_value = "never", value_parser = followed_links)]
    follow_symlinks: FollowLinks,
    /// Where POSIX record locks are visible: only on the mount (local), or also to programs that use the sources
    /// directly (shared). With shared, each close costs a request. Locks of flock are visible to both in any case
    #[arg(long, value_name = "WHERE", default_value = "local")]
    locks: Locks,
    /// File of rules about which users may open and change which files; read again on SIGHUP
    #[arg(long, value_name = "FILE", conflicts_with = "frozen")]
    policy: Option<PathBuf>,
    /// How the mount notices changes that programs make in the sources: told, asked or ignored. With told, a change
    /// invalidates the kernel's cache at once, which needs root. With asked, the kernel asks the daemon at each
    /// look-up. With ignored, changes show when the timeouts end
    #[arg(long, value_name = "HOW", default_value = "told")]
    changes: ChangeDetection,
    /// How long the kernel may cache names
    #[arg(long, value_name = "TIME", default_value = "3600", value_parser = seconds)]
    entry_timeout: Duration,
    /// How long the kernel may cache attributes
    #[arg(long, value_name = "TIME", default_value = "3600", value_parser = seconds)]
    attribute_timeout: Duration,
    /// Where the daemon logs: stderr, journal, or a file [default: stderr with --foreground, otherwise the journal if
    /// there is one]
    #[arg(long, value_name = "WHERE", value_parser = log_target)]
    log: Option<LogTarget>,
    /// Stay in the foreground, and unmount on Ctrl-C
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
enum WhenFull {
    Fail,
    Move,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MissingSource {
    Fail,
    Wait,
    Skip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Locks {
    Local,
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ChangeDetection {
    Told,
    Asked,
    Ignored,
}

impl From<ChangeDetection> for Changes {
    fn from(noticed: ChangeDetection) -> Self {
        match noticed {
            ChangeDetection::Told => Self::Told,
            ChangeDetection::Asked => Self::Asked,
            ChangeDetection::Ignored => Self::Ignored,
        }
    }
}

impl Mount {
    pub(crate) fn run(self) -> Answer {
        match (self.command, self.target) {
            (Some(MountCommand::Status(status)), _) => status.run(),
            (Some(MountCommand::Add(add)), _) => add.run(),
            (Some(MountCommand::Remove(remove)), _) => remove.run(),
            (Some(MountCommand::Reload(reload)), _) => reload.run(),
            (Some(MountCommand::Where(command)), _) => command.run(),
            (Some(MountCommand::Move(command)), _) => command.run(),
            (None, Some(target)) => self.options.mount(&self.folders, &target),
            (None, None) => Err(Failure::new("no target").hint("thruway help mount")),
        }
    }
}

impl Options {
    fn mount(self, sources: &[OsString], target: &Path) -> Answer {
        let ready: Option<&dyn Fn()> = self.foreground.then_some(&service::say_ready);
        let plan = self.plan(sources, target)?;
        thruway_mount::start(plan, ready, log::open).map_err(failure)?;
        Ok(ExitCode::SUCCESS)
    }

    fn plan(self, sources: &[OsString], target: &Path) -> Result<Plan, Failure> {
        if sources.is_empty() && self.sources.is_none() {
            return Err(Failure::new("no source").hint("thruway help mount"));
        }
        let sources: Result<_, _> = sources.iter().map(|source| sources::spec(source)).collect();
        let upper = self.upper.as_deref().map(thruway_mount::resolve_new_target);
        Ok(Plan {
            sources: sources?,
            upper: upper.transpose().map_err(failure)?,
            sources_file: self.sources.as_deref().map(absolute).transpose()?,
            missing: match self.missing {
                MissingSource::Fail => OnMissing::Fail,
                MissingSource::Wait => OnMissing::Wait(self.missing_timeout),
                MissingSource::Skip => OnMissing::Skip,
            },
            presence: Presence {
                mount_point: self.require_mount_point,
                marker: self.require_marker,
            },
            target: thruway_mount::resolve_new_target(target).map_err(failure)?,
            mode: if self.frozen { Mode::Frozen } else { Mode::Live },
            create: self.create,
            free_min_bytes: self.free_min,
            on_full: match self.on_full {
                WhenFull::Fail => OnFull::Fail,
                WhenFull::Move => OnFull::Move,
            },
            make_folders: self.make_folders == Switch::On,
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
            owners: self.owners.owners()?,
            follow_links: self.follow_symlinks,
            shared_locks: self.locks == Locks::Shared,
            policy: self.policy.as_deref().map(policy).transpose()?,
            changes: self.changes.into(),
            entry_timeout: self.entry_timeout,
            attribute_timeout: self.attribute_timeout,
            log: self.log.unwrap_or_else(|| log::default_target(self.foreground)),
        })
    }
}

/// Changes a mount in use. A policy with an error changes nothing.
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
    /// Detach the mount now, and unmount when it is no longer in use
    #[arg(short = 'z', long)]
    lazy: bool,
    /// Unmount at once: programs that wait for a reply get an error, and the daemon ends
    #[arg(short, long, conflicts_with = "lazy")]
    force: bool,
    /// The folder of the mount
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

/// Parses a file name without folders.
fn file_name(text: &str) -> Result<String, String> {
    match text {
        "" | "." | ".." => Err("not the name of a file".into()),
        _ if text.contains('/') => Err("a marker is a file directly in the source".into()),
        _ => Ok(text.into()),
    }
}

fn followed_links(text: &str) -> Result<FollowLinks, String> {
    match text {
        "never" => Ok(FollowLinks::Never),
        "regular" => Ok(FollowLinks::Regular),
        "directory" | "all" => Err(format!(
            "{text} is not possible, since the kernel shows a folder at one place only; regular follows links to files"
        )),
        _ => Err("one of never and regular".into()),
    }
}

fn log_target(text: &str) -> Result<LogTarget, String> {
    Ok(match text {
        "stderr" => LogTarget::Stderr,
        "journal" => LogTarget::Journal,
        file => LogTarget::File(std::path::absolute(file).map_err(|error| error.to_string())?),
    })
}
