//! Finds out which folders are searched: one name is asked for in folder after folder, until it is
//! there or there are no more.
//!
//! A folder is known by what its candidates have in common. Of `/a/lib/x/y.rb` and `/b/x/y.rb` the
//! longest common end is `x/y`, so the bases are `/a/lib` and `/b`. Two candidates alone may have
//! more in common than the name, so their bases count only where longer searches say nothing.

use super::kind::SearchKind;
use super::maps::{HashMap, HashSet};
use super::names::{Name, Names};

/// A search of a thread's that is under way.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The name's last component without suffix.
    stem: Vec<u8>,
    /// The folders of its candidates so far, each once.
    folders: Vec<Name>,
    kind: Option<SearchKind>,
    /// Other names that were asked for meanwhile.
    gap: u8,
}

/// The folders that were searched.
#[derive(Debug, Default)]
pub(super) struct Bases(HashMap<Name, Base>);

#[derive(Debug, Default)]
struct Base {
    /// How often it was part of a search of each kind, in the order of the kinds.
    kinds: [u32; SearchKind::ALL.len()],
    /// The most folders of a search that it was part of.
    breadth: usize,
}

/// A search goes on after this many questions about other names; RubyGems asks some.
const GAP_MAX: u8 = 3;
/// A search is looked at as a whole, up to this many folders.
const FOLDERS_MAX: usize = 1024;
/// Bases of searches with fewer folders count only where others say nothing.
const BREADTH_SURE: usize = 3;

impl Search {
    /// A candidate that is not there. Answers with the search that has ended, if one has.
    pub(super) fn missed(
        &mut self,
        names: &Names,
        folder: Name,
        component: &[u8],
        kind: SearchKind,
    ) -> Option<Self> {
        let before = self.begin(names, folder, component);
        self.kind = Some(kind);
        self.extend(folder);
        before
    }

    /// A candidate that is there ends the search. Answers with the search that has ended, if one has.
    pub(super) fn found(&mut self, folder: Name, component: &[u8]) -> Option<Self> {
        if self.is_about(component) {
            self.extend(folder);
            return Some(std::mem::take(self));
        }
        self.gap = self.gap.saturating_add(1);
        (self.gap > GAP_MAX && !self.folders.is_empty()).then(|| std::mem::take(self))
    }

    /// Begins another search, unless this is the one under way; answers with what has ended.
    fn begin(&mut self, names: &Names, folder: Name, component: &[u8]) -> Option<Self> {
        self.gap = 0;
        if self.is_about(component) && !self.is_next(names, folder) {
            return None;
        }
        let next = Self { stem: stem(component).to_vec(), ..Self::default() };
        let before = std::mem::replace(self, next);
        (!before.folders.is_empty()).then_some(before)
    }

    /// Where `a` was searched, `sub/a` may be next: a folder below the first one, or above it.
    fn is_next(&self, names: &Names, folder: Name) -> bool {
        // The last one is part of this search.
        let first = self.folders.first().filter(|_| self.folders.last() != Some(&folder));
        first.is_some_and(|first| names.is_below(folder, *first) || names.is_below(*first, folder))
    }

    fn is_about(&self, component: &[u8]) -> bool {
        !self.folders.is_empty() && self.stem == stem(component)
    }

    fn extend(&mut self, folder: Name) {
        // With suffixes in the inner loop the same folder comes again at once; in the outer loop,
        // after all others.
        let is_new = self.folders.last() != Some(&folder) && !self.folders.contains(&folder);
        if is_new && self.folders.len() < FOLDERS_MAX {
            self.folders.push(folder);
        }
    }
}

/// A component without its suffix; a dot at the start begins none.
fn stem(component: &[u8]) -> &[u8] {
    let dot = component.iter().skip(1).position(|byte| *byte == b'.');
    dot.map_or(component, |dot| &component[..=dot])
}

impl Bases {
    /// Takes a search that has ended.
    pub(super) fn push(&mut self, search: &Search, names: &Names) {
        let (Some(kind), [first, others @ ..]) = (search.kind, search.folders.as_slice()) else {
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
        for folder in &search.folders {
            let base = std::iter::once(*folder).chain(names.folders(*folder)).nth(common);
            // Everything is below the root, so it says nothing.
            let Some(base) = base.filter(|base| *base != Name::ROOT) else { continue };
            let base = self.0.entry(base).or_default();
            base.kinds[kind as usize] += 1;
            base.breadth = base.breadth.max(search.folders.len());
        }
    }

    /// The bases that count, with the kind of most of their searches.
    pub(super) fn all(&self, names: &Names) -> HashMap<Name, SearchKind> {
        let is_sure =
            |name: &Name| self.0.get(name).is_some_and(|base| base.breadth >= BREADTH_SURE);
        // An unsure base next to a sure one is most likely a part of it, or contains it.
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

/// How many components two folders have in common at their ends.
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

    /// Asks for candidates in order, the last of which is there if `ends_well`.
    fn bases(kind: SearchKind, searches: &[(&[&str], bool)]) -> Vec<(String, SearchKind)> {
        let (mut names, mut bases, mut search) =
            (Names::default(), Bases::default(), Search::default());
        for (candidates, ends_well) in searches {
            for (index, candidate) in candidates.iter().enumerate() {
                let (name, _) = names.enter(candidate.as_bytes());
                let (folder, component) = (names.parent(name), names.component(name).to_vec());
                let ended = if *ends_well && index + 1 == candidates.len() {
                    search.found(folder, &component)
                } else {
                    search.missed(&names, folder, &component, kind)
                };
                if let Some(ended) = ended {
                    bases.push(&ended, &names);
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
        let folders = ["/a", "/b", "/c"].map(|path| names.enter(path.as_bytes()).0);
        assert!(search.missed(&names, folders[0], b"a.rb", SearchKind::Ruby).is_none());
        for _ in 0..GAP_MAX {
            assert!(search.found(folders[1], b"other").is_none());
        }
        assert!(search.missed(&names, folders[1], b"a.so", SearchKind::Ruby).is_none());
        for _ in 0..GAP_MAX {
            assert!(search.found(folders[1], b"other").is_none());
        }
        assert!(search.found(folders[2], b"other").is_some());
    }

    #[test]
    fn the_suffix_begins_at_the_first_dot() {
        assert_eq!(stem(b"a.cpython-311.so"), b"a");
        assert_eq!(stem(b".bashrc"), b".bashrc");
        assert_eq!(stem(b"make"), b"make");
    }
}
