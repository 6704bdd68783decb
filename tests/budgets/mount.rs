//! Requests that the kernel sends to the daemon for what a program does. What is not listed here is
//! answered by the kernel alone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use thruway_testing::skipped;

/// Requests by operation.
type Requests = BTreeMap<String, u64>;

/// How often the counts are read before they are taken as final: the kernel sends some requests later, such as those
/// after a close.
const LOOKS_MAX: usize = 200;

/// How often a test is run while changes are reported late.
const MOUNTS_MAX: usize = 20;

/// The protocol of Linux 6.16, 7.x: the counts hold from there on.
const MINOR: u32 = 44;

/// The time after which a test fails, and never a measure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mount of some sources, until the value is dropped.
struct Mounted {
    folder: tempfile::TempDir,
}

fn thruway(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thruway"));
    command.args(arguments).args(paths).output().expect("the binary starts")
}

/// Runs a test on a new mount. On a busy machine, the daemon may report a change late. Then all names and, for newly
/// written files, attributes are requested once more, so the test is repeated with another mount.
fn on_mount(options: &[&str], sources: &[&str], test: impl Fn(&Mounted)) {
    for _ in 0..MOUNTS_MAX {
        let Some(mounted) = Mounted::new(options, sources) else { return };
        match catch_unwind(AssertUnwindSafe(|| test(&mounted))) {
            Ok(()) => return,
            Err(panic) if mounted.late_reports() == 0 => resume_unwind(panic),
            Err(_) => {}
        }
    }
    panic!("changes were reported late in {MOUNTS_MAX} mounts");
}

impl Mounted {
    /// Mounts `first` and, for a merged view, `second`, or returns the reason why the machine cannot.
    fn new(options: &[&str], sources: &[&str]) -> Option<Self> {
        if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
            skipped(format_args!("/dev/fuse: {error}"));
            return None;
        }
        let mounted = Self { folder: tempfile::tempdir().unwrap() };
        for source in sources {
            fs::create_dir_all(mounted.path(source).join("folder")).unwrap();
            fs::write(mounted.path(source).join(format!("in_{source}")), "text").unwrap();
        }
        for name in 0..100 {
            fs::write(mounted.path("first/folder").join(name.to_string()), "text").unwrap();
        }
        fs::create_dir(mounted.path("target")).unwrap();
        let sources: Vec<_> = sources.iter().map(|source| mounted.path(source)).collect();
        let mut places: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
        let target = mounted.path("target");
        places.push(&target);
        let arguments = [&["mount"], options].concat();
        let output = thruway(&arguments, &places);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if error.contains("Operation not permitted") {
            skipped(error.trim());
            return None;
        }
        assert!(output.status.success(), "{error}");
        mounted.is_as_new_as_the_counts().then_some(mounted)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn target(&self, name: &str) -> PathBuf {
        self.path("target").join(name)
    }

    /// An older kernel sends more requests, for which there is no budget.
    fn is_as_new_as_the_counts(&self) -> bool {
        let protocol = self.status()["protocol"].as_str().map(str::to_owned);
        let minor = protocol.as_deref().and_then(|text| text.strip_prefix("7."));
        let is_new = minor.and_then(|minor| minor.parse().ok()) >= Some(MINOR);
        if !is_new {
            skipped(format_args!("the counts are those of FUSE 7.{MINOR}, not {protocol:?}"));
        }
        is_new
    }

