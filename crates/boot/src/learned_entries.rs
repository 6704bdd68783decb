//! Entries that a boot has learned for the next pack.

use std::collections::{HashMap, HashSet};

use thruway_pack::{Builder, Entry, Item, Pack, Stamp, now_ns};

use crate::code::CodeFlags;
use crate::disk;
use crate::folders::Folders;
use crate::heap::{self, HeapSize};
use crate::kind;
use crate::listing::NameKind;
use crate::{path, rights};

/// The most code, in bytes, that a boot keeps for its pack. The code stays in memory until the process ends.
const LEARNED_BYTES_MAX: usize = 256 << 20;

/// The most documents of one file that are copied from an older pack. A file can be parsed with many
/// different options.
const DOCUMENTS_OF_A_FILE_MAX: usize = 8;

/// The length of the digest at the end of a JSON document's name.
const DIGEST_BYTES: usize = 16;

/// Entries for features, scripts and documents that the pack lacks.
#[derive(Debug, Default)]
pub struct LearnedEntries {
    features: HashMap<Vec<u8>, Feature>,
    /// Digest and code, by path.
    scripts: HashMap<Vec<u8>, Vec<u8>>,
    documents: HashMap<DocumentKey, Document>,
    /// Features whose file has a new stamp but the same content.
    touched: HashMap<Vec<u8>, Stamp>,
    /// The command, and the size of the heap at the end of its boot.
    heap: Option<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    has_been_written: bool,
}

/// The kind of document, and the variant of parsing with the path.
type DocumentKey = (u32, Vec<u8>);

#[derive(Debug)]
struct Document {
    name: Vec<u8>,
    stamp: Stamp,
    data: Vec<u8>,
}

#[derive(Debug)]
struct Feature {
    stamp: Stamp,
    flags: CodeFlags,
    real_path: Option<Vec<u8>>,
    code: Vec<u8>,
    digest: Option<[u8; 16]>,
}

/// A feature compiled from a file.
#[derive(Debug)]
pub struct CompiledFeature {
    /// The path by which the feature was loaded.
    pub path: Vec<u8>,
    /// The stamp, which was the same before and after Ruby read the file.
    pub stamp: Stamp,
    /// The time at which Ruby started to read the file, in nanoseconds since 1970.
    pub read_ns: i64,
    /// The flags of the code, including the warnings under which it compiled silently.
    pub flags: CodeFlags,
    /// The real path, if it differs from `path`.
    pub real_path: Option<Vec<u8>>,
    /// The compiled code.
    pub code: Vec<u8>,
    /// The digest of the source, if it was computed.
    pub digest: Option<[u8; 16]>,
}

impl LearnedEntries {
    /// Adds a feature, unless its file may have changed without a new stamp, or the limit of memory is
    /// reached.
    pub fn add(&mut self, compiled: CompiledFeature) {
        let CompiledFeature { path, stamp, read_ns, flags, real_path, code, digest } = compiled;
        if !stamp.is_racy(read_ns) && self.has_room(code.len()) {
            self.features.insert(path, Feature { stamp, flags, real_path, code, digest });
        }
    }

    /// Adds the digest and the code of a script.
    pub fn add_script(&mut self, path: &[u8], digest: [u8; 16], code: &[u8]) {
        if self.has_room(code.len()) {
            self.scripts.insert(path.to_vec(), [&digest[..], code].concat());
        }
    }

    /// Adds the new stamp of a feature whose content has not changed, so that later boots need not compare
    /// the content.
    pub fn add_touched(&mut self, path: &[u8], stamp: Stamp) {
        if !stamp.is_racy(now_ns()) {
            self.touched.insert(path.to_vec(), stamp);
        }
    }

    /// Adds the size of the heap at the end of a command's boot.
    pub fn add_heap(&mut self, command: &[u8], size: &HeapSize) {
        self.heap = Some((command.to_vec(), size.encode()));
    }

    /// Adds the content of a file.
    pub fn add_document(&mut self, kind: u32, name: Vec<u8>, stamp: Stamp, data: Vec<u8>) {
        self.put_document((kind, name.clone()), Document { name, stamp, data });
    }

    /// Adds the content of the JSON text with the given digest. The content of an earlier text of the same file is
    /// replaced.
    pub fn add_json(
        &mut self,
        path: &[u8],
        variant: &[u8],
        digest: [u8; 16],
        stamp: Stamp,
        document: &[u8],
    ) {
        let name = [variant, &digest].join(&0);
        let data = [path, document].join(&0);
        let key = (kind::JSON, [variant, path].join(&0));
        self.put_document(key, Document { name, stamp, data });
    }

    fn put_document(&mut self, key: DocumentKey, document: Document) {
        let old = self.documents.get(&key).map_or(0, |old| old.data.len());
        self.bytes -= old;
        if self.has_room(document.data.len()) {
            self.documents.insert(key, document);
        } else {
            self.bytes += old;
        }
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_empty = self.features.is_empty() && self.scripts.is_empty();
        is_empty && self.documents.is_empty() && self.touched.is_empty() && self.heap.is_none()
    }

