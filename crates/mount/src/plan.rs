//! The options of a mount.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use rustix::mount::MountFlags;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};
use thruway_sys::printable;

use crate::Error;
use crate::log::LogTarget;
use crate::owners::Owners;
use crate::policy::PolicyFile;
use crate::source_spec::{SourceAccess, SourceSpec};

/// The maximum length of a source name that the kernel accepts.
const SOURCE_NAME_BYTES_MAX: usize = 4095;

/// Whether the sources may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The sources may change: the daemon opens files, and the kernel moves their data (passthrough).
    Live,
    /// The sources do not change: the mount is read-only, opens never reach the daemon, and the kernel caches the data.
    Frozen,
}

/// The sources in which a merged view creates files. Sources that are full, read-only, absent, or short of their
/// minimal free space are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreateReach {
    /// Those that have the folder.
    Parent,
    /// Those that have the folder, then those that have the folder above, and so on up to the root. The folder is
    /// created if necessary.
    Near,
    /// All, where the folder is created if necessary.
    All,
    /// None: creating files fails.
    None,
}

/// The preference among the sources in which a file may be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreateOrder {
    /// In the order of the sources.
    First,
    /// The most free space first.
    MostFree,
    /// The least free space first.
    LeastFree,
    /// The least used space first.
    LeastUsed,
    /// The least used share of the space first.
    LeastFilled,
    /// At random.
    Random,
    /// At random, with a probability in proportion to the free space.
    RandomByFree,
}

/// The choice of the source in which a merged view creates a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePolicy {
    /// The sources in question.
    pub reach: CreateReach,
    /// The preference among them.
    pub order: CreateOrder,
}

/// The reaction to a source that is missing as the mount is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnMissing {
    /// The mount fails.
    Fail,
    /// The mount waits for the source; after this time, it fails.
    Wait(Duration),
    /// The mount begins without the source, and shows it when it appears.
    Skip,
}

/// The reaction to a source that is full in the middle of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFull {
    /// The write fails.
    Fail,
    /// The file moves to another source. Data that is written goes through the daemon.
    Move,
}

/// The symbolic links that are shown as the files to which they lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FollowLinks {
    /// None.
    Never,
    /// Those to regular files below the sources to which the link's owner could make a hard link.
    Regular,
}

/// The conditions under which a source counts as present, so that nothing is written below the mount point of an absent
/// disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Presence {
    /// Whether the source has to be a mount point.
    pub mount_point: bool,
    /// The name of a file that has to be in the source.
    pub marker: Option<String>,
}

/// When reads through a mount update the access times of its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessTimes {
    /// Never.
    Never,
    /// As [`Relative`](Self::Relative) for files, and never for folders.
    FilesOnly,
    /// If the access time is older than the last change, or older than a day.
    Relative,
    /// At every read.
    Always,
}

impl AccessTimes {
    pub(crate) fn flags(self) -> MountFlags {
        match self {
            Self::Never => MountFlags::NOATIME,
            Self::FilesOnly => MountFlags::RELATIME | MountFlags::NODIRATIME,
            Self::Relative => MountFlags::RELATIME,
            Self::Always => MountFlags::STRICTATIME,
        }
    }
}

/// How the mount notices changes behind it, which programs make in the sources directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Changes {
    /// The kernel caches names and attributes. Each change invalidates them before the program that made the change
    /// continues. Where that is not possible, the mount falls back to [`Asked`](Self::Asked).
    Told,
    /// The kernel caches nothing, and asks at each lookup.
    Asked,
    /// Changes are not noticed: the kernel caches names and attributes until their timeouts.
    Ignored,
}

/// How requests arrive from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Through reads of `/dev/fuse`.
    Device,
    /// Over io_uring, where the kernel supports it. Requests are faster, but the death of a worker ends the connection.
    IoUring,
}