    /// Returns the status. A daemon that gets no processor for seconds does not reply in time, and is asked again.
    fn status(&self) -> serde_json::Value {
        let start = Instant::now();
        loop {
            let output = thruway(&["mount", "status", "--json"], &[&self.path("target")]);
            let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            if status["error"].is_null() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "{status}");
        }
    }

    /// All requests up to now, without FORGET: the kernel decides when to forget an inode.
    fn requests(&self) -> Requests {
        let mut requests: Requests =
            serde_json::from_value(self.status()["requests"].clone()).unwrap();
        requests.retain(|name, _| !name.ends_with("forget"));
        requests
    }

    fn late_reports(&self) -> u64 {
        self.status()["counts"]["changes_told_late"].as_u64().unwrap()
    }

    /// Waits until the daemon has closed so many files.
    fn await_closed(&self, files: u64) {
        while self.requests().get("release").is_none_or(|closed| *closed < files) {
            sleep(Duration::from_millis(1));
        }
        // Requests count when the daemon reads them. The kernel asks for attributes until the last file is closed.
        let open = || self.status()["open_files"].as_u64();
        while open() != Some(0) {
            sleep(Duration::from_millis(1));
        }
    }

    /// Compares the requests of `act` with the golden count. Attributes of a newly changed file are cached for
    /// a second, which may pass on a busy machine. So requests for attributes are left out.
    fn costs(&self, what: &str, golden: &[(&str, u64)], act: impl FnOnce()) {
        self.compare(what, golden, act, &["getattr"]);
    }

    /// The same for a change of a file. The kernel's own writes are reported as if by another program, at once or a
    /// little later. So requests for attributes are left out.
    fn changes(&self, what: &str, golden: &[(&str, u64)], act: impl FnOnce()) {
        self.compare(what, golden, act, &ATTRIBUTES);
    }

    fn compare(&self, what: &str, golden: &[(&str, u64)], act: impl FnOnce(), without: &[&str]) {
        let outcome = self.check_requests(golden, act, without);
        assert!(outcome.is_ok(), "{what}: {outcome:?} in place of {golden:?}");
    }

    /// Returns the requests of `act` as an error unless they are the golden ones. Those of the kinds `without` do not
    /// count.
    fn check_requests(
        &self,
        golden: &[(&str, u64)],
        act: impl FnOnce(),
        without: &[&str],
    ) -> Result<(), Requests> {
        let golden = golden.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let before = self.requests();
        act();
        let mut more = Requests::new();
        for _ in 0..LOOKS_MAX {
            more = self.requests();
            more.iter_mut().for_each(|(name, count)| *count -= before.get(name).unwrap_or(&0));
            more.retain(|name, count| *count > 0 && !without.contains(&name.as_str()));
            if more == golden {
                return Ok(());
            }
            sleep(Duration::from_millis(10));
        }
        Err(more)
    }
}

/// Requests for attributes.
const ATTRIBUTES: [&str; 2] = ["getattr", "getxattr"];

impl Drop for Mounted {
    fn drop(&mut self) {
        thruway(&["unmount", "--lazy"], &[&self.path("target")]);
    }
}

