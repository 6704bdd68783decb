//! A simulated NT file system with the habits of FAT: entries come in the order of creation, short names
//! match too, a pattern sticks to its handle, and folders have no stamps.

use std::collections::BTreeMap;

use super::Calls;
use super::calls::Attributes;
use crate::fold::fold;
use crate::wtf8;

const NOT_FOUND: i32 = 0xC000_0034_u32.cast_signed();
const DENIED: i32 = 0xC000_0022_u32.cast_signed();

/// A file or folder: its name, its short name, and whether it is a folder.
pub(crate) struct Entry {
    name: &'static str,
    short: &'static str,
    is_directory: bool,
}

/// Folders by NT path in upper case, each with its entries and the time of its last change.
#[derive(Default)]
pub(crate) struct Fake {
    folders: BTreeMap<Vec<u8>, (Vec<Entry>, i64)>,
    pub(crate) file_system: &'static str,
    pub(crate) denied: bool,
    pub(crate) open: usize,
}

/// An open folder: its path, the pattern of its first query, and the number of entries shown.
pub(crate) struct Handle {
    path: Vec<u8>,
    pattern: std::cell::RefCell<Option<Vec<u8>>>,
    shown: std::cell::Cell<usize>,
}

impl Fake {
    /// The number of entries per query.
    const AT_ONCE: usize = 2;

    pub(crate) fn new(file_system: &'static str) -> Self {
        Self { file_system, ..Self::default() }
    }

    pub(crate) fn folder(&mut self, path: &str) -> &mut Self {
        self.folders.insert(fold(path.as_bytes()).into_owned(), (Vec::new(), 1));
        self
    }

    /// Adds a file to the folder at `path`, a tenth of a second later. A name that ends in `\` is a folder.
    pub(crate) fn add(&mut self, path: &str, name: &'static str, short: &'static str) -> &mut Self {
        let (entries, time) = self.folders.get_mut(&*fold(path.as_bytes())).expect("a folder");
        let is_directory = name.ends_with('\\');
        entries.push(Entry { name: name.trim_end_matches('\\'), short, is_directory });
        *time += 1_000_000;
        self
    }

    pub(crate) fn remove(&mut self, path: &str, name: &str) {
        let (entries, time) = self.folders.get_mut(&*fold(path.as_bytes())).expect("a folder");
        entries.retain(|entry| entry.name != name);
        *time += 1_000_000;
    }

    fn matches(entry: &Entry, pattern: &[u8]) -> bool {
        let names = [entry.name, entry.short].map(|name| fold(name.as_bytes()));
        match pattern.strip_suffix(b"*") {
            Some(prefix) => names.iter().any(|name| name.starts_with(prefix)),
            None => names.iter().any(|name| **name == *pattern),
        }
    }
}

impl Calls for Fake {
    type Folder = Handle;

    fn open(&mut self, path: &[u16]) -> Result<Handle, i32> {
        let path = fold(&wtf8::from_wide(path)).into_owned();
        if self.denied {
            return Err(DENIED);
        }
        if !self.folders.contains_key(&path) {
            return Err(NOT_FOUND);
        }
        self.open += 1;
        Ok(Handle { path, pattern: None.into(), shown: 0.into() })
    }

    fn query(
        &mut self,
        folder: &Handle,
        pattern: Option<&[u16]>,
        show: &mut dyn FnMut(&[u16], bool),
    ) -> Result<bool, i32> {
        let mut sticky = folder.pattern.borrow_mut();
        let pattern = sticky.get_or_insert_with(|| {
            pattern.map_or(b"*".to_vec(), |units| fold(&wtf8::from_wide(units)).into_owned())
        });
        let matching = self.folders[&folder.path].0.iter().filter(|e| Self::matches(e, pattern));
        let mut shown = 0;
        for entry in matching.skip(folder.shown.get()).take(Self::AT_ONCE) {
            show(&entry.name.encode_utf16().collect::<Vec<_>>(), entry.is_directory);
            shown += 1;
        }
        folder.shown.set(folder.shown.get() + shown);
        Ok(shown > 0)
    }

    fn keeps_stamps(&mut self, _: &Handle) -> Result<bool, i32> {
        Ok(self.file_system == "NTFS")
    }

    fn close(&mut self, _: Handle) {
        self.open -= 1;
    }

    fn attributes(&mut self, path: &[u16]) -> Result<Attributes, i32> {
        let path = fold(&wtf8::from_wide(path)).into_owned();
        let keeps_stamps = self.file_system == "NTFS";
        if let Some((_, time)) = self.folders.get(&path) {
            // A time after the beginning of 1970.
            let time = if keeps_stamps { 116_444_736_000_000_000 + *time } else { 0 };
            return Ok(Attributes { times: [0, time, time], is_directory: true, is_link: false });
        }
        let separator = path.iter().rposition(|byte| *byte == b'\\').ok_or(NOT_FOUND)?;
        let (folder, name) = (&path[..separator], &path[separator + 1..]);
        let (entries, _) = self.folders.get(folder).ok_or(NOT_FOUND)?;
        let is_it = |entry: &&Entry| {
            [entry.name, entry.short].iter().any(|one| *fold(one.as_bytes()) == *name)
        };
        let entry = entries.iter().find(is_it).ok_or(NOT_FOUND)?;
        Ok(Attributes { times: [0; 3], is_directory: entry.is_directory, is_link: false })
    }
}
