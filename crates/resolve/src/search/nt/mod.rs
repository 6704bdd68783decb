//! The lister of Windows, with one wildcard query per folder for all suffixes.
//!
//! A folder is opened, queried for `name*` until there are no more entries, and closed: three calls for a
//! folder without a match, where a look-up per suffix would cost five or more. The results come in any order
//! (NTFS sorts, FAT does not) and may match by their short name only, so each is compared in full.

mod calls;
#[cfg(windows)]
mod directory_changes;
#[cfg(test)]
mod fake;
mod long_name;

#[cfg(windows)]
pub use calls::System;
pub use calls::{Attributes, Calls};
#[cfg(windows)]
pub use directory_changes::DirectoryChanges;

use super::{FolderStamp, Folders, Hits, Lister, LookupFailure, Query};
use crate::expand::windows::{Form, Place};
#[cfg(windows)]
use crate::native;
use crate::wtf8;

/// Searches folders with NT's own calls, and counts each of them.
#[derive(Debug)]
pub struct Nt<C> {
    calls: C,
    current: Vec<u8>,
    drive_bases: Vec<Vec<u8>>,
    lookups: u64,
}

#[cfg(windows)]
impl Nt<System> {
    /// Creates a lister for this system, with the current working directories of this process.
    ///
    /// # Errors
    /// There is no working directory.
    pub fn of_this_process() -> std::io::Result<Self> {
        let current = native::bytes(std::env::current_dir()?.as_os_str()).into_owned();
        Ok(Self::new(System::default(), current, native::drive_bases()))
    }
}

impl<C: Calls> Nt<C> {
    /// Creates a lister. Relative bases start at `current`, or at their drive's folder in `drive_bases`.
    pub fn new(calls: C, current: Vec<u8>, drive_bases: Vec<Vec<u8>>) -> Self {
        Self { calls, current, drive_bases, lookups: 0 }
    }

    /// Returns the NT path of `name`.
    fn path(&self, name: &[u8]) -> Vec<u16> {
        let drive_bases: Vec<_> = self.drive_bases.iter().map(Vec::as_slice).collect();
        let place = Place { drive_bases: &drive_bases, ..Place::new(&self.current) };
        nt_path(&wtf8::to_wide(&place.expand(name)))
    }

    /// Passes all matching entries to `show`, in any order.
    fn query(
        &mut self,
        base: &[u8],
        pattern: Option<&[u16]>,
        show: &mut dyn FnMut(&[u16], bool),
    ) -> Result<(), LookupFailure> {
        self.lookups += 1;
        let folder = self.calls.open(&self.path(base)).map_err(failure)?;
        let mut more = Ok(true);
        while matches!(more, Ok(true)) {
            self.lookups += 1;
            more = self.calls.query(&folder, pattern, show);
        }
        self.lookups += 1;
        self.calls.close(folder);
        more.map(|_| ()).map_err(failure)
    }

    /// Looks up all suffixes by one wildcard query.
    fn look_by_pattern(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        let mut pattern = wtf8::to_wide(query.stem());
        pattern.push(u16::from(b'*'));
        let mut hits = Hits::default();
        self.query(base, Some(&pattern), &mut |name, is_directory| {
            let place = query.suffix_of_entry(&wtf8::from_wide(name));
            if let Some(place) = place.filter(|_| !is_directory || query.accepts_directories()) {
                hits.add(place);
            }
        })?;
        Ok(hits)
    }

