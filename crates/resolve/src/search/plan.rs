//! The candidates of a name, before any query.

use std::borrow::Cow;

use super::{Bases, Rules};
use crate::expand::Flavour;
use crate::expand::windows::Form;
use crate::fold::fold;
use crate::name::is_short_name;
use crate::{Error, Refusal};

/// The folders in which a search may look, passed by the caller.
#[derive(Debug, Clone, Copy, Default)]
pub struct Places<'a> {
    /// The `PATH`.
    pub path: &'a [u8],
    /// Folders before the `PATH`: for [`Rules::rust`], those of the application and of the system.
    pub before: &'a [&'a [u8]],
}

/// The names wanted in each base: a stem with one of several suffixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    stem: Vec<u8>,
    folded: Vec<u8>,
    /// The suffixes; empty for the bare stem.
    suffixes: Vec<Vec<u8>>,
    accepts_directories: bool,
}

/// The candidates of a name: every base × every suffix, ordered by base.
#[derive(Debug, Clone)]
pub struct Plan {
    rules: Rules,
    bases: Bases,
    query: Query,
}

impl Plan {
    /// Creates the candidates of `name`. A name that contains a folder has that folder as its only base.
    ///
    /// Repeated entries of the `PATH` are left out, since they cannot change the result.
    ///
    /// # Errors
    /// The name or the `PATH` contains a NUL byte.
    pub fn new(rules: &Rules, name: &[u8], places: &Places<'_>) -> Result<Self, Error> {
        if name.contains(&0) || places.path.contains(&0) {
            return Err(Error::refused(name, Refusal::Nul));
        }
        let flavour = rules.flavour();
        let (folder, stem) = split_name(rules, name);
        let bases = match folder {
            _ if !can_be_a_file(flavour, stem) => Bases::default(),
            Some(folder) => Bases::new([Cow::Borrowed(folder)]),
            None => bases(rules, places),
        };
        let query = Query {
            stem: stem.to_vec(),
            folded: fold(stem).into_owned(),
            suffixes: rules.suffixes_of(stem, folder.is_some_and(|folder| !is_drive(folder))),
            accepts_directories: rules.accepts_directories(),
        };
        Ok(Self { rules: rules.clone(), bases, query })
    }

    /// The rules by which the plan was made.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The distinct folders, in order.
    #[must_use]
    pub fn bases(&self) -> &Bases {
        &self.bases
    }

    /// The names wanted in each base.
    #[must_use]
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Returns the path of a candidate.
    #[must_use]
    pub fn path(&self, base: usize, suffix: usize) -> Vec<u8> {
        self.parts(self.bases.get(base).unwrap_or_default(), suffix).concat()
    }

    /// Returns the number of candidates.
    #[must_use]
    pub fn count(&self) -> usize {
        self.bases.len() * self.query.suffixes.len()
    }

    /// Returns an upper bound of the length of a candidate's path, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        let suffix = self.query.suffixes.iter().map(Vec::len).max();
        let base = self.bases.iter().map(<[u8]>::len).max();
        base.unwrap_or(0) + 1 + self.query.stem.len() + suffix.unwrap_or(0)
    }

    /// Returns the path of every candidate in order, as parts to be concatenated. No query is sent.
    pub fn candidates(&self) -> impl Iterator<Item = [&[u8]; 4]> {
        let suffixes = 0..self.query.suffixes.len();
        let each = move |base| suffixes.clone().map(move |suffix| self.parts(base, suffix));
        self.bases.iter().flat_map(each)
    }

    /// Returns the base, a separator if necessary, the stem, and the suffix.
    fn parts<'a>(&'a self, base: &'a [u8], suffix: usize) -> [&'a [u8]; 4] {
        let flavour = self.rules.flavour();
        let is_windows = flavour == Flavour::Windows;
        let separator: &[u8] = match base.last() {
            None => b"",
            Some(last) if flavour.separates(*last) || (is_windows && *last == b':') => b"",
            Some(_) if is_windows => b"\\",
            Some(_) => b"/",
        };
        [base, separator, &self.query.stem, &self.query.suffixes[suffix]]
    }
}

