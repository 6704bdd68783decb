//! What a boot learned, and how it goes into the next pack.

use std::collections::HashMap;

use rustix::fs::{self, AtFlags, CWD, FileType};
use thruway_pack::{Builder, Entry, Item, Pack, Stamp};

use crate::code::CodeFlags;
use crate::folders::Folders;
use crate::kind;
use crate::{path, rights};

/// Most bytes of compiled code that one boot keeps for its pack: it is held in memory till the end.
const LEARNED_BYTES_MAX: usize = 256 << 20;

/// What was compiled because the pack did not have it.
#[derive(Debug, Default)]
pub struct Learned {
    features: HashMap<Vec<u8>, Feature>,
    /// By path: digest and code in one.
    scripts: HashMap<Vec<u8>, Vec<u8>>,
    /// By kind and name.
    documents: HashMap<(u32, Vec<u8>), (Stamp, Vec<u8>)>,
    bytes: usize,
    has_been_written: bool,
}

#[derive(Debug)]
struct Feature {
    stamp: Stamp,
    flags: CodeFlags,
    real_path: Option<Vec<u8>>,
    code: Vec<u8>,
    digest: Option<[u8; 16]>,
}

/// A feature that was compiled from the file with that stamp.
#[derive(Debug)]
pub struct Compiled {
    /// The path by which it was loaded.
    pub path: Vec<u8>,
    /// The stamp before and after Ruby read it.
    pub stamp: Stamp,
    /// When Ruby began to read it, in nanoseconds since 1970.
    pub read_ns: i64,
    /// Under which warnings it compiled in silence.
    pub flags: CodeFlags,
    /// The real path, if it is another one.
    pub real_path: Option<Vec<u8>>,
    /// The compiled code.
    pub code: Vec<u8>,
    /// The digest of the source, if it was taken.
    pub digest: Option<[u8; 16]>,
}

impl Learned {
    /// Keeps the feature for the next pack, unless its file may have changed within its stamp, or too
    /// much has been learned already.
    pub fn add(&mut self, compiled: Compiled) {
        let Compiled { path, stamp, read_ns, flags, real_path, code, digest } = compiled;
        if !stamp.is_racy(read_ns) && self.has_room(code.len()) {
            self.features.insert(path, Feature { stamp, flags, real_path, code, digest });
        }
    }

    /// Keeps a script's digest and code.
    pub fn add_script(&mut self, path: &[u8], digest: [u8; 16], code: &[u8]) {
        if self.has_room(code.len()) {
            self.scripts.insert(path.to_vec(), [&digest[..], code].concat());
        }
    }

    /// Keeps what a file says.
    pub fn add_document(&mut self, kind: u32, name: Vec<u8>, stamp: Stamp, data: Vec<u8>) {
        if self.has_room(data.len()) {
            self.documents.insert((kind, name), (stamp, data));
        }
    }

    /// Whether nothing was learned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.features.is_empty() && self.scripts.is_empty() && self.documents.is_empty()
    }

    /// It is in a pack now, and needs no memory.
    pub fn forget(&mut self) {
        *self = Self { has_been_written: true, ..Self::default() };
    }

    /// Whether a part of what this boot learned is in a pack already.
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

    /// Puts everything into a pack.
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
        for ((kind, name), (stamp, data)) in &self.documents {
            builder.insert(*kind, &name[..], Item::new(*stamp, &data[..]));
        }
    }
}

/// Whether a folder is known that the pack does not hold, or not as it is now.
pub fn has_news(folders: &Folders) -> bool {
    folders.known().any(|known| known.is_news)
}

/// Puts all folders that are known into a pack.
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

/// Whether the folder or one above it has an access list, which may deny what its mode grants.
fn listed_above<'a>(known: &mut HashMap<&'a [u8], bool>, path: &'a [u8]) -> bool {
    if let Some(is_listed) = known.get(path) {
        return *is_listed;
    }
    let above = path::split(path).is_some_and(|(folder, _)| listed_above(known, folder));
    let is_listed = above || rights::has_access_list(path);
    known.insert(path, is_listed);
    is_listed
}

/// Takes over what an older pack holds and is still right.
pub fn keep<'a>(pack: &Pack<'a>, builder: &mut Builder<'a>) {
    for entry in pack.entries().filter(is_current) {
        builder.keep(&entry);
    }
}

/// Whether an entry's file is still the one it was made from, as far as that can be seen.
#[must_use]
pub fn is_current(entry: &Entry<'_>) -> bool {
    let stat = |path, flags| fs::statat(CWD, path, flags).ok();
    let is_stamped =
        |path, flags| stat(path, flags).is_some_and(|stat| Stamp::of(&stat) == entry.stamp());
    match entry.kind() {
        // That it is a folder is all that is known of it.
        kind::FOLDER if entry.flags() & kind::LISTED == 0 => is_folder(entry.name()),
        kind::FEATURE | kind::FOLDER => is_stamped(entry.name(), AtFlags::SYMLINK_NOFOLLOW),
        kind::YAML => is_stamped(path_of_document(entry.name()), AtFlags::empty()),
        // A text without a file.
        kind::JSON => true,
        // Checked where it is used; it goes with its path.
        _ => stat(entry.name(), AtFlags::empty()).is_some(),
    }
}

fn is_folder(path: &[u8]) -> bool {
    let stat = fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// What follows the NUL in a document's name.
pub(crate) fn path_of_document(name: &[u8]) -> &[u8] {
    name.splitn(2, |byte| *byte == 0).nth(1).unwrap_or_default()
}