    /// Drops all entries after they were written to a pack.
    pub fn forget(&mut self) {
        *self = Self { has_been_written: true, ..Self::default() };
    }

    /// Whether entries of this boot were written to a pack before.
    #[must_use]
    pub fn has_been_written(&self) -> bool {
        self.has_been_written
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        let sum = self.bytes + bytes;
        let has_room = sum <= LEARNED_BYTES_MAX;
        self.bytes = if has_room { sum } else { self.bytes };
        has_room
    }

    /// Adds all entries to a pack.
    pub fn put_into<'a>(&'a self, builder: &mut Builder<'a>) {
        for (path, feature) in &self.features {
            let item = Item::new(feature.stamp, &feature.code[..]).flags(feature.flags.to_bits());
            builder.insert(kind::FEATURE, &path[..], item);
            if let Some(real_path) = &feature.real_path {
                builder.insert(kind::ALIAS, &path[..], Item::new(Stamp::default(), &real_path[..]));
            }
            if let Some(digest) = &feature.digest {
                builder.insert(kind::DIGEST, &path[..], Item::new(feature.stamp, &digest[..]));
            }
        }
        for (path, script) in &self.scripts {
            builder.insert(kind::SCRIPT, &path[..], Item::new(Stamp::default(), &script[..]));
        }
        for ((kind, _), document) in &self.documents {
            let item = Item::new(document.stamp, &document.data[..]);
            builder.insert(*kind, &document.name[..], item);
        }
        if let Some((command, size)) = &self.heap {
            let item = Item::new(Stamp::default(), &size[..]);
            builder.insert(kind::HEAP, &command[..], item);
        }
    }

    /// Copies the current entries of an older pack. Of the documents of one file only a few are copied, since
    /// the options of parsing may differ every time.
    pub fn keep<'a>(&self, pack: &Pack<'a>, builder: &mut Builder<'a>) {
        let mut documents: HashMap<DocumentKey, usize> = HashMap::new();
        for (kind, key) in self.documents.keys() {
            *documents.entry((*kind, after_nul(key).to_vec())).or_default() += 1;
        }
        let mut heaps = usize::from(self.heap.is_some());
        for entry in pack.entries() {
            if entry.kind() == kind::HEAP {
                heaps += 1;
                if heaps > heap::COMMANDS_MAX {
                    continue;
                }
            }
            let stamp = self.touched.get(entry.name()).copied();
            if let (Some(stamp), kind::FEATURE | kind::DIGEST) = (stamp, entry.kind()) {
                builder.keep_as(&entry, stamp);
                continue;
            }
            if !is_current(&entry) || self.replaces(&entry) {
                continue;
            }
            let count = match entry.kind() {
                kind::YAML | kind::ZONE => Some(after_nul(entry.name())),
                kind::JSON => entry.data().and_then(split_at_nul).map(|(path, _)| path),
                _ => None,
            };
            let count =
                count.map(|path| documents.entry((entry.kind(), path.to_vec())).or_default());
            if count.as_ref().is_none_or(|count| **count < DOCUMENTS_OF_A_FILE_MAX) {
                builder.keep(&entry);
            }
            count.into_iter().for_each(|count| *count += 1);
        }
    }

    /// Whether a newer text of the same JSON file was learned.
    fn replaces(&self, entry: &Entry<'_>) -> bool {
        let path = match entry.kind() {
            kind::JSON => entry.data().and_then(split_at_nul).map(|(path, _)| path),
            _ => None,
        };
        let variant = entry.name().get(..entry.name().len().saturating_sub(DIGEST_BYTES + 1));
        path.zip(variant).is_some_and(|(path, variant)| {
            self.documents.contains_key(&(kind::JSON, [variant, path].join(&0)))
        })
    }
}

/// Returns the digests of all JSON texts in the pack.
pub(crate) fn json_digests(pack: &Pack<'_>) -> HashSet<[u8; DIGEST_BYTES]> {
    let names = pack.entries().filter(|entry| entry.kind() == kind::JSON);
    names.filter_map(|entry| entry.name().last_chunk().copied()).collect()
}

/// Whether a folder is new, or differs from its entry in the pack.
pub fn has_new_folders(folders: &Folders) -> bool {
    folders.known().any(|known| known.is_new)
}

/// Adds all known folders to a pack.
pub fn put_folders<'a>(folders: &'a Folders, builder: &mut Builder<'a>) {
    let mut access_lists = HashMap::new();
    for known in folders.known() {
        if known.path != known.real_path {
            let item = Item::new(Stamp::default(), known.real_path);
            builder.insert(kind::ALIAS, known.path, item);
            continue;
        }
        let is_open = known.is_open && !listed_above(&mut access_lists, known.path);
        let flags = if known.names.is_some() { kind::LISTED } else { 0 };
        let flags = if is_open { flags | kind::OPEN } else { flags };
        let item = Item::new(known.stamp, known.names.unwrap_or_default()).flags(flags);
        builder.insert(kind::FOLDER, known.path, item);
    }
}

