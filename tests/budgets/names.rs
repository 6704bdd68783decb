//! A command among 211 folders of 40 files: in the first folder, in the 197th, in none.

use std::fs;
use std::path::Path;

use thruway_resolve::native;
use thruway_resolve::search::{Lister, Listings, Places, Plan, Rules, Search};

const FOLDERS: usize = 211;
const FILES: usize = 40;
/// The number of the folder that contains `deep`.
const DEEP: usize = 196;

#[cfg(unix)]
const SUFFIX: &str = "";
#[cfg(windows)]
const SUFFIX: &str = ".exe";

struct Folders {
    /// Removes the folders when the value is dropped.
    base: tempfile::TempDir,
    path: Vec<u8>,
}

impl Folders {
    fn new() -> Self {
        let base = tempfile::tempdir().expect("a folder");
        let mut path = Vec::new();
        for number in 0..FOLDERS {
            let folder = base.path().join(format!("d{number:03}"));
            fs::create_dir(&folder).expect("a folder");
            for file in 0..FILES {
                fs::write(folder.join(format!("file{file}{SUFFIX}")), "").expect("a file");
            }
            path.extend_from_slice(&native::bytes(folder.as_os_str()));
            path.push(if cfg!(windows) { b';' } else { b':' });
        }
        path.pop();
        let folders = Self { base, path };
        folders.add_program(0, "first");
        folders.add_program(DEEP, "deep");
        folders
    }

    fn add_program(&self, folder: usize, name: &str) {
        program(&self.base.path().join(format!("d{folder:03}")).join(format!("{name}{SUFFIX}")));
    }

    /// The queries that the search for each of the three names makes to `lister`.
    fn lookups(&self, rules: &Rules, lister: &mut impl Lister) -> [u64; 3] {
        [("first", Some(0)), ("deep", Some(DEEP)), ("miss", None)].map(|(name, expected)| {
            let places = Places { path: &self.path, before: &[] };
            let plan = Plan::new(rules, name.as_bytes(), &places).expect("a plan");
            let before = lister.lookups();
            let found = Search::new(&plan, lister).next().transpose().expect("no trouble");
            assert_eq!(found.map(|found| found.base), expected, "{name}");
            lister.lookups() - before
        })
    }
}

#[cfg(unix)]
fn program(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, "").expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

#[cfg(windows)]
fn program(path: &Path) {
    fs::write(path, "").expect("a file");
}

/// Waits for a tick of the clock, so that the stamps of the folders are older than their listing.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(100));
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use std::process::Command;
    use thruway_resolve::search::{Inotify, Posix, WatchIndex};

    #[test]
    fn a_search_asks_once_a_folder() {
        let folders = Folders::new();
        let cold = folders.lookups(&Rules::exec(), &mut Posix::default());
        assert_eq!(cold, [1, 197, 211]);
    }

    #[test]
    fn listings_that_are_up_to_date_ask_once_a_folder_and_never_twice() {
        let folders = Folders::new();
        settle();
        let mut listings = Listings::new(Posix::default());
        folders.lookups(&Rules::exec(), &mut listings);
        assert_eq!(folders.lookups(&Rules::exec(), &mut listings), [1, 197, 211]);
    }

    #[test]
    fn a_watched_index_asks_for_the_hit_alone() {
        let folders = Folders::new();
        let places = Places { path: &folders.path, before: &[] };
        let plan = Plan::new(&Rules::exec(), b"any", &places).unwrap();
        let watch = Inotify::new().unwrap();
        let mut watched = WatchIndex::new(Posix::default(), watch, plan.bases());
        assert_eq!(watched.watched(), FOLDERS);
        assert_eq!(folders.lookups(&Rules::exec(), &mut watched), [1, 1, 0]);
    }

    /// The count that `thruway which` prints equals the opens that the kernel sees.
    #[test]
    fn the_count_is_the_kernels() {
        let folders = Folders::new();
        let path = String::from_utf8(folders.path.clone()).unwrap();
        let answers = [
            ("first", 1, "1 look-up"),
            ("deep", 197, "197 look-ups"),
            ("miss", 211, "211 look-ups"),
        ];
        for (name, lookups, words) in answers {
            let mut strace = Command::new("strace");
            strace.args(["-f", "-e", "trace=%file", env!("CARGO_BIN_EXE_thruway"), "which"]);
            let output = strace.args(["--count", "--path", &path, name]).output().unwrap();
            let told = String::from_utf8(output.stdout).unwrap();
            assert_eq!(told.lines().last(), Some(words));
            let base = folders.base.path().join("d").display().to_string();
            let calls = String::from_utf8(output.stderr).unwrap();
            let asked = |line: &&str| line.contains(&base) && !line.contains("execve(");
            // The first line of the found file is read, because it may name a missing interpreter.
            let (searched, read): (Vec<_>, Vec<_>) =
                calls.lines().filter(asked).partition(|line| line.contains("O_PATH"));
            assert_eq!(searched.len(), lookups, "{calls}");
            assert_eq!(read.len(), usize::from(name != "miss"), "{calls}");
        }
    }
}

#[cfg(windows)]
mod windows {
    use super::*;
    use thruway_resolve::search::nt::DirectoryChanges;
    use thruway_resolve::search::{Nt, WatchIndex};

    fn cmd() -> Rules {
        Rules::cmd(b".COM;.EXE;.BAT;.CMD")
    }

    #[test]
    fn a_search_makes_one_query_a_folder_whatever_the_number_of_suffixes() {
        let folders = Folders::new();
        let mut nt = Nt::of_this_process().unwrap();
        assert_eq!(folders.lookups(&cmd(), &mut nt), [4, 592, 633]);
        let ten = Rules::cmd(b".COM;.EXE;.BAT;.CMD;.VBS;.VBE;.JS;.JSE;.WSF;.WSH");
        assert_eq!(folders.lookups(&ten, &mut nt), [4, 592, 633]);
        let zig = Rules::zig(b".COM;.EXE;.BAT;.CMD").current_first(false);
        assert_eq!(folders.lookups(&zig, &mut nt), [4, 592, 633]);
        assert_eq!(folders.lookups(&Rules::rust(), &mut nt), [1, 197, 211]);
    }

    #[test]
    fn listings_that_are_up_to_date_ask_once_a_folder() {
        let folders = Folders::new();
        settle();
        let mut listings = Listings::new(Nt::of_this_process().unwrap());
        folders.lookups(&cmd(), &mut listings);
        assert_eq!(folders.lookups(&cmd(), &mut listings), [1, 197, 211]);
    }

    #[test]
    fn a_watched_index_asks_nothing() {
        let folders = Folders::new();
        let places = Places { path: &folders.path, before: &[] };
        let plan = Plan::new(&cmd(), b"any", &places).unwrap();
        let nt = Nt::of_this_process().unwrap();
        let mut watched = WatchIndex::new(nt, DirectoryChanges::new(), plan.bases());
        assert_eq!(watched.watched(), FOLDERS);
        assert_eq!(folders.lookups(&cmd(), &mut watched), [0, 0, 0]);
    }

    #[test]
    fn a_long_name_is_one_query() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Short.Rb"), "").unwrap();
        let mut nt = Nt::of_this_process().unwrap();
        let path = |name| native::bytes(folder.path().join(name).as_os_str()).into_owned();
        assert_eq!(nt.long_name(&path("sHORT.rB")), path("Short.Rb"));
        assert_eq!(nt.lookups(), 4);
        assert_eq!(nt.long_name(&path("a-long-name.rb")), path("a-long-name.rb"));
        assert_eq!(nt.lookups(), 4);
    }
}
