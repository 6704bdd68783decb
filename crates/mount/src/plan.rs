//! The options of a mount.

use std::path::PathBuf;
use std::time::Duration;

use rustix::mount::MountFlags;
use serde::{Deserialize, Serialize};

use crate::log::LogTarget;
use crate::policy::PolicyFile;

/// Whether the sources may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The sources may change: the daemon opens files, and the kernel moves their data (passthrough).
    Live,
    /// The sources do not change: the mount is read-only, opens never reach the daemon, and the kernel caches the data.
    Frozen,
}

/// The source in which a merged view creates files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreatePolicy {
    /// The first source that has the folder.
    Parent,
    /// The first source, where the folder is created if necessary.
    First,
    /// The source with the most free space, where the folder is created if necessary.
    MostFree,
    /// No source: creating files fails.
    None,
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
    /// The folders to show, as absolute paths.
    #[serde(with = "paths")]
    pub sources: Vec<PathBuf>,
    /// The folder where they are shown, as an absolute path.
    #[serde(with = "path")]
    pub target: PathBuf,
    /// Whether the sources may change.
    pub mode: Mode,
    /// The source of new files, if there are several sources.
    pub create: CreatePolicy,
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

/// Serializes a path as bytes, since it need not be UTF-8.
mod path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(OsString::from_vec(Vec::deserialize(from)?).into())
    }
}

/// Serializes paths as bytes.
mod paths {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| path.as_os_str().as_bytes()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let all: Vec<Vec<u8>> = Vec::deserialize(from)?;
        Ok(all.into_iter().map(|bytes| OsString::from_vec(bytes).into()).collect())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    pub(crate) fn plan() -> Plan {
        Plan {
            sources: vec!["/source".into()],
            target: "/target".into(),
            mode: Mode::Live,
            create: CreatePolicy::Parent,
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
        sent.sources.push(OsStr::from_bytes(b"/\xff\n").into());
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), sent);
    }
}
