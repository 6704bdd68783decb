//! Files that an application sends, as bodies with a path or by the name in a header field.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use thruway_resolve::{Boundary, DenyList, FileKind, Name};

/// Folders whose files an application may name in `X-Sendfile` or `X-Accel-Redirect`.
#[derive(Default)]
pub(super) struct DeclaredFolders {
    folders: Vec<DeclaredFolder>,
}

struct DeclaredFolder {
    /// The prefix of the field's value: the folder's path, or another prefix that stands for it.
    prefix: Vec<u8>,
    boundary: Boundary,
}

impl DeclaredFolders {
    /// Declares that paths with `prefix` name files beneath `folder`.
    pub(super) fn declare(
        &mut self,
        prefix: &[u8],
        folder: &[u8],
    ) -> Result<(), thruway_resolve::Error> {
        let boundary = Boundary::new(Path::new(OsStr::from_bytes(folder)), DenyList::new())?;
        self.folders.push(DeclaredFolder { prefix: prefix.to_vec(), boundary });
        Ok(())
    }

    /// Whether the field of that name is meant for the server, not for the client.
    pub(super) fn is_field(&self, name: &[u8]) -> bool {
        !self.folders.is_empty()
            && (name.eq_ignore_ascii_case(b"x-sendfile")
                || name.eq_ignore_ascii_case(b"x-accel-redirect"))
    }

    /// Opens the file that `path` names, in the first declared folder that contains it. Returns the file and its
    /// size.
    pub(super) fn open(&self, path: &[u8]) -> Option<(OwnedFd, u64)> {
        let (declared, name) = self.folders.iter().find_map(|declared| {
            Name::beneath(&declared.prefix, path).ok().map(|name| (declared, name))
        })?;
        let file = declared.boundary.open(&name).ok()?;
        let size = file.size_bytes();
        (file.kind() == FileKind::Regular).then(|| (OwnedFd::from(file.into_file()), size))
    }
}

/// Opens the file at `path`, which the application itself has chosen. Returns the file and its size.
pub(super) fn open(path: &[u8]) -> Option<(OwnedFd, u64)> {
    // NONBLOCK: opening a FIFO that has no writer must not block.
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(OsStr::from_bytes(path)).ok()?;
    let metadata = file.metadata().ok()?;
    metadata.is_file().then(|| (OwnedFd::from(file), metadata.len()))
}
