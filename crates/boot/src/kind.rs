//! The kinds of entries that this crate puts into a pack.

/// A feature: named by its path, its data is its compiled code.
pub const FEATURE: u32 = 1;
/// A folder: named by its real path, its data is its [`Listing`](crate::listing::Listing) or empty.
pub const FOLDER: u32 = 2;
/// A path that leads through links: its data is the real path.
pub const ALIAS: u32 = 3;
/// A feature's source: named by its path, its data is 16 bytes of digest.
pub const DIGEST: u32 = 4;
/// A script that is evaluated: named by its path, its data is 16 bytes of digest of its source, and its
/// compiled code.
pub const SCRIPT: u32 = 5;
/// What a YAML file says: named by how it is read, a NUL, and its path. Its data is a
/// [document](crate::document), or empty if what it says cannot be kept.
pub const YAML: u32 = 8;
/// What a JSON text says: named by how it is read, a NUL, and its digest. Its data is the path of the
/// file that it was seen in, a NUL, and a document. The stamp is that file's.
pub const JSON: u32 = 9;

/// A folder whose names are in the entry; without it only that it is a folder is known.
pub const LISTED: u32 = 1;
/// A folder that every user may search, as all folders above it.
pub const OPEN: u32 = 2;

/// The kind in words, for people.
#[must_use]
pub fn name(kind: u32) -> &'static str {
    match kind {
        FEATURE => "features",
        FOLDER => "folders",
        ALIAS => "links",
        DIGEST => "digests",
        SCRIPT => "gemspecs",
        YAML => "yaml",
        JSON => "json",
        _ => "others",
    }
}
