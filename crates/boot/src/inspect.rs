//! What a pack file holds, for people.

use std::path::Path;

use thruway_pack::{Entry, Error, PackFile};

use crate::kind;
use crate::learned;

/// A pack file, as it is on disk.
#[derive(Debug)]
pub struct Inspection {
    /// Whose pack it is: lines of text.
    pub identity: String,
    /// When it was written: nanoseconds since 1970.
    pub written_ns: i64,
    /// Size of the file in bytes.
    pub bytes: usize,
    /// What it holds, kind by kind; kinds of which there is nothing are left out.
    pub kinds: Vec<KindSummary>,
    /// Names of entries whose file has changed or gone since.
    pub stale: Vec<Vec<u8>>,
}

/// The entries of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindSummary {
    /// The kind, in words.
    pub name: &'static str,
    /// How many entries there are.
    pub entries: usize,
    /// How many bytes their data takes.
    pub bytes: u64,
    /// How many of them are stale.
    pub stale: usize,
}

/// Looks at the pack, and at every file that it was made from.
///
/// # Errors
/// It is missing, may not be trusted, or is no pack of this format.
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

/// What is damaged in the pack, in words; nothing if it is whole. Also how many entries it has.
///
/// # Errors
/// As of [`inspect`].
pub fn verify(path: &Path) -> Result<(usize, Vec<String>), Error> {
    let file = PackFile::open(path)?;
    Ok((file.pack().len(), file.pack().damages()))
}

impl Inspection {
    /// Entries come in the order of their kinds.
    fn count(&mut self, entry: &Entry<'_>) {
        let name = kind::name(entry.kind());
        if self.kinds.last().is_none_or(|last| last.name != name) {
            self.kinds.push(KindSummary { name, entries: 0, bytes: 0, stale: 0 });
        }
        let is_stale = !learned::is_current(entry);
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
