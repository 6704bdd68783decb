//! The kinds of entries that this crate writes to a pack.

/// A feature. Name: its path. Data: its compiled code.
pub const FEATURE: u32 = 1;
/// A folder. Name: its real path. Data: its [`Listing`](crate::listing::Listing), or empty.
pub const FOLDER: u32 = 2;
/// A path with symbolic links among its components. Name: the path. Data: the real path.
pub const ALIAS: u32 = 3;
/// The digest of a feature's source. Name: the path. Data: 16 bytes.
pub const DIGEST: u32 = 4;
/// A script that is evaluated. Name: its path. Data: the 16-byte digest of its source, followed by its
/// compiled code.
pub const SCRIPT: u32 = 5;
/// A YAML file. Name: the variant of parsing, a NUL, and the path. Data: a [document](crate::document), or
/// empty if the content is uncacheable.
pub const YAML: u32 = 8;
/// A JSON text. Name: the variant of parsing, a NUL, and the digest of the text. Data: the path of the file
/// it came from, a NUL, and a document. The stamp is that of the file.
pub const JSON: u32 = 9;
/// The file of a time zone. Name: the variant of reading, a NUL, and the path. Data: a [zone](crate::zone), or
/// empty if the content is uncacheable.
pub const ZONE: u32 = 10;
/// The size of Ruby's heap at the end of a boot. Name: the [command](crate::heap::command). Data: a
/// [`HeapSize`](crate::heap::HeapSize).
pub const HEAP: u32 = 11;

/// Flag of a folder whose names are in the data. Without the flag, the entry records only that the path is a
/// folder.
pub const LISTED: u32 = 1;
/// Flag of a folder that, like all its parents, every user may search.
pub const OPEN: u32 = 2;

/// Returns the name of a kind, for display.
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
        ZONE => "zones",
        HEAP => "heaps",
        _ => "others",
    }
}
