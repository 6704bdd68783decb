//! Detects which folders are searched. In a search, one name is looked up in folder after folder, until it is
//! found or the folders are exhausted.
//!
//! To find the bases of a search, the common end of its candidates is removed. The longest common end of
//! `/a/lib/x/y.rb` and `/b/x/y.rb` is `x/y`, so the bases are `/a/lib` and `/b`. Two candidates alone may share more
//! than the name, so their bases count only where longer searches give no evidence.

use super::kind::SearchKind;
use super::maps::{HashMap, HashSet};
use super::names::{Name, Names};

/// The current search of a thread.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The last component of the name, without suffix.
    stem: Vec<u8>,
    /// The different folders of the candidates so far.
    folders: Folders,
    kind: Option<SearchKind>,
    /// The number of other names looked up in between.
    gap: u8,
}

/// Different folders in their order.
#[derive(Debug, Default)]
struct Folders {
    list: Vec<Name>,
    /// The same folders, once there are many. A program may look for one name in each folder of a tree, as Go does
    /// for `go.mod`.
    set: HashSet<Name>,
}

/// The folders that were searched.
#[derive(Debug, Default)]
pub(super) struct Bases(HashMap<Name, Base>);

#[derive(Debug, Default)]
struct Base {
    /// The number of searches of each kind that included the folder, in the order of the kinds.
    kinds: [u32; SearchKind::ALL.len()],
    /// The number of folders in the longest search that included this one.
    breadth: usize,
}

/// The most other names in between before a search is considered over. RubyGems looks up a few.
const GAP_MAX: u8 = 3;
/// The most folders of a search that are recorded.
const FOLDERS_MAX: usize = 1024;
/// A list of more folders is not scanned to find one.
const SCANNED_MAX: usize = 16;
/// Searches with fewer folders count only where others give no evidence.
const BREADTH_SURE: usize = 3;

impl Search {
    /// Adds a candidate that does not exist. The previous search is added to `bases` if it has ended.
    pub(super) fn missed(
        &mut self,
        bases: &mut Bases,
        names: &Names,
        (folder, component): (Name, &[u8]),
        kind: SearchKind,
    ) {
        self.gap = 0;
        if !self.is_about(component) || self.is_next(names, folder) {
            self.end(bases, names);
            self.stem.extend_from_slice(stem(component));
        }
        self.kind = Some(kind);
        self.folders.add(folder);
    }

    /// Records a lookup that found something. That ends the search if the name was its own, or if too many others came
    /// in between.
    pub(super) fn found(
        &mut self,
        bases: &mut Bases,
        names: &Names,
        (folder, component): (Name, &[u8]),
    ) {
        if self.is_about(component) {
            self.folders.add(folder);
            self.end(bases, names);
            return;
        }
        self.gap = self.gap.saturating_add(1);
        if self.gap > GAP_MAX && !self.folders.list.is_empty() {
            self.end(bases, names);
        }
    }

    /// Adds the search to `bases`, and keeps its memory for the next one: most programs begin a search with each name
    /// that does not exist.
    fn end(&mut self, bases: &mut Bases, names: &Names) {
        bases.push(self, names);
        self.stem.clear();
        self.folders.clear();
        (self.kind, self.gap) = (None, 0);
    }

    /// Whether a candidate starts a new search for another name: after `a`, a search for `sub/a` starts in a
    /// folder below or above the first one.
    fn is_next(&self, names: &Names, folder: Name) -> bool {
        // The last folder is part of the current search.
        let first = self.folders.list.first().filter(|_| self.folders.list.last() != Some(&folder));
        first.is_some_and(|first| names.is_below(folder, *first) || names.is_below(*first, folder))
    }

    fn is_about(&self, component: &[u8]) -> bool {
        !self.folders.list.is_empty() && self.stem == stem(component)
    }
}

impl Folders {
    /// Adds a folder, unless it is known or there are too many.
    fn add(&mut self, folder: Name) {
        // If suffixes vary in the inner loop, the same folder repeats at once; in the outer loop, after all
        // others.
        let is_last = self.list.last() == Some(&folder);
        if is_last || self.list.len() >= FOLDERS_MAX || self.contains(folder) {
            return;
        }
        self.list.push(folder);
        match self.list.len() {
            0..=SCANNED_MAX => {}
            length if length == SCANNED_MAX + 1 => self.set.extend(&self.list),
            _ => _ = self.set.insert(folder),
        }
    }

