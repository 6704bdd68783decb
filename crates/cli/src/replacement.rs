//! A file gets a new text in one step: a reader finds the old one or the new one, whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// A file's new text, beside it until [`Replacement::take_place`]. Dropped before that, it is removed.
#[derive(Debug)]
pub(crate) struct Replacement {
    /// The file itself, where a link leads to it.
    path: PathBuf,
    partial: PathBuf,
}

impl Replacement {
    /// Writes the text to the disk, with the mode of the file and, if that is allowed, its owner.
    pub(crate) fn write(path: &Path, text: &str) -> io::Result<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the file behind a link is replaced, not the link"
        )]
        let path = fs::canonicalize(path)?;
        let old = fs::metadata(&path)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".thruway-{}", std::process::id()));
        let partial = path.with_file_name(name);
        let mut file = File::create_new(&partial)?;
        let replacement = Self { path, partial };
        file.write_all(text.as_bytes())?;
        // Only root may give a file away; another user's copy is that user's own.
        let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        // After the owner: a change of the owner clears bits of the mode.
        file.set_permissions(old.permissions())?;
        file.sync_all()?;
        Ok(replacement)
    }

    /// Puts the new text in the place of the old one.
    pub(crate) fn take_place(self) -> io::Result<()> {
        fs::rename(&self.partial, &self.path)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // After the rename there is nothing to remove.
        let _ = fs::remove_file(&self.partial);
    }
}
