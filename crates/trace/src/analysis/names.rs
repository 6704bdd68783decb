//! A tree of all names that were looked up, by component, with counts for each.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// The most names in the tree. A name takes 80 bytes with its text, so at most 80 MiB. Look-ups of further
/// names count for their folder.
const NAMES_MAX: usize = 1 << 20;

/// A name in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(u32);

/// Look-ups of a name, by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All look-ups.
    pub asked: u32,
    /// Look-ups that failed because the file does not exist.
    pub missed: u32,
    /// Readings of a link that failed because the file is not a link.
    pub unlinked: u32,
    /// Successful queries of attributes, permissions or links.
    pub checked: u32,
    /// Opens of the file.
    pub opened: u32,
    /// Look-ups that failed for any other reason, such as missing permission.
    pub refused: u32,
}

#[derive(Debug)]
struct Node {
    parent: Name,
    /// The position and length of the component's text.
    text: (u32, u16),
    /// The hash of folder and component, kept for when the table grows.
    hash: u64,
    counts: Counts,
}

/// A tree of names.
#[derive(Debug)]
pub struct Names {
    nodes: Vec<Node>,
    text: Vec<u8>,
    table: HashTable<Name>,
    /// Recently used folders by path, because most names are in one of them.
    recent: Vec<(Vec<u8>, Name)>,
    hasher: DefaultHashBuilder,
    is_full: bool,
}

/// The number of recently used folders. A load path has some hundred.
const RECENT_FOLDERS: usize = 1 << 9;

impl Name {
    /// The root, `/`.
    pub const ROOT: Self = Self(0);

    /// The index of the name among all names.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Counts {
    /// Returns the number of wasted look-ups: the file does not exist, is not a link, or had been queried
    /// before.
    #[must_use]
    pub fn wasted(&self) -> u32 {
        self.missed + self.unlinked + self.checked.saturating_sub(1)
    }

    /// Returns the number of successful look-ups.
    #[must_use]
    pub fn found(&self) -> u32 {
        self.asked - self.missed - self.unlinked - self.refused
    }

    /// Returns the number of look-ups after the first.
    #[must_use]
    pub fn again(&self) -> u32 {
        self.asked.saturating_sub(1)
    }

    /// Adds the counts of another name.
    pub fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.missed += other.missed;
        self.unlinked += other.unlinked;
        self.checked += other.checked;
        self.opened += other.opened;
        self.refused += other.refused;
    }
}

impl Default for Names {
    fn default() -> Self {
        let root = Node { parent: Name::ROOT, text: (0, 0), hash: 0, counts: Counts::default() };
        Self {
            nodes: vec![root],
            text: Vec::new(),
            table: HashTable::new(),
            recent: vec![(Vec::new(), Name::ROOT); RECENT_FOLDERS],
            hasher: DefaultHashBuilder::default(),
            is_full: false,
        }
    }
}

impl Names {
    /// Interns an absolute path. Returns the name and `true`, or the name of the nearest folder and `false` if
    /// the tree is full.
    pub(super) fn intern(&mut self, path: &[u8]) -> (Name, bool) {
        let Some((folder, component)) = split(path) else { return (Name::ROOT, true) };
        let (folder, is_exact) = self.intern_folder(folder);
        if !is_exact {
            return (folder, false);
        }
        let hash = self.hash(folder, component);
        if let Some(name) = self.child(hash, folder, component) {
            return (name, true);
        }
        if self.nodes.len() == NAMES_MAX {
            self.is_full = true;
            return (folder, false);
        }
        (self.insert(hash, folder, component), true)
    }

    fn intern_folder(&mut self, path: &[u8]) -> (Name, bool) {
        // Any bits of the hash will do.
        let place = self.hasher.hash_one(path) as usize % RECENT_FOLDERS;
        let (text, name) = &self.recent[place];
        if text == path {
            return (*name, true);
        }
        let (name, is_exact) = self.intern(path);
        if is_exact {
            let (text, recent) = &mut self.recent[place];
            text.clear();
            text.extend_from_slice(path);
            *recent = name;
        }
        (name, is_exact)
    }

    fn insert(&mut self, hash: u64, parent: Name, component: &[u8]) -> Name {
        let length = component.len().min(usize::from(u16::MAX));
        let text = (self.text.len() as u32, length as u16);
        self.text.extend_from_slice(&component[..length]);
        let name = Name(self.nodes.len() as u32);
        self.nodes.push(Node { parent, text, hash, counts: Counts::default() });
        self.table.insert_unique(hash, name, |name| self.nodes[name.index()].hash);
        name
    }

    /// Returns the name of a path, if the path was interned.
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<Name> {
        let Some((folder, component)) = split(path) else { return Some(Name::ROOT) };
        self.find_in(self.find(folder)?, component)
    }

    /// Returns the name of a component in a folder, if that path was interned.
    pub(super) fn find_in(&self, folder: Name, component: &[u8]) -> Option<Name> {
        self.child(self.hash(folder, component), folder, component)
    }

    fn hash(&self, folder: Name, component: &[u8]) -> u64 {
        self.hasher.hash_one((folder, component))
    }