/// The options of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The folders to show.
    pub sources: Vec<SourceSpec>,
    /// The source that takes all changes; the others then stay as they are.
    pub upper: Option<PathBuf>,
    /// A file with further sources, which is read again on SIGHUP.
    pub sources_file: Option<PathBuf>,
    /// The reaction to a source that is missing as the mount is made.
    pub missing: OnMissing,
    /// The conditions under which a source counts as present.
    pub presence: Presence,
    /// The folder where they are shown, as an absolute path.
    #[serde(with = "path")]
    pub target: PathBuf,
    /// Whether the sources may change.
    pub mode: Mode,
    /// The source of new files, if there are several sources.
    pub create: CreatePolicy,
    /// Files are only created in a source while this number of bytes is free there.
    pub free_min_bytes: u64,
    /// The reaction to a source that is full in the middle of a write.
    pub on_full: OnFull,
    /// Whether a hard link or a rename into a folder that the file's source lacks makes the folder there. Otherwise it
    /// fails as between file systems.
    pub make_folders: bool,
    /// Whether other users may use the mount; permissions are checked as on the sources.
    pub allow_other: bool,
    /// Whether changes through the mount fail.
    pub read_only: bool,
    /// Whether set-user-id programs gain their owner's rights.
    pub suid: bool,
    /// Whether device nodes work.
    pub dev: bool,
    /// Whether programs can be run.
    pub exec: bool,
    /// When reads update access times; `None` follows the mount options of the sources.
    pub access_times: Option<AccessTimes>,
    /// Whether the target may contain files, which the mount hides.
    pub nonempty: bool,
    /// Whether the kernel moves the data of files where it can.
    pub passthrough: bool,
    /// How requests arrive from the kernel.
    pub transport: Transport,
    /// Whether extended attributes are supported.
    pub xattr: bool,
    /// How owners and modes are shown and written.
    pub owners: Owners,
    /// The symbolic links that are shown as the files to which they lead.
    pub follow_links: FollowLinks,
    /// Whether POSIX record locks are visible to programs that use the sources directly. Each close then costs a
    /// request.
    pub shared_locks: bool,
    /// The access rules.
    pub policy: Option<PolicyFile>,
    /// How changes behind the mount are noticed.
    pub changes: Changes,
    /// The maximum time for which the kernel caches names.
    pub entry_timeout: Duration,
    /// The maximum time for which the kernel caches attributes.
    pub attribute_timeout: Duration,
    /// The destination of the daemon's log.
    pub log: LogTarget,
}

impl Plan {
    /// Checks the options that depend on each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_links()?;
        self.check_upper()?;
        if self.owners.is_plain() {
            return Ok(());
        }
        if self.suid || self.dev {
            let option = if self.suid { "--suid" } else { "--dev" };
            return Err(Error::plain(format_args!(
                "{option} cannot be combined with options about owners and modes"
            ))
            .with_hint(
                "a program or device of one user would serve another user with the rights of the first",
            ));
        }
        let switching = CapabilitySet::SETUID | CapabilitySet::SETGID;
        let may_switch = capabilities(None).is_ok_and(|sets| sets.effective.contains(switching));
        if self.owners.creates_for_others() && !may_switch {
            return Err(Error::plain("new files for other users or groups need root").with_hint(
                "without --create-user and --create-group, new files belong to the mounting user",
            ));
        }
        Ok(())
    }
}

impl Plan {
    /// Returns the source that `mount` and `df` show. The name must equal the field in fstab, or `mount --all` would
    /// mount the view again. If the joined name is too long for the kernel, only the first source is shown.
    pub(crate) fn source_name(&self) -> OsString {
        let given = self.sources.iter().map(|source| &source.given);
        let all: Vec<_> = given.chain(&self.sources_file).map(|path| path.as_os_str()).collect();
        let joined = all.join(OsStr::new(":"));
        if joined.len() <= SOURCE_NAME_BYTES_MAX {
            return joined;
        }
        all.first().map_or("thruway".into(), |first| OsString::from(*first))
    }

