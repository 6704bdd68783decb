//! The NT calls of a search, as a trait, so that a test can simulate a file system.

#[cfg(windows)]
use thruway_sys::nt;

/// The attributes of a file or folder, read without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Creation, last write and last change, in units of 100 ns since 1601.
    pub times: [i64; 3],
    /// Whether it is a folder.
    pub is_directory: bool,
    /// Whether it is a symbolic link or a junction.
    pub is_link: bool,
}

/// The NT calls, one query each. Errors are NT status codes (`NTSTATUS`), paths have NT's form (`\??\C:\x`).
pub trait Calls {
    /// An open folder.
    type Folder;

    /// Opens a folder for listing.
    ///
    /// # Errors
    /// The NT status.
    fn open(&mut self, path: &[u16]) -> Result<Self::Folder, i32>;

    /// Passes further entries that match `pattern` to `show`, with whether each is a folder. Returns `false`
    /// if there are no more.
    ///
    /// # Errors
    /// The NT status.
    fn query(
        &mut self,
        folder: &Self::Folder,
        pattern: Option<&[u16]>,
        show: &mut dyn FnMut(&[u16], bool),
    ) -> Result<bool, i32>;

    /// Whether a folder is on a local file system that keeps stamps: NTFS or ReFS. Costs two calls.
    ///
    /// # Errors
    /// The NT status.
    fn keeps_stamps(&mut self, folder: &Self::Folder) -> Result<bool, i32>;

    /// Closes a folder.
    fn close(&mut self, folder: Self::Folder);

    /// Returns the attributes of a path.
    ///
    /// # Errors
    /// The NT status.
    fn attributes(&mut self, path: &[u16]) -> Result<Attributes, i32>;
}

/// The calls of this system.
#[cfg(windows)]
#[derive(Debug, Default)]
pub struct System {
    entries: nt::Entries,
}

#[cfg(windows)]
impl Calls for System {
    type Folder = nt::Folder;

    fn open(&mut self, path: &[u16]) -> Result<Self::Folder, i32> {
        nt::Folder::open(path).map_err(|status| status.0)
    }

    fn query(
        &mut self,
        folder: &Self::Folder,
        pattern: Option<&[u16]>,
        show: &mut dyn FnMut(&[u16], bool),
    ) -> Result<bool, i32> {
        let more = folder.query(pattern, &mut self.entries).map_err(|status| status.0)?;
        if more {
            self.entries.for_each(show);
        }
        Ok(more)
    }

    fn keeps_stamps(&mut self, folder: &Self::Folder) -> Result<bool, i32> {
        let volume = folder.volume().map_err(|status| status.0)?;
        Ok(!volume.is_remote && matches!(volume.file_system.as_str(), "NTFS" | "ReFS"))
    }

    fn close(&mut self, folder: Self::Folder) {
        drop(folder);
    }

    fn attributes(&mut self, path: &[u16]) -> Result<Attributes, i32> {
        let found = nt::attributes(path).map_err(|status| status.0)?;
        let nt::Attributes { times, is_directory, is_link } = found;
        Ok(Attributes { times, is_directory, is_link })
    }
}