    fn child(&self, hash: u64, folder: Name, component: &[u8]) -> Option<Name> {
        let is_it = |name: &Name| {
            self.nodes[name.index()].parent == folder && self.component(*name) == component
        };
        self.table.find(hash, is_it).copied()
    }

    /// Returns the last component of a name.
    #[must_use]
    pub fn component(&self, name: Name) -> &[u8] {
        let (start, length) = self.nodes[name.index()].text;
        &self.text[start as usize..][..usize::from(length)]
    }

    /// Returns the folder of a name. The folder of `/` is `/`.
    #[must_use]
    pub fn parent(&self, name: Name) -> Name {
        self.nodes[name.index()].parent
    }

    /// Returns the folders above a name, from the nearest to `/`.
    pub fn folders(&self, name: Name) -> impl Iterator<Item = Name> {
        let above = move |name: &Name| (*name != Name::ROOT).then(|| self.parent(*name));
        std::iter::successors(above(&name), above)
    }

    /// Whether a name is below a folder, at any depth.
    pub(super) fn is_below(&self, name: Name, folder: Name) -> bool {
        // A folder has a smaller index than its content.
        let mut above = self.folders(name).skip_while(|above| *above > folder);
        above.next() == Some(folder)
    }

    /// Returns the absolute path of a name.
    #[must_use]
    pub fn path(&self, name: Name) -> Vec<u8> {
        let upwards = || std::iter::once(name).chain(self.folders(name));
        let components = || upwards().filter(|name| *name != Name::ROOT);
        let length = components().map(|name| 1 + self.component(name).len()).sum::<usize>();
        let mut path = vec![b'/'; length.max(1)];
        let mut end = length;
        for name in components() {
            let component = self.component(name);
            path[end - component.len()..end].copy_from_slice(component);
            end -= component.len() + 1;
        }
        path
    }

    /// Returns the counts of this name, without those below it.
    #[must_use]
    pub fn counts(&self, name: Name) -> &Counts {
        &self.nodes[name.index()].counts
    }

    pub(super) fn counts_mut(&mut self, name: Name) -> &mut Counts {
        &mut self.nodes[name.index()].counts
    }

    /// Returns the number of names, including folders that were not looked up themselves.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns a vector that is true at the index of each given name.
    pub(super) fn marks(&self, marked: impl IntoIterator<Item = Name>) -> Vec<bool> {
        let mut marks = vec![false; self.count()];
        marked.into_iter().for_each(|name| marks[name.index()] = true);
        marks
    }

    /// Returns all names. A folder precedes its content.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = Name> + use<> {
        (0..self.nodes.len() as u32).map(Name)
    }

    /// Whether there were more than `NAMES_MAX` names.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

/// Splits a path into its folder and its last component; `None` for `/`.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let component = slash.map_or(path, |slash| &path[slash + 1..]);
    (!path.is_empty()).then(|| (&path[..slash.unwrap_or(0)], component))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_interned_once_with_all_its_folders() {
        let mut names = Names::default();
        let (name, is_exact) = names.intern(b"/usr/lib/ruby.rb");
        assert!(is_exact);
        assert_eq!(names.intern(b"/usr/lib/ruby.rb"), (name, true));
        assert_eq!(names.path(name), b"/usr/lib/ruby.rb");
        assert_eq!(names.component(name), b"ruby.rb");
        let folders: Vec<_> = names.folders(name).map(|folder| names.path(folder)).collect();
        assert_eq!(folders, [b"/usr/lib".to_vec(), b"/usr".to_vec(), b"/".to_vec()]);
        assert_eq!(names.all().count(), 4);
    }

    #[test]
    fn similar_paths_are_different_names() {
        let mut names = Names::default();
        let paths: [&[u8]; 6] = [b"/a/b", b"/a", b"/ab", b"/a/bb", b"/b", b"/a/b/c"];
        let entered = paths.map(|path| names.intern(path).0);
        for (path, name) in paths.iter().zip(entered) {
            assert_eq!(names.find(path), Some(name));
            assert_eq!(names.path(name), *path);
        }
        assert_eq!(names.find(b"/c"), None);
        assert_eq!(names.find(b"/"), Some(Name::ROOT));
    }

    #[test]
    fn names_stay_what_they_are_while_the_table_grows() {
        let mut names = Names::default();
        let paths: Vec<_> = (0..5_000).map(|n| format!("/d{}/n{n}", n % 50)).collect();
        for path in &paths {
            names.intern(path.as_bytes());
        }
        for path in &paths {
            let name = names.find(path.as_bytes()).unwrap();
            assert_eq!(names.path(name), path.as_bytes());
        }
    }

    #[test]
    fn beyond_the_limit_the_folder_stands_for_its_names() {
        let mut names = Names::default();
        let (folder, _) = names.intern(b"/f");
        for n in 0..NAMES_MAX {
            names.intern(format!("/f/{n}").as_bytes());
        }
        assert!(names.is_full());
        assert_eq!(names.intern(b"/f/new"), (folder, false));
        assert!(names.intern(b"/f/17").1);
    }

    #[test]
    fn a_repeated_query_is_wasted_and_an_open_is_not() {
        let counts = Counts { asked: 9, missed: 2, unlinked: 1, checked: 3, opened: 3, refused: 0 };
        assert_eq!((counts.wasted(), counts.again()), (5, 8));
    }
}