fn count(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Whether it is there. (The standard library asks for the time of birth besides, which is a request
/// of its own for each inode.)
fn is_there(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok()
}

fn read(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let mut bytes = vec![0; 100];
    let length = rustix::io::read(&file, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

#[test]
fn what_a_live_mount_asks() {
    on_mount(&[], &["first"], |mounted| {
        let at = |name: &str| mounted.target(name);
        let stat = |name: &str| is_there(&at(name));
        mounted.costs("a name, first", &[("lookup", 2)], || assert!(stat("folder/1")));
        mounted.costs("a name, again", &[], || assert!(stat("folder/1")));
        mounted.costs("no such name, first", &[("lookup", 1)], || assert!(!stat("folder/none")));
        mounted.costs("no such name, again", &[], || assert!(!stat("folder/none")));
        for _ in 0..2 {
            mounted.costs("open, read, close", &[("open", 1), ("release", 1)], || {
                assert_eq!(read(&at("folder/1")), b"text");
            });
        }
        let made = [("lookup", 1), ("create", 1), ("release", 1)];
        mounted
            .changes("make, write, close", &made, || fs::write(at("folder/new"), "text").unwrap());
        mounted.changes("write, close", &[("open", 1), ("release", 1)], || {
            fs::write(at("folder/new"), "other").unwrap();
        });
        mounted.changes("rename", &[("lookup", 1), ("rename", 1)], || {
            fs::rename(at("folder/new"), at("folder/renamed")).unwrap();
        });
        mounted.changes("remove", &[("unlink", 1)], || {
            fs::remove_file(at("folder/renamed")).unwrap();
        });
        mounted.changes("make a folder", &[("lookup", 1), ("mkdir", 1)], || {
            fs::create_dir(at("made")).unwrap();
        });
        mounted.changes("remove a folder", &[("rmdir", 1)], || fs::remove_dir(at("made")).unwrap());
    });
}

/// Editors, git and downloads write a new version beside the old one. When the kernel reports the write of such a file,
/// the file has another name.
#[test]
fn what_new_versions_of_files_add_for_other_names() {
    on_mount(&[], &["first"], |mounted| {
        let is_there = |name: u32| is_there(&mounted.target(&format!("folder/{name}")));
        (0..100).for_each(|name| assert!(is_there(name)));
        let made = [("create", 20), ("lookup", 40), ("release", 20), ("rename", 20)];
        let make = || {
            for _ in 0..20 {
                fs::write(mounted.target("folder/lock"), "text").unwrap();
                fs::rename(mounted.target("folder/lock"), mounted.target("folder/version"))
                    .unwrap();
            }
        };
        mounted.changes("twenty new versions", &made, make);
        // The threads that receive the report have slept for 5 ms.
        sleep(Duration::from_millis(50));
        mounted.costs("names beside them, again", &[], || {
            (0..100).for_each(|name| assert!(is_there(name)));
        });
    });
}

/// A few requests may be repeated: a round of look-ups of open files may come between.
const SOME: u64 = 20;

/// Rounds until the kernel sends no request. On a busy machine, the threads that receive reports of writes may be late,
/// and the kernel repeats the requests for everything that they invalidate.
const ROUNDS: u32 = 50;

#[test]
fn attributes_are_not_asked_for_since_a_file_is_opened() {
    on_mount(&[], &["first"], |mounted| {
        let at = |name: u32| mounted.target(&format!("made-{name}"));
        let asked = |act: &dyn Fn(u32)| {
            let before = mounted.requests();
            (0..100).for_each(act);
            let all = mounted.requests();
            all.get("getattr").unwrap_or(&0) - before.get("getattr").unwrap_or(&0)
        };
        (0..100).for_each(|name| fs::write(at(name), "text").unwrap());
        // No program waits for the release of a file. Until then the file counts as open, and other programs may change
        // it: its attributes are cached for a moment only.
        mounted.await_closed(100);
        let least =
            |act: &dyn Fn(u32)| (0..ROUNDS).map(|_| asked(act)).find(|asked| *asked <= SOME);
        let looked = (0..ROUNDS).any(|_| asked(&|name| assert!(is_there(&at(name)))) == 0);
        assert!(looked, "attributes are asked for in each round");
        let opened = least(&|name| {
            assert_eq!(rustix::fs::fstat(File::open(at(name)).unwrap()).unwrap().st_size, 4);
        });
        assert!(opened.is_some(), "attributes are asked for whenever a file is opened");
    });
}

#[test]
fn attributes_are_not_asked_for_after_a_program_has_asked_while_it_wrote() {
    on_mount(&[], &["first"], |mounted| {
        let at = |name: u32| mounted.target(&format!("made-{name}"));
        // The answer is valid for half a second, and may expire before the file is closed: then other files are made.
        let asked = |round: u32| {
            let names = || (round * 100..).take(100);
            for name in names() {
                let mut file = File::create(at(name)).unwrap();
                std::io::Write::write_all(&mut file, b"text").unwrap();
                assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 4);
            }
            mounted.await_closed(u64::from(round + 1) * 100);
            let before = mounted.requests();
            names().for_each(|name| assert!(is_there(&at(name))));
            mounted.requests()["getattr"] - before["getattr"]
        };
        assert!(
            (0..ROUNDS).any(|round| asked(round) <= SOME),
            "attributes are asked for each time"
        );
    });
}

/// All names are looked up again when a folder gets another part, and on a busy machine when a change is reported late.
/// The kernel forgets the inodes in between, but it is still known that only the mount has changed these files.
#[test]
fn attributes_are_not_asked_for_since_all_names_were_looked_up_again() {
    on_mount(&[], &["first", "second"], |mounted| {
        let at = |name: u32| mounted.target(&format!("folder/made-{name}"));
        let stat = || (0..20).for_each(|name| assert!(is_there(&at(name))));
        fs::create_dir(mounted.target("part")).unwrap();
        (0..20).for_each(|name| fs::write(at(name), "text").unwrap());
        mounted.await_closed(20);
        let looked_up = || mounted.requests()["lookup"];
        let before = looked_up();
        fs::create_dir(mounted.path("second/part")).unwrap();
        let are_looked_up = (0..LOOKS_MAX).any(|_| {
            stat();
            sleep(Duration::from_millis(1));
            looked_up() >= before + 20
        });
        assert!(are_looked_up);
        let asked = || mounted.requests().get("getattr").copied().unwrap_or(0);
        let before = asked();
        stat();
        // The attributes of a folder are asked for after each report of a name in the folder.
        let more = asked() - before;
        assert!(more < 10, "{more} requests for the attributes of 20 files that were just written");
    });
}

#[test]
fn what_a_listing_asks() {
    on_mount(&[], &["first"], |mounted| {
        let folder = mounted.target("folder");
        // The reply to the first open of a folder tells the kernel to omit such requests from then on.
        let first = [("lookup", 1), ("opendir", 1), ("readdirplus", 1), ("readdir", 1)];
        mounted.costs("a listing, first", &first, || assert_eq!(count(&folder), 100));
        // A request for the times of the folder, since reading the folder has changed its access time.
        mounted.compare(
            "a listing, again",
            &[("getattr", 1)],
            || assert_eq!(count(&folder), 100),
            &[],
        );
        mounted.costs("attributes of all that was listed", &[], || {
            let all = fs::read_dir(&folder).unwrap().flatten();
            assert_eq!(all.filter(|entry| is_there(&entry.path())).count(), 100);
        });
    });
}

#[test]
fn what_a_frozen_mount_asks() {
    on_mount(&["--frozen"], &["first"], |mounted| {
        let read = |name: &str| assert_eq!(read(&mounted.target(name)), b"text");
        // The reply tells the kernel to omit requests when a file is opened or closed. (A program that another test
        // starts meanwhile closes the file, too.)
        let first = [("lookup", 2), ("open", 1), ("read", 1)];
        mounted.compare("the first file of all", &first, || read("folder/1"), &["flush"]);
        mounted.costs("another file", &[("lookup", 1), ("read", 1)], || read("folder/2"));
        mounted.costs("a file again", &[], || read("folder/2"));
    });
}

#[test]
fn what_a_view_of_several_sources_asks() {
    on_mount(&[], &["first", "second", "third"], |mounted| {
        let stat = |name: &str| is_there(&mounted.target(name));
        mounted.costs("a name, first", &[("lookup", 1)], || assert!(stat("in_third")));
        mounted.costs("no such name, first", &[("lookup", 1)], || assert!(!stat("in_none")));
        mounted.costs("both, again", &[], || assert!(stat("in_third") && !stat("in_none")));
    });
}

/// A file that moves to another folder, or gets a hard link there, stays on its disk, and the folder is created on that
/// disk. So an importer pays the same with one disk and with two. Without events of other programs, no name is looked
/// up twice.
#[test]
fn files_of_two_disks_are_moved_and_linked_with_two_requests_each() {
    on_mount(&["--changes", "ignored"], &["first", "second"], |mounted| {
        let disk = |number: usize| if number.is_multiple_of(2) { "first" } else { "second" };
        let name = |number: usize| format!("folder/file {number}");
        for number in 0..40 {
            fs::write(mounted.path(disk(number)).join(name(number)), "text").unwrap();
        }
        fs::create_dir(mounted.target("library")).unwrap();
        (0..40).for_each(|number| assert!(is_there(&mounted.target(&name(number)))));
        let link = [("link", 20), ("lookup", 20)];
        mounted.changes("20 hard links, and their attributes", &link, || {
            for number in 0..20 {
                let new = mounted.target(&format!("library/link {number}"));
                fs::hard_link(mounted.target(&name(number)), &new).unwrap();
                assert!(is_there(&new));
            }
        });
        mounted.changes("40 renames", &[("lookup", 40), ("rename", 40)], || {
            for number in 0..40 {
                let new = mounted.target(&format!("library/file {number}"));
                fs::rename(mounted.target(&name(number)), new).unwrap();
            }
        });
        for disk in ["first", "second"] {
            assert_eq!(count(&mounted.path(disk).join("library")), 10 + 20);
        }
        mounted.changes("a rename of the folder", &[("lookup", 1), ("rename", 1)], || {
            fs::rename(mounted.target("library"), mounted.target("renamed")).unwrap();
        });
        assert_eq!(count(&mounted.path("second/renamed")), 30);
    });
}

#[test]
fn what_a_policy_adds() {
    let rules = tempfile::NamedTempFile::new().unwrap();
    fs::write(rules.path(), "[[rule]]\npaths = [\"x\"]\nverdict = \"deny\"\n").unwrap();
    let options = ["--policy", rules.path().to_str().unwrap()];
    on_mount(&options, &["first"], |mounted| {
        let folder = mounted.target("folder");
        count(&folder);
        // No program waits for the release of a folder.
        while !mounted.requests().contains_key("releasedir") {
            sleep(Duration::from_millis(1));
        }
        // Folders are opened through the daemon, too, and their names are not kept.
        let listing = [("opendir", 1), ("readdirplus", 1), ("readdir", 1), ("releasedir", 1)];
        mounted.costs("a listing, again", &listing, || assert_eq!(count(&folder), 100));
    });
}