    fn clear(&mut self) {
        self.list.clear();
        self.set.clear();
    }

    fn contains(&self, folder: Name) -> bool {
        if self.list.len() <= SCANNED_MAX {
            self.list.contains(&folder)
        } else {
            self.set.contains(&folder)
        }
    }
}

/// Returns a component without its suffix. A leading dot does not start a suffix.
fn stem(component: &[u8]) -> &[u8] {
    let dot = component.iter().skip(1).position(|byte| *byte == b'.');
    dot.map_or(component, |dot| &component[..=dot])
}

impl Bases {
    /// Adds a search that has ended.
    pub(super) fn push(&mut self, search: &Search, names: &Names) {
        let (Some(kind), [first, others @ ..]) = (search.kind, search.folders.list.as_slice())
        else {
            return;
        };
        if others.is_empty() {
            return;
        }
        let common = if kind.is_flat() {
            0
        } else {
            others.iter().map(|other| common_end(names, *first, *other)).min().unwrap_or(0)
        };
        for folder in &search.folders.list {
            let base = std::iter::once(*folder).chain(names.folders(*folder)).nth(common);
            // Every folder is below the root, so the root is no evidence.
            let Some(base) = base.filter(|base| *base != Name::ROOT) else { continue };
            let base = self.0.entry(base).or_default();
            base.kinds[kind as usize] += 1;
            base.breadth = base.breadth.max(search.folders.list.len());
        }
    }

    /// Returns the bases with sufficient evidence, with the most frequent kind of each.
    pub(super) fn all(&self, names: &Names) -> HashMap<Name, SearchKind> {
        let is_sure =
            |name: &Name| self.0.get(name).is_some_and(|base| base.breadth >= BREADTH_SURE);
        // A base without sufficient evidence that is above or below one with it is most likely an artefact.
        let sure = self.0.keys().filter(|name| is_sure(name));
        let above_sure: HashSet<_> = sure.flat_map(|name| names.folders(*name)).collect();
        let is_alone = |name: &Name| {
            !above_sure.contains(name) && !names.folders(*name).any(|above| is_sure(&above))
        };
        let counts = |(name, _): &(&Name, &Base)| is_sure(name) || is_alone(name);
        let kind = |base: &Base| {
            let counts = base.kinds.iter().zip(SearchKind::ALL);
            counts.max().map_or(SearchKind::Other, |(_, kind)| kind)
        };
        self.0.iter().filter(counts).map(|(name, base)| (*name, kind(base))).collect()
    }
}