    /// Whether the kernel refuses all changes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only || self.mode == Mode::Frozen
    }

    /// Checks the options that cannot be combined with links that are followed.
    fn check_links(&self) -> Result<(), Error> {
        if self.follow_links == FollowLinks::Never {
            return Ok(());
        }
        let refused = |option: &str, hint: &str| {
            let text = format_args!("--follow-symlinks cannot be combined with {option}");
            Err(Error::plain(text).with_hint(hint))
        };
        if self.policy.is_some() {
            return refused("--policy", "a link would give a file another name, with other rules");
        }
        if !self.owners.is_plain() {
            return refused(
                "options about owners and modes",
                "links are followed by the permissions of the sources, which the view does not show then",
            );
        }
        if self.allow_other && !geteuid().is_root() {
            return refused(
                "--allow-other without root",
                "other users could reach by a link whatever the mounting user can read",
            );
        }
        Ok(())
    }
}

impl Plan {
    /// Checks the options that cannot be combined with an upper source.
    fn check_upper(&self) -> Result<(), Error> {
        let Some(upper) = &self.upper else { return Ok(()) };
        if self.target.starts_with(upper) || upper.starts_with(&self.target) {
            let (upper, target) = (printable::path(upper), printable::path(&self.target));
            return Err(Error::plain(format_args!(
                "one of the upper source {upper} and the target {target} contains the other"
            )));
        }
        let new_files = "new files are made in the upper source";
        let unchanged = "the sources below the upper one do not change";
        let plain = CreatePolicy { reach: CreateReach::Parent, order: CreateOrder::First };
        let refused = [
            (self.mode == Mode::Frozen, "--frozen", "a frozen mount takes no changes"),
            (self.read_only, "--read-only", "without changes, no upper source is needed"),
            (self.create != plain, "--create", new_files),
            (self.free_min_bytes > 0, "--free-min", new_files),
            (self.on_full == OnFull::Move, "--on-full move", new_files),
            (!self.make_folders, "--make-folders off", new_files),
            (self.sources_file.is_some(), "--sources", unchanged),
            (self.missing == OnMissing::Skip, "--missing skip", unchanged),
            (!self.xattr, "--xattr off", "a file is copied with its attributes"),
            (self.access_times.is_some(), "--atime", "give it for the mounts of the sources"),
            (self.policy.is_some(), "--policy", "put a mount with the policy on top of this one"),
            (
                !self.owners.is_plain(),
                "options about owners and modes",
                "put a mount with them on top of this one",
            ),
            (
                self.follow_links != FollowLinks::Never,
                "--follow-symlinks",
                "put a mount with it on top of this one",
            ),
        ];
        if let Some((_, option, hint)) = refused.iter().find(|(is_given, ..)| *is_given) {
            let text = format_args!("--upper cannot be combined with {option}");
            return Err(Error::plain(text).with_hint(hint));
        }
        let limited = self.sources.iter().find(|source| {
            source.access == SourceAccess::NoCreate || source.free_min_bytes.is_some()
        });
        limited.map_or(Ok(()), |source| {
            let text = format_args!("--upper cannot be combined with the options of {source}");
            Err(Error::plain(text).with_hint(unchanged))
        })
    }
}

/// Serializes a path as bytes, since it need not be UTF-8.
pub(crate) mod path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(OsString::from_vec(Vec::deserialize(from)?).into())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    pub(crate) fn plan() -> Plan {
        Plan {
            sources: vec![SourceSpec::parse(OsStr::new("/source")).unwrap()],
            upper: None,
            sources_file: None,
            missing: OnMissing::Fail,
            presence: Presence::default(),
            target: "/target".into(),
            mode: Mode::Live,
            create: CreatePolicy { reach: CreateReach::Parent, order: CreateOrder::First },
            free_min_bytes: 0,
            on_full: OnFull::Fail,
            make_folders: true,
            allow_other: false,
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            access_times: None,
            nonempty: false,
            passthrough: true,
            transport: Transport::IoUring,
            xattr: true,
            owners: Owners::default(),
            follow_links: FollowLinks::Never,
            shared_locks: false,
            policy: None,
            changes: Changes::Told,
            entry_timeout: Duration::from_secs(1),
            attribute_timeout: Duration::from_secs(1),
            log: LogTarget::Stderr,
        }
    }

    #[test]
    fn a_path_that_is_not_utf_8_arrives_unchanged() {
        let mut sent = plan();
        sent.sources.push(SourceSpec::parse(OsStr::from_bytes(b"/\xff\n")).unwrap());
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), sent);
    }
}
