//! What is asked for.

use std::path::PathBuf;
use std::time::Duration;

use rustix::mount::MountFlags;
use serde::{Deserialize, Serialize};

use crate::log::LogTarget;
use crate::policy::PolicyFile;

/// Whether the sources change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They do: files are opened by the daemon, and the kernel moves their data (passthrough).
    Live,
    /// They do not: read-only, opens never reach the daemon, the kernel keeps what it has read.
    Frozen,
}

/// Which source gets what is made in a merged view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreatePolicy {
    /// The first that has the folder.
    Parent,
    /// The first of all; the folder is made there if need be.
    First,
    /// The one with the most space; the folder is made there if need be.
    MostFree,
    /// None: nothing can be made.
    None,
}

/// When reads through a mount change the access times of its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessTimes {
    /// Never.
    Never,
    /// A file's as [`Relative`](Self::Relative), a folder's never.
    FilesOnly,
    /// If it is older than the last change, or than a day.
    Relative,
    /// Always.
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

/// How changes are noticed that are made in the sources, behind the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Changes {
    /// The kernel keeps names and attributes, and is told of each change before the program that made it goes on.
    /// Where that cannot be had it is [`Asked`](Self::Asked).
    Told,
    /// The kernel keeps nothing: each look-up asks.
    Asked,
    /// Not at all: the kernel keeps names and attributes as long as it may.
    Ignored,
}

/// How requests come from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Read from `/dev/fuse`.
    Device,
    /// Over io_uring, where the kernel offers it: faster, but a worker's death ends the connection.
    IoUring,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The folders that are shown; absolute.
    #[serde(with = "paths")]
    pub sources: Vec<PathBuf>,
    /// The folder that they are shown at; absolute.
    #[serde(with = "path")]
    pub target: PathBuf,
    /// Whether the sources change.
    pub mode: Mode,
    /// Which source gets what is made, if there are several.
    pub create: CreatePolicy,
    /// Other users may use the mount; permissions are checked as on the sources.
    pub allow_other: bool,
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// Set-user-id programs keep their rights.
    pub suid: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Programs can be started.
    pub exec: bool,
    /// When reads change access times; `None` is "as the sources were mounted".
    pub access_times: Option<AccessTimes>,
    /// The target may hold something, which is hidden then.
    pub nonempty: bool,
    /// The kernel moves the data of files where it can.
    pub passthrough: bool,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// Extended attributes are passed on.
    pub xattr: bool,
    /// POSIX record locks are seen by those who use the sources directly, at a request for each close.
    pub shared_locks: bool,
    /// Who may do what.
    pub policy: Option<PolicyFile>,
    /// How changes behind the mount are noticed.
    pub changes: Changes,
    /// How long the kernel keeps names.
    pub entry_timeout: Duration,
    /// How long the kernel keeps attributes.
    pub attribute_timeout: Duration,
    /// Where the daemon writes what it has to say.
    pub log: LogTarget,
}

/// A path as its bytes: it need not be text.
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

/// Paths as their bytes.
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
    fn a_path_that_is_no_text_arrives_as_it_is() {
        let mut sent = plan();
        sent.sources.push(OsStr::from_bytes(b"/\xff\n").into());
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), sent);
    }
}
