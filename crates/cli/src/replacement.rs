//! Replaces a file's text atomically: a reader finds the whole old text or the whole new text.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// A file's new text, stored beside the file until [`Replacement::take_place`]. Dropping the value earlier removes the
/// new text.
#[derive(Debug)]
pub(crate) struct Replacement {
    /// The file itself, with symbolic links resolved.
    path: PathBuf,
    partial: PathBuf,
}

impl Replacement {
    /// Writes the text to the disk, with the mode of the file and, if permitted, its owner.
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
        // Only root may give a file away. Another user's copy belongs to that user.
        let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        // The mode follows the owner, because a change of the owner clears bits of the mode.
        file.set_permissions(old.permissions())?;
        file.sync_all()?;
        Ok(replacement)
    }

    /// Replaces the old text with the new text.
    pub(crate) fn take_place(self) -> io::Result<()> {
        fs::rename(&self.partial, &self.path)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // After the rename, no partial file is left, and the removal fails.
        let _ = fs::remove_file(&self.partial);
    }
}