impl Query {
    /// The stem, as given.
    #[must_use]
    pub fn stem(&self) -> &[u8] {
        &self.stem
    }

    /// The folded stem ([`fold`]).
    #[must_use]
    pub fn folded(&self) -> &[u8] {
        &self.folded
    }

    /// The suffixes in order; empty for the bare stem.
    #[must_use]
    pub fn suffixes(&self) -> &[Vec<u8>] {
        &self.suffixes
    }

    /// Whether a folder counts as a match.
    #[must_use]
    pub fn accepts_directories(&self) -> bool {
        self.accepts_directories
    }

    /// Returns the index of the suffix by which an entry of a listing matches. The whole rest is compared,
    /// because an entry may be shorter than the stem or listed because of its short name (8.3).
    #[must_use]
    pub fn suffix_of_entry(&self, name: &[u8]) -> Option<usize> {
        let name = fold(name);
        let rest = name.strip_prefix(self.folded.as_slice())?;
        self.suffixes.iter().position(|suffix| suffix == rest)
    }

    /// Whether the stem has the form of a short name (`PROGRA~1`), which does not appear in listings.
    #[must_use]
    pub fn may_be_short_name(&self) -> bool {
        is_short_name(&self.stem)
    }
}

/// Splits a name into its folder, with the separator, and the rest.
fn split_name<'a>(rules: &Rules, name: &'a [u8]) -> (Option<&'a [u8]>, &'a [u8]) {
    let flavour = rules.flavour();
    let end = name.iter().rposition(|byte| flavour.separates(*byte)).map(|at| at + 1);
    let drive = || match Form::of(name) {
        Form::DriveRelative { letter } if flavour == Flavour::Windows => Some(letter + 1),
        _ => None,
    };
    let (folder, stem) = name.split_at(end.or_else(drive).unwrap_or(0));
    let is_searched_for = folder.is_empty() || (rules.drops_drive() && is_drive(folder));
    ((!is_searched_for).then_some(folder), stem)
}

/// Whether the folder of a name is the working directory of a drive (`c:`).
fn is_drive(folder: &[u8]) -> bool {
    folder.ends_with(b":")
}

/// Whether a file can have that name. On Windows some characters are not allowed and would have another
/// meaning: a wildcard, a stream. A trailing dot or space would be stripped, and then a different file would
/// be started than was examined.
fn can_be_a_file(flavour: Flavour, stem: &[u8]) -> bool {
    match flavour {
        Flavour::Windows => {
            let is_forbidden = |byte: &u8| *byte < b' ' || br#"<>:"|?*"#.contains(byte);
            !matches!(stem.last(), None | Some(b'.' | b' ')) && !stem.iter().any(is_forbidden)
        }
        _ => !stem.is_empty(),
    }
}

