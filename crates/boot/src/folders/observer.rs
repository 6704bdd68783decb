//! The observer that hears of each query to the disk.

/// A query that is about to be sent to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskQuery {
    /// Whether the path is a folder or a link.
    Folder,
    /// The stamp of the file at the path itself.
    File,
    /// The stamp of the file that the path leads to.
    Target,
    /// The names in a folder.
    Names,
}

/// A function that is called with the path and the query, before the disk is queried and before names from
/// the pack are used.
pub type Observer = fn(&[u8], DiskQuery);
