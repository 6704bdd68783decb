//! What is told of each question to the disk.

/// What the disk is about to be asked about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Whether it is a folder, or a link.
    Folder,
    /// The stamp of the file that it is itself.
    File,
    /// The stamp of what it leads to.
    Target,
    /// The names in a folder.
    Names,
}

/// Is called before the disk is asked, and before names from the pack are used.
pub type Observer = fn(&[u8], Asked);
