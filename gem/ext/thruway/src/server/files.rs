//! Files that an application sends: as bodies with a path, or named by a field.

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
    folders: Vec<Declared>,
}

struct Declared {
    /// What the field's value begins with: the folder's path, or another prefix for it.
    prefix: Vec<u8>,
    boundary: Boundary,
}

impl DeclaredFolders {
    /// Lets files beneath `folder` be named by a path that begins with `prefix`.
    pub(super) fn declare(
        &mut self,
        prefix: &[u8],
        folder: &[u8],
    ) -> Result<(), thruway_resolve::Error> {
        let boundary = Boundary::new(Path::new(OsStr::from_bytes(folder)), DenyList::new())?;
        self.folders.push(Declared { prefix: prefix.to_vec(), boundary });
        Ok(())
    }

    /// Whether the field of that name is for the server, not for the client.
    pub(super) fn is_field(&self, name: &[u8]) -> bool {
        !self.folders.is_empty()
            && (name.eq_ignore_ascii_case(b"x-sendfile")
                || name.eq_ignore_ascii_case(b"x-accel-redirect"))
    }

    /// Opens the file that `path` names in the first folder that it lies in, with its size.
    pub(super) fn open(&self, path: &[u8]) -> Option<(OwnedFd, u64)> {
        let (declared, name) = self.folders.iter().find_map(|declared| {
            Name::beneath(&declared.prefix, path).ok().map(|name| (declared, name))
        })?;
        let file = declared.boundary.open(&name).ok()?;
        let size = file.size_bytes();
        (file.kind() == FileKind::Regular).then(|| (OwnedFd::from(file.into_file()), size))
    }
}

/// Opens the file at `path`, which the application chose by itself, with its size.
pub(super) fn open(path: &[u8]) -> Option<(OwnedFd, u64)> {
    // NONBLOCK: the open of a FIFO without a writer must not wait for one.
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(OsStr::from_bytes(path)).ok()?;
    let metadata = file.metadata().ok()?;
    metadata.is_file().then(|| (OwnedFd::from(file), metadata.len()))
}
