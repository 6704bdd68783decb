//! The content of a pack file, for display.

use std::path::Path;

use thruway_pack::{Entry, Error, PackFile};

use crate::kind;
use crate::learned_entries;

/// The content of a pack file.
#[derive(Debug)]
pub struct Inspection {
    /// The identity of the program that the pack belongs to: lines of text.
    pub identity: String,
    /// The time at which the pack was written, in nanoseconds since 1970.
    pub written_ns: i64,
    /// The size of the file, in bytes.
    pub bytes: usize,
    /// A summary for each kind of entry that occurs.
    pub kinds: Vec<KindSummary>,
    /// Names of entries whose file has changed or gone.
    pub stale: Vec<Vec<u8>>,
}

/// A summary of one kind of entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindSummary {
    /// The name of the kind.
    pub name: &'static str,
    /// The number of entries.
    pub entries: usize,
    /// The size of their data, in bytes.
    pub bytes: u64,
    /// The number of stale entries.
    pub stale: usize,
}

/// Reads a pack and compares every entry with its file.
///
/// # Errors
/// The file is missing, must not be trusted, or does not have this format.
pub fn inspect(path: &Path) -> Result<Inspection, Error> {
    let file = PackFile::open(path)?;
    let pack = file.pack();
    let mut inspection = Inspection {
        identity: String::from_utf8_lossy(pack.identity()).into_owned(),
        written_ns: pack.written_ns(),
        bytes: pack.bytes(),
        kinds: Vec::new(),
        stale: Vec::new(),
    };
    for entry in pack.entries() {
        inspection.count(&entry);
    }
    Ok(inspection)
}

/// Checks a pack. Returns the number of entries and a line for each damage; no lines if the pack is intact.
///
/// # Errors
/// See [`inspect`].
pub fn verify(path: &Path) -> Result<(usize, Vec<String>), Error> {
    let file = PackFile::open(path)?;
    Ok((file.pack().len(), file.pack().damages()))
}

impl Inspection {
    /// Counts an entry. Entries must come in the order of their kinds.
    fn count(&mut self, entry: &Entry<'_>) {
        let name = kind::name(entry.kind());
        if self.kinds.last().is_none_or(|last| last.name != name) {
            self.kinds.push(KindSummary { name, entries: 0, bytes: 0, stale: 0 });
        }
        let is_stale = !learned_entries::is_current(entry);
        if let Some(summary) = self.kinds.last_mut() {
            summary.entries += 1;
            summary.bytes += entry.data_bytes();
            summary.stale += usize::from(is_stale);
        }
        if is_stale {
            self.stale.push(entry.name().to_vec());
        }
    }
}