fn bases(rules: &Rules, places: &Places<'_>) -> Bases {
    let current = rules.starts_in_current(places.path).then_some(b".".as_slice());
    let before = current.into_iter().chain(places.before.iter().copied()).map(Cow::Borrowed);
    Bases::new(before.chain(rules.split_path(places.path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(rules: &Rules, name: &str, path: &str) -> Vec<String> {
        let places = Places { path: path.as_bytes(), before: &[] };
        let plan = Plan::new(rules, name.as_bytes(), &places).unwrap();
        plan.candidates().map(|parts| String::from_utf8(parts.concat()).unwrap()).collect()
    }

    #[test]
    fn the_path_is_taken_in_order_and_each_entry_once() {
        assert_eq!(candidates(&Rules::exec(), "a", "/x:/y:/x:"), ["/x/a", "/y/a", "./a"]);
        assert_eq!(candidates(&Rules::exec(), "a", ""), ["./a"]);
    }

    #[test]
    fn a_name_with_a_folder_is_its_own_candidate() {
        assert_eq!(candidates(&Rules::exec(), "b/a", "/x"), ["b/a"]);
        assert_eq!(candidates(&Rules::exec(), "/a", "/x"), ["/a"]);
        let cmd = Rules::cmd(b".EXE").current_first(true);
        assert_eq!(candidates(&cmd, r"b\a", r"C:\x"), [r"b\a.EXE"]);
        assert_eq!(candidates(&cmd, "b/a.exe", r"C:\x"), ["b/a.exe", "b/a.exe.EXE"]);
        assert_eq!(candidates(&cmd, "c:a", r"C:\x"), ["c:a.EXE"]);
        assert_eq!(candidates(&Rules::rust(), "c:a", r"C:\x"), ["c:a.EXE"]);
        assert_eq!(candidates(&Rules::rust(), "c:a.bat", r"C:\x"), ["c:a.bat"]);
        assert_eq!(candidates(&Rules::zig(b""), "c:a", r"D:\x"), [r".\a", r"D:\x\a"]);
        assert_eq!(candidates(&Rules::zig(b""), r"c:b\a", r"D:\x"), [r"c:b\a"]);
        assert_eq!(candidates(&cmd, "a", r"C:;D:\"), [r".\a.EXE", "C:a.EXE", r"D:\a.EXE"]);
        assert_eq!(candidates(&Rules::exec(), r"b\a", "/x"), [r"/x/b\a"]);
    }

    #[test]
    fn a_name_that_no_file_can_have_has_no_candidates() {
        assert!(candidates(&Rules::exec(), "", "/x").is_empty());
        for name in
            ["", "a*", "a?", "a<b", "a|b", "ab:c", "a\"", "..", r"b\", "a\u{1}", "a.", "a.bat "]
        {
            assert!(candidates(&Rules::zig(b".EXE"), name, r"C:\x").is_empty(), "{name}");
        }
    }

    #[test]
    fn a_nul_is_an_error() {
        let places = Places::default();
        let error = Plan::new(&Rules::exec(), b"a\0b", &places).unwrap_err();
        assert_eq!(error.refusal(), Some(Refusal::Nul));
        let places = Places { path: b"/x\0y", before: &[] };
        assert!(Plan::new(&Rules::exec(), b"a", &places).is_err());
    }

    #[test]
    fn an_entry_is_compared_to_its_end_and_without_its_case() {
        let places = Places::default();
        let plan = Plan::new(&Rules::zig(b".EXE;.BAT"), b"Caf\xC3\xA9", &places).unwrap();
        let suffix = |name: &str| plan.query().suffix_of_entry(name.as_bytes());
        assert_eq!(suffix("CAFÉ.exe"), Some(1));
        assert_eq!(suffix("café"), Some(0));
        assert_eq!(suffix("café.bAt"), Some(2));
        assert_eq!(suffix("café.exec"), None);
        assert_eq!(suffix("caf"), None);
        assert_eq!(suffix("CA~1.EXE"), None);
    }

    #[test]
    fn short_names_are_recognized_by_their_form() {
        let may_be = |name: &str| {
            let plan = Plan::new(&Rules::rust(), name.as_bytes(), &Places::default()).unwrap();
            plan.query().may_be_short_name()
        };
        assert!(may_be("progra~1"));
        assert!(may_be("a~12.exe"));
        assert!(!may_be("a~"));
        assert!(!may_be("~1x"));
        assert!(!may_be("longname~1"));
    }

    #[test]
    fn a_path_of_a_hundred_thousand_entries_is_read() {
        let path: String = (0..100_000).map(|n| format!("/d{n}:")).collect();
        assert_eq!(candidates(&Rules::exec(), "a", &path).len(), 100_001);
    }
}