/// Whether the folder or one of its parents has an access list, which may deny access that the mode grants.
fn listed_above<'a>(known: &mut HashMap<&'a [u8], bool>, path: &'a [u8]) -> bool {
    if let Some(is_listed) = known.get(path) {
        return *is_listed;
    }
    let above = path::split(path).is_some_and(|(folder, _)| listed_above(known, folder));
    let is_listed = above || rights::has_access_list(path);
    known.insert(path, is_listed);
    is_listed
}

/// Whether an entry still belongs to its file, as far as stamps tell.
#[must_use]
pub fn is_current(entry: &Entry<'_>) -> bool {
    let has_stamp = |status: disk::Status| disk::stamp(&status) == entry.stamp();
    let is_stamped = |path| disk::status(path).is_ok_and(has_stamp);
    let leads_to_stamped = |path| disk::status_of_target(path).is_some_and(has_stamp);
    match entry.kind() {
        // An entry without names records only that the path is a folder.
        kind::FOLDER if entry.flags() & kind::LISTED == 0 => is_folder(entry.name()),
        kind::FEATURE | kind::FOLDER => is_stamped(entry.name()),
        kind::YAML | kind::ZONE => leads_to_stamped(after_nul(entry.name())),
        kind::JSON => {
            let path = entry.data().and_then(split_at_nul).map(|(path, _)| path);
            path.is_some_and(leads_to_stamped)
        }
        // A size is a forecast, which no file can make wrong.
        kind::HEAP => true,
        // Other kinds are validated when they are used. They are dropped once their path is gone.
        _ => disk::status_of_target(entry.name()).is_some(),
    }
}

fn is_folder(path: &[u8]) -> bool {
    disk::status(path).is_ok_and(|status| disk::kind(&status) == NameKind::Folder)
}

/// Returns the bytes after the first NUL: the path in a document's name.
pub(crate) fn after_nul(name: &[u8]) -> &[u8] {
    split_at_nul(name).map(|(_, rest)| rest).unwrap_or_default()
}

/// Splits bytes at the first NUL; `None` if there is no NUL.
pub fn split_at_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { size: 1, mtime_ns: 2, ctime_ns: 3, inode: 4 };

    fn stamp_of(path: &std::path::Path) -> Stamp {
        disk::stamp(&disk::status(&disk::path_bytes(path)).unwrap())
    }

    /// Writes what `learned` holds, and copies `older`, into a pack. Returns the names of its documents, and
    /// the pack.
    fn documents(learned: &LearnedEntries, older: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut builder = Builder::new(b"");
        learned.put_into(&mut builder);
        let older = Pack::from_bytes(older);
        if let Ok(pack) = &older {
            learned.keep(pack, &mut builder);
        }
        let bytes = builder.finish(0).unwrap();
        let names = Pack::from_bytes(&bytes).unwrap();
        (names.entries().map(|entry| entry.name().to_vec()).collect(), bytes)
    }

    #[test]
    fn a_json_file_that_is_written_again_and_again_has_one_entry() {
        let mut learned = LearnedEntries::default();
        for number in 0..1000_u16 {
            let digest = [number.to_le_bytes(); 8].concat().try_into().unwrap();
            learned.add_json(b"/a.json", b"parse", digest, STAMP, &[0; 1000]);
        }
        assert_eq!(learned.documents.len(), 1);
        assert!(learned.bytes < 2000, "{} bytes", learned.bytes);
    }

    #[test]
    fn a_json_entry_goes_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        std::fs::write(&path, "1").unwrap();
        let name = &*disk::path_bytes(&path);
        let mut learned = LearnedEntries::default();
        learned.add_json(name, b"parse", [1; 16], stamp_of(&path), b"1");
        let (names, bytes) = documents(&learned, b"");
        assert_eq!(names.len(), 1);
        assert_eq!(documents(&LearnedEntries::default(), &bytes).0, names, "nothing has changed");
        let mut again = LearnedEntries::default();
        again.add_json(name, b"parse", [2; 16], stamp_of(&path), b"2");
        assert_eq!(documents(&again, &bytes).0.len(), 1, "another text of the same file");
        std::fs::write(&path, "22").unwrap();
        assert!(documents(&LearnedEntries::default(), &bytes).0.is_empty(), "it has changed");
        std::fs::remove_file(&path).unwrap();
        assert!(documents(&LearnedEntries::default(), &bytes).0.is_empty(), "it is gone");
    }

    #[test]
    fn a_file_that_is_read_in_ever_new_ways_has_a_few_entries() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yml");
        std::fs::write(&path, "a: 1").unwrap();
        let mut bytes = Vec::new();
        for number in 0..100 {
            let mut learned = LearnedEntries::default();
            let name =
                [format!("way {number}").as_bytes(), path.as_os_str().as_encoded_bytes()].join(&0);
            learned.add_document(kind::YAML, name.clone(), stamp_of(&path), vec![1]);
            let (names, pack) = documents(&learned, &bytes);
            assert!(names.contains(&name) && names.len() <= DOCUMENTS_OF_A_FILE_MAX, "{number}");
            bytes = pack;
        }
    }
}