/// Returns the number of components that two folders share at their ends.
fn common_end(names: &Names, one: Name, other: Name) -> usize {
    let (mut one, mut other, mut count) = (one, other, 0);
    while one != Name::ROOT && other != Name::ROOT && names.component(one) == names.component(other)
    {
        (one, other, count) = (names.parent(one), names.parent(other), count + 1);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks up candidates in order. The last one exists if `ends_well`.
    fn bases(kind: SearchKind, searches: &[(&[&str], bool)]) -> Vec<(String, SearchKind)> {
        let (mut names, mut bases, mut search) =
            (Names::default(), Bases::default(), Search::default());
        for (candidates, ends_well) in searches {
            for (index, candidate) in candidates.iter().enumerate() {
                let (name, _) = names.intern(candidate.as_bytes());
                let (folder, component) = (names.parent(name), names.component(name).to_vec());
                let candidate = (folder, component.as_slice());
                if *ends_well && index + 1 == candidates.len() {
                    search.found(&mut bases, &names, candidate);
                } else {
                    search.missed(&mut bases, &names, candidate, kind);
                }
            }
        }
        bases.push(&search, &names);
        let path = |name| String::from_utf8(names.path(name)).unwrap();
        let mut all: Vec<_> =
            bases.all(&names).into_iter().map(|(name, kind)| (path(name), kind)).collect();
        all.sort();
        all
    }

    fn paths(kind: SearchKind, searches: &[(&[&str], bool)]) -> Vec<String> {
        bases(kind, searches).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn bases_are_what_candidates_do_not_share() {
        let candidates: [&str; 4] =
            ["/g/one/lib/a/b.rb", "/g/two/lib/a/b.rb", "/g/two/lib/a/b.so", "/site/a/b.rb"];
        let found = paths(SearchKind::Ruby, &[(&candidates, true)]);
        assert_eq!(found, ["/g/one/lib", "/g/two/lib", "/site"]);
    }

    #[test]
    fn a_short_search_does_not_overrule_a_long_one() {
        let long: [&str; 3] = ["/g/one/lib/a.rb", "/g/two/lib/a.rb", "/site/a.rb"];
        let short: [&str; 2] = ["/g/one/lib/b.rb", "/g/two/lib/b.rb"];
        let found = paths(SearchKind::Ruby, &[(&long, true), (&short, true)]);
        assert_eq!(found, ["/g/one/lib", "/g/two/lib", "/site"]);
    }

    #[test]
    fn a_short_search_counts_where_there_is_no_other() {
        let found = paths(SearchKind::Includes, &[(&["/a/x.h", "/b/x.h"], true)]);
        assert_eq!(found, ["/a", "/b"]);
    }

    #[test]
    fn a_name_in_a_subfolder_is_another_search() {
        let plain: [&str; 3] = ["/g/one/lib/a.so", "/g/two/lib/a.so", "/site/a.so"];
        let below: [&str; 3] = ["/g/one/lib/sub/a.so", "/g/two/lib/sub/a.so", "/site/sub/a.so"];
        let found = paths(SearchKind::Ruby, &[(&plain, false), (&below, false)]);
        assert_eq!(found, ["/g/one/lib", "/g/two/lib", "/site"]);
    }

    #[test]
    fn commands_are_one_component() {
        let found = bases(SearchKind::Commands, &[(&["/usr/bin/x", "/bin/x"], true)]);
        let expected = ["/bin", "/usr/bin"].map(|path| (path.to_owned(), SearchKind::Commands));
        assert_eq!(found, expected);
    }

    #[test]
    fn other_names_between_end_no_search_and_many_do() {
        let (mut search, mut names) = (Search::default(), Names::default());
        let mut bases = Bases::default();
        let folders = ["/a", "/b", "/c"].map(|path| names.intern(path.as_bytes()).0);
        search.missed(&mut bases, &names, (folders[0], b"a.rb"), SearchKind::Ruby);
        for _ in 0..GAP_MAX {
            search.found(&mut bases, &names, (folders[1], b"other"));
        }
        search.missed(&mut bases, &names, (folders[1], b"a.so"), SearchKind::Ruby);
        for _ in 0..GAP_MAX {
            search.found(&mut bases, &names, (folders[1], b"other"));
            assert_eq!(bases.0.len(), 0);
        }
        search.found(&mut bases, &names, (folders[2], b"other"));
        assert_eq!(bases.0.len(), 2);
    }

    /// Allocations for each name that does not exist were a quarter of the analysis of a program that asks for many.
    #[test]
    fn a_search_uses_the_memory_of_the_one_before() {
        let (mut search, mut names) = (Search::default(), Names::default());
        let mut bases = Bases::default();
        let folders = ["/a", "/b"].map(|path| names.intern(path.as_bytes()).0);
        let memory = |search: &Search| (search.stem.as_ptr(), search.folders.list.as_ptr());
        search.missed(&mut bases, &names, (folders[0], b"longest"), SearchKind::Other);
        let before = memory(&search);
        for name in [&b"one"[..], b"two", b"three"] {
            for folder in folders {
                search.missed(&mut bases, &names, (folder, name), SearchKind::Other);
            }
            search.found(&mut bases, &names, (folders[1], name));
        }
        assert_eq!(memory(&search), before);
    }

    #[test]
    fn each_folder_of_a_long_search_counts_once() {
        let mut names = Names::default();
        let all: Vec<_> = (0..2 * SCANNED_MAX)
            .map(|number| names.intern(format!("/{number}").as_bytes()).0)
            .collect();
        let mut folders = Folders::default();
        for folder in all.iter().chain(all.iter().rev()) {
            folders.add(*folder);
        }
        assert_eq!(folders.list, all);
    }

    #[test]
    fn the_suffix_begins_at_the_first_dot() {
        assert_eq!(stem(b"a.cpython-311.so"), b"a");
        assert_eq!(stem(b".bashrc"), b".bashrc");
        assert_eq!(stem(b"make"), b"make");
    }
}