    /// Looks up each suffix by one query.
    fn look_exactly(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        let mut path = self.path(base);
        if path.last() != Some(&SEPARATOR) {
            path.push(SEPARATOR);
        }
        path.extend(wtf8::to_wide(query.stem()));
        let length = path.len();
        let mut hits = Hits::default();
        for (place, suffix) in query.suffixes().iter().enumerate() {
            path.truncate(length);
            path.extend(wtf8::to_wide(suffix));
            self.lookups += 1;
            match self.calls.attributes(&path).map_err(failure) {
                Ok(found) if found.is_directory && !query.accepts_directories() => {}
                Ok(_) => hits.add(place),
                Err(LookupFailure::Missing) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(hits)
    }
}

impl<C: Calls> Lister for Nt<C> {
    fn look(&mut self, base: &[u8], query: &Query) -> Result<Hits, LookupFailure> {
        // A wildcard query costs at least three calls, and its results do not show short names.
        const QUERY: usize = 3;
        if query.suffixes().len() < QUERY || query.may_be_short_name() {
            self.look_exactly(base, query)
        } else {
            self.look_by_pattern(base, query)
        }
    }

    fn lookups(&self) -> u64 {
        self.lookups
    }
}

impl<C: Calls> Folders for Nt<C> {
    fn stamp(&mut self, base: &[u8]) -> Result<FolderStamp, LookupFailure> {
        self.lookups += 1;
        let path = self.path(base);
        self.calls.attributes(&path).map(|found| FolderStamp::of_nt(found.times)).map_err(failure)
    }

    fn keeps_stamps(&mut self, base: &[u8]) -> bool {
        // Open, two queries, close.
        self.lookups += 4;
        let path = self.path(base);
        let Ok(folder) = self.calls.open(&path) else { return false };
        let keeps_stamps = self.calls.keeps_stamps(&folder);
        self.calls.close(folder);
        keeps_stamps.unwrap_or(false)
    }

    fn list(
        &mut self,
        base: &[u8],
        show: &mut dyn FnMut(&[u8], bool),
    ) -> Result<(), LookupFailure> {
        self.query(base, None, &mut |name, is_directory| {
            show(&wtf8::from_wide(name), is_directory);
        })
    }

    fn list_is_enough(&self) -> bool {
        true
    }
}

/// Returns the system's own folders of programs, in the order in which `CreateProcessW` searches them.
#[cfg(windows)]
#[must_use]
pub fn system_folders() -> Vec<Vec<u8>> {
    use thruway_sys::windows_folders::{system, windows};
    let folders = [system(), windows()].into_iter().flatten();
    folders.map(|folder| native::bytes(folder.as_os_str()).into_owned()).collect()
}

const SEPARATOR: u16 = b'\\' as u16;

/// Returns the NT path of an absolute name: `\??\C:\x`, `\??\UNC\host\share`.
fn nt_path(full: &[u16]) -> Vec<u16> {
    let (prefix, rest): (&[u8], _) = match Form::of(full) {
        Form::Share => (br"\??\UNC\", &full[2..]),
        Form::Device => (br"\??\", &full[4..]),
        _ => (br"\??\", full),
    };
    let mut path: Vec<u16> = prefix.iter().map(|byte| u16::from(*byte)).collect();
    path.extend_from_slice(rest);
    let is_drive = path.ends_with(&[u16::from(b':'), SEPARATOR]);
    if path.last() == Some(&SEPARATOR) && !is_drive {
        path.pop();
    }
    path
}

/// Classifies the status codes of NT.
fn failure(status: i32) -> LookupFailure {
    /// `STATUS_NO_SUCH_FILE`, `OBJECT_NAME_INVALID`, `OBJECT_NAME_NOT_FOUND`, `OBJECT_PATH_INVALID`,
    /// `OBJECT_PATH_NOT_FOUND`, `OBJECT_PATH_SYNTAX_BAD`, `BAD_NETWORK_PATH`, `BAD_NETWORK_NAME`,
    /// `NOT_A_DIRECTORY`, `NO_MEDIA_IN_DEVICE`.
    const MISSING: [u32; 10] = [
        0xC000_000F,
        0xC000_0033,
        0xC000_0034,
        0xC000_0039,
        0xC000_003A,
        0xC000_003B,
        0xC000_00BE,
        0xC000_00CC,
        0xC000_0103,
        0xC000_0013,
    ];
    const ACCESS_DENIED: u32 = 0xC000_0022;
    /// The flag that marks an `NTSTATUS` among other Windows error numbers.
    const FROM_NT: u32 = 0x1000_0000;
    match status.cast_unsigned() {
        status if MISSING.contains(&status) => LookupFailure::Missing,
        ACCESS_DENIED => LookupFailure::Denied,
        status => LookupFailure::Failed((status | FROM_NT).cast_signed()),
    }
}

#[cfg(test)]
mod tests {
    use super::fake::Fake;
    use super::*;
    use crate::search::{Listings, Places, Plan, Rules, Search};

    const A: &str = r"\??\C:\a";
    const B: &str = r"\??\C:\b";

    fn lister(fake: Fake) -> Nt<Fake> {
        Nt::new(fake, br"C:\".to_vec(), Vec::new())
    }

    fn all(lister: &mut impl Lister, rules: &Rules, name: &str) -> Vec<String> {
        let places = Places { path: br"C:\a;\b;C:none", before: &[] };
        let plan = Plan::new(rules, name.as_bytes(), &places).unwrap();
        let found = Search::new(&plan, lister).map(|found| found.unwrap().path);
        found.map(|path| String::from_utf8(path).unwrap()).collect()
    }

    fn cmd() -> Rules {
        Rules::cmd(b".COM;.EXE;.BAT;.CMD")
    }

    #[test]
    fn the_order_is_that_of_the_suffixes_and_not_of_the_disk() {
        let mut fake = Fake::new("FAT32");
        fake.folder(A).add(A, "tool.bat", "TOOL.BAT").add(A, "tool.exe.obj", "TOOLEX~1.OBJ");
        fake.add(A, "tool.COM", "TOOL.COM").add(A, "tool.cmd", "TOOL.CMD").add(A, "Tool.exe", "");
        let found = all(&mut lister(fake), &cmd(), "tool");
        let expected = [".COM", ".EXE", ".BAT", ".CMD"].map(|suffix| format!(r"C:\a\tool{suffix}"));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_match_by_its_short_name_does_not_count() {
        let mut fake = Fake::new("NTFS");
        fake.folder(A).add(A, "x", "LONGER~1").add(A, "longer-than-that.exe", "LONGER~2.EXE");
        fake.add(A, "ab", "TOOLKIT").add(A, "tool.exec", "TOOL~1.EXE").folder(B);
        fake.add(B, "tool.exe", "");
        let mut nt = lister(fake);
        assert_eq!(all(&mut nt, &cmd(), "toolkit"), Vec::<String>::new());
        assert_eq!(all(&mut nt, &cmd(), "tool"), [r"\b\tool.EXE"]);
    }

    #[test]
    fn a_short_name_that_is_asked_for_is_found() {
        let mut fake = Fake::new("NTFS");
        fake.folder(A).add(A, "longer-than-that.exe", "LONGER~2.EXE");
        assert_eq!(all(&mut lister(fake), &cmd(), "longer~2"), [r"C:\a\longer~2.EXE"]);
    }

    #[test]
    fn a_folder_is_not_a_program() {
        let mut fake = Fake::new("NTFS");
        fake.folder(A).add(A, "tool.exe\\", "").folder(B).add(B, "tool.exe", "");
        let mut nt = lister(fake);
        assert_eq!(all(&mut nt, &cmd(), "tool"), [r"\b\tool.EXE"]);
        assert_eq!(all(&mut nt, &Rules::rust(), "tool"), [r"C:\a\tool.EXE", r"\b\tool.EXE"]);
    }

    #[test]
    fn a_folder_without_a_match_costs_three_calls_and_a_hit_four() {
        let mut fake = Fake::new("NTFS");
        fake.folder(A).add(A, "other.exe", "").folder(B).add(B, "tool.exe", "");
        let mut nt = lister(fake);
        let places = Places { path: br"C:\a;C:\b", before: &[] };
        let plan = Plan::new(&cmd(), b"tool", &places).unwrap();
        assert!(Search::new(&plan, &mut nt).next().is_some());
        assert_eq!((nt.lookups(), nt.calls.open), (3 + 4, 0));
        let plan = Plan::new(&Rules::rust(), b"tool", &places).unwrap();
        assert!(Search::new(&plan, &mut nt).next().is_some());
        assert_eq!(nt.lookups(), 7 + 2);
    }

    #[test]
    fn a_folder_that_may_not_be_read_is_passed_over() {
        let mut fake = Fake::new("NTFS");
        fake.denied = true;
        fake.folder(A).folder(B);
        let mut nt = lister(fake);
        let places = Places { path: br"C:\a;C:\b", before: &[] };
        let plan = Plan::new(&cmd(), b"tool", &places).unwrap();
        let mut search = Search::new(&plan, &mut nt);
        assert_eq!(search.next(), None);
        assert_eq!(search.denied(), [br"C:\a\tool.COM", br"C:\b\tool.COM"]);
    }

    #[test]
    fn a_listing_that_is_up_to_date_costs_one_call_a_folder() {
        let mut fake = Fake::new("NTFS");
        fake.folder(A).add(A, "other.exe", "").folder(B).add(B, "Tool.exe", "");
        let mut listings = Listings::new(lister(fake));
        let tool = |listings: &mut Listings<Nt<Fake>>| {
            let before = listings.lookups();
            (all(listings, &cmd(), "tool"), listings.lookups() - before)
        };
        let found = vec![r"\b\tool.EXE".to_owned()];
        assert_eq!(tool(&mut listings).0, found);
        assert_eq!(tool(&mut listings), (found, 3));
        listings.folders_mut().calls.add(A, "tool.bat", "");
        assert_eq!(tool(&mut listings).0, [r"C:\a\tool.BAT", r"\b\tool.EXE"]);
        listings.folders_mut().calls.remove(B, "Tool.exe");
        assert_eq!(tool(&mut listings).0, [r"C:\a\tool.BAT"]);
        assert_eq!(tool(&mut listings).1, 3);
    }

    #[test]
    fn a_folder_without_stamps_is_searched_each_time() {
        let mut fake = Fake::new("FAT32");
        fake.folder(A).add(A, "other.exe", "").folder(B);
        let mut listings = Listings::new(lister(fake));
        assert!(all(&mut listings, &cmd(), "tool").is_empty());
        listings.folders_mut().calls.add(A, "tool.exe", "");
        assert_eq!(all(&mut listings, &cmd(), "tool"), [r"C:\a\tool.EXE"]);
    }

    #[test]
    fn nt_keeps_names_below_two_question_marks() {
        let path = |full: &str| {
            String::from_utf16(&nt_path(&full.encode_utf16().collect::<Vec<_>>())).unwrap()
        };
        assert_eq!(path(r"C:\a\b"), r"\??\C:\a\b");
        assert_eq!(path(r"C:\a\"), r"\??\C:\a");
        assert_eq!(path(r"C:\"), r"\??\C:\");
        assert_eq!(path(r"\\host\share\a"), r"\??\UNC\host\share\a");
        assert_eq!(path(r"\\?\C:\a"), r"\??\C:\a");
    }
}
