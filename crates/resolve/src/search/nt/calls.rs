//! The calls of NT that a search makes, so that a test can play a file system of its own.

#[cfg(windows)]
use thruway_sys::nt;

/// What is known of a file or folder without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Creation, last write and last change, in units of 100 ns since 1601.
    pub times: [i64; 3],
    /// Whether it is a folder.
    pub is_directory: bool,
    /// Whether the system goes on elsewhere from it: a symbolic link, a junction.
    pub is_link: bool,
}

/// The calls, one question each. Errors are numbers of NT (`NTSTATUS`), paths are NT's (`\??\C:\x`).
pub trait Calls {
    /// An open folder.
    type Folder;

    /// Opens a folder for listing.
    ///
    /// # Errors
    /// The status.
    fn open(&mut self, path: &[u16]) -> Result<Self::Folder, i32>;

    /// Shows more entries that match `pattern`, with whether they are folders. `false`: no more.
    ///
    /// # Errors
    /// The status.
    fn query(
        &mut self,
        folder: &Self::Folder,
        pattern: Option<&[u16]>,
        show: &mut dyn FnMut(&[u16], bool),
    ) -> Result<bool, i32>;

    /// Whether a folder is of a file system of this machine that keeps stamps: NTFS or ReFS. This is
    /// two calls.
    ///
    /// # Errors
    /// The status.
    fn keeps_stamps(&mut self, folder: &Self::Folder) -> Result<bool, i32>;

    /// Closes a folder.
    fn close(&mut self, folder: Self::Folder);

    /// What is known of a path.
    ///
    /// # Errors
    /// The status.
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
