//! Folders of several sources: their times, and changes that a source refuses.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::XattrFlags;

use super::differential::Numbers;
use super::fixture::{Mounted, wait_until};
use super::freshness::number;
use super::submounts::Disks;

const SOURCES: &[&str] = &["first", "second"];

fn merged(fill: impl FnOnce(&Mounted)) -> Option<Mounted> {
    Mounted::with_sources(SOURCES, &[], fill)
}

fn command(program: &str, arguments: &[&Path]) -> bool {
    Command::new(program).args(arguments).output().unwrap().status.success()
}

/// Sets the times of a folder back, so that the next change is seen in them.
fn set_old(folder: &Path) {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    // A change of the modification time alone causes no event.
    let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
    File::open(folder).unwrap().set_times(times).unwrap();
}

fn modified(path: PathBuf) -> (i64, i64) {
    let stat = fs::metadata(path).unwrap();
    (stat.mtime(), stat.mtime_nsec())
}

#[test]
fn a_folder_has_the_newest_times_of_its_sources() {
    let Some(mounted) = merged(|mounted| {
        for source in SOURCES {
            fs::create_dir(mounted.path(source).join("folder")).unwrap();
        }
        fs::write(mounted.path("second/folder/name"), "").unwrap();
    }) else {
        return;
    };
    let parts = || ["first/folder", "second/folder"].map(|path| mounted.path(path));
    let changes: [(&str, &dyn Fn()); 5] = [
        ("a rename", &|| {
            fs::rename(mounted.target("folder/name"), mounted.target("folder/other")).unwrap();
        }),
        ("a removal", &|| fs::remove_file(mounted.target("folder/other")).unwrap()),
        ("a new folder behind", &|| fs::create_dir(mounted.path("second/folder/new")).unwrap()),
        ("a removal behind", &|| fs::remove_dir(mounted.path("second/folder/new")).unwrap()),
        ("a new name", &|| fs::write(mounted.target("folder/made"), "").unwrap()),
    ];
    for (what, change) in changes {
        parts().iter().for_each(|part| set_old(part));
        wait_until(&format!("the old time before {what}"), || {
            modified(mounted.target("folder")).0 == 1_000_000_000
        });
        change();
        let newest = parts().map(modified).into_iter().max().unwrap();
        assert!(newest.0 > 1_000_000_000, "{what}");
        wait_until(what, || modified(mounted.target("folder")) == newest);
    }
}

/// No name in the folder was looked up, so none is cached.
#[test]
fn the_times_of_a_folder_that_was_only_looked_at_are_seen_to_change() {
    for sources in [&["first"][..], SOURCES] {
        let fill = |mounted: &Mounted| {
            for source in sources {
                fs::create_dir(mounted.path(source).join("folder")).unwrap();
                set_old(&mounted.path(source).join("folder"));
            }
        };
        let Some(mounted) = Mounted::with_sources(sources, &[], fill) else { return };
        assert_eq!(modified(mounted.target("folder")).0, 1_000_000_000);
        fs::create_dir(mounted.path(sources[sources.len() - 1]).join("folder/new")).unwrap();
        wait_until("its time", || modified(mounted.target("folder")).0 > 1_000_000_000);
    }
}

#[test]
fn a_removed_folder_that_is_open_has_no_links() {
    let Some(mounted) = merged(|_| ()) else { return };
    fs::create_dir(mounted.target("folder")).unwrap();
    let open = File::open(mounted.target("folder")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 1);
    fs::remove_dir(mounted.target("folder")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
}

/// Returns the tree below a folder, with the remains that a half-made change would leave.
fn tree(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let stat = entry.metadata().unwrap();
        let mut value = [0; 10];
        let length = rustix::fs::lgetxattr(entry.path(), "user.x", &mut value[..]).unwrap_or(0);
        let (owner, mode) = (stat.uid(), stat.mode());
        let (path, attribute) = (entry.path(), &value[..length]);
        all.push(format!("{} {mode:o} {owner} {} {attribute:?}", path.display(), stat.mtime()));
        if stat.is_dir() {
            all.extend(tree(&path));
        }
    }
    all
}

const CHANGES: [(&str, &[&str]); 9] = [
    ("rm", &["-f", "file"]),
    ("rmdir", &["empty"]),
    ("mv", &["file", "moved"]),
    ("mv", &["-T", "folder", "moved"]),
    ("mv", &["-f", "file", "other"]),
    ("chmod", &["700", "folder"]),
    ("chown", &["5", "folder"]),
    ("touch", &["-d", "2001-01-01", "folder"]),
    ("setfattr", &["-n", "user.x", "-v", "1", "folder"]),
];

/// Makes one source refuse changes, tries all of them, and compares the sources before and after.
fn nothing_is_half_made(refuse: impl Fn(&Mounted, &str) -> bool, allow: impl Fn(&Mounted, &str)) {
    nothing_is_half_made_on(|_| true, refuse, allow);
}

/// Runs the same checks on the disks that `prepare` mounts.
fn nothing_is_half_made_on(
    prepare: impl Fn(&Mounted) -> bool,
    refuse: impl Fn(&Mounted, &str) -> bool,
    allow: impl Fn(&Mounted, &str),
) {
    for refusing in SOURCES {
        let Some(mounted) = merged(|mounted| {
            prepare(mounted);
            for source in SOURCES {
                ["folder", "empty"].iter().for_each(|name| {
                    fs::create_dir(mounted.path(source).join(name)).unwrap();
                });
                ["file", "other", "folder/below"].iter().for_each(|name| {
                    fs::write(mounted.path(source).join(name), *source).unwrap();
                });
            }
        }) else {
            return;
        };
        if !refuse(&mounted, refusing) {
            thruway_testing::skipped("this file system has no such attribute");
            return;
        }
        let all = || ["first", "second"].map(|source| tree(&mounted.path(source)));
        let mut wrong = Vec::new();
        for (program, arguments) in CHANGES {
            let before = all();
            let mut change = Command::new(program);
            change.args(arguments).current_dir(mounted.target(""));
            let Ok(changed) = change.output() else { continue };
            if !changed.status.success() && all() != before {
                wrong.push(format!("{program} {arguments:?}: {before:?} {:?}", all()));
            }
        }
        allow(&mounted, refusing);
        assert!(wrong.is_empty(), "{refusing}: {wrong:#?}");
    }
}

#[test]
fn a_change_that_an_immutable_folder_refuses_is_made_nowhere() {
    let set = |how: &str, mounted: &Mounted, source: &str| {
        let folder = mounted.path(source);
        ["", "folder", "empty", "file"]
            .iter()
            .all(|name| command("chattr", &[Path::new(how), &folder.join(name)]))
    };
    nothing_is_half_made(
        |mounted, source| set("+i", mounted, source),
        |mounted, source| assert!(set("-i", mounted, source)),
    );
}

#[test]
fn a_change_that_a_read_only_file_system_refuses_is_made_nowhere() {
    let disks = std::cell::RefCell::new(Disks::default());
    let set = |how: &str, mounted: &Mounted, source: &str| {
        command("mount", &["-o".as_ref(), how.as_ref(), &mounted.path(source)])
    };
    let mount = |mounted: &Mounted| {
        SOURCES.iter().all(|source| disks.borrow_mut().mount_of(1 << 20, &mounted.path(source)))
    };
    nothing_is_half_made_on(
        mount,
        |mounted, source| set("remount,ro", mounted, source),
        |mounted, source| {
            set("remount,rw", mounted, source);
        },
    );
}

#[test]
fn a_change_that_an_immutable_file_refuses_is_made_nowhere() {
    let set = |how: &str, mounted: &Mounted, source: &str| {
        ["file", "empty"]
            .iter()
            .all(|name| command("chattr", &[Path::new(how), &mounted.path(source).join(name)]))
    };
    nothing_is_half_made(
        |mounted, source| set("+i", mounted, source),
        |mounted, source| assert!(set("-i", mounted, source)),
    );
}

/// Random cases in CI.
const CASES: u64 = 60;

/// Makes a source refuse changes in the way of this case; [`allow`] undoes it.
fn refuse(kind: u64, source: &Path, below: &Path) -> bool {
    match kind {
        1 => command("chattr", &["+i".as_ref(), below]),
        2 => command("chattr", &["+a".as_ref(), below]),
        // The filler takes the rest of the disk.
        3 => fs::write(source.join("filler"), vec![0; 1 << 21]).is_err(),
        _ => true,
    }
}

fn allow(kind: u64, source: &Path, below: &Path) -> bool {
    match kind {
        1 => command("chattr", &["-i".as_ref(), below]),
        2 => command("chattr", &["-a".as_ref(), below]),
        3 => fs::remove_file(source.join("filler")).is_ok(),
        _ => true,
    }
}

/// Makes a random change through the mount.
fn random_change(target: &Path, numbers: &mut Numbers) -> (String, std::io::Result<()>) {
    let path = |numbers: &mut Numbers| {
        let folder = numbers.of(&[".", ".", "d", "e"]);
        format!("{folder}/{}", numbers.of(&["d", "e", "f", "g"]))
    };
    let (one, two) = (path(numbers), path(numbers));
    let (at, to) = (target.join(&one), target.join(&two));
    let kind = numbers.below(8);
    let done = match kind {
        0 => fs::remove_file(&at),
        1 => fs::remove_dir(&at),
        2 | 3 => fs::rename(&at, &to),
        4 => {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(numbers.of(&[0o700, 0o755]));
            fs::set_permissions(&at, mode)
        }
        5 => std::os::unix::fs::lchown(&at, Some(numbers.of(&[0, 5])), None),
        6 => {
            let value = vec![b'v'; numbers.of(&[1, 9])];
            let flags = numbers.of(&[XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE]);
            rustix::fs::setxattr(&at, "user.x", &value, flags).map_err(Into::into)
        }
        _ => rustix::fs::removexattr(&at, "user.x").map_err(Into::into),
    };
    (format!("{kind} {one} {two}: {done:?}"), done)
}

/// A failed change through the mount leaves all sources as they were. A successful change determines its name's state.
#[test]
fn no_random_change_is_half_made_whatever_a_source_refuses() {
    let mut disks = Disks::default();
    let mut can = true;
    let Some(mounted) = merged(|mounted| {
        can = SOURCES.iter().all(|source| disks.mount_of(1 << 20, &mounted.path(source)));
    }) else {
        return;
    };
    if !can {
        return;
    }
    let mut numbers = Numbers(number("THRUWAY_SEED", 5).max(1));
    for case in 0..number("THRUWAY_CASES", CASES) {
        for source in SOURCES {
            for name in ["d", "e", "d/e", "e/d"] {
                let path = mounted.path(source).join(name);
                if numbers.below(3) > 0 {
                    let _ = fs::create_dir(path);
                }
            }
            for name in ["f", "g", "d/f", "e/g", "d", "e"] {
                let path = mounted.path(source).join(name);
                if numbers.below(3) > 0 && !path.is_dir() {
                    let _ = fs::write(path, *source);
                }
            }
        }
        let (kind, source) = (1 + numbers.below(4), mounted.path(numbers.of(SOURCES)));
        let below = source.join(numbers.of(&[".", "d", "e", "f", "g"]));
        let kind = if below.symlink_metadata().is_ok() { kind } else { 4 };
        assert!(refuse(kind, &source, &below), "{kind} {}", below.display());
        let mut wrong = Vec::new();
        for _ in 0..10 {
            let all = || ["first", "second"].map(|source| tree(&mounted.path(source)));
            let before = all();
            let (what, done) = random_change(&mounted.target(""), &mut numbers);
            if done.is_err() && all() != before {
                wrong.push(format!("{what}: {before:#?} {:#?}", all()));
            }
        }
        let is_allowed = allow(kind, &source, &below) || below.symlink_metadata().is_err();
        assert!(is_allowed && wrong.is_empty(), "case {case}: {kind} {below:?} {wrong:?}");
        for source in SOURCES {
            for entry in fs::read_dir(mounted.path(source)).unwrap().flatten() {
                let path = entry.path();
                let is_folder = entry.file_type().unwrap().is_dir();
                if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
            }
        }
    }
}

#[test]
fn a_folder_that_is_empty_in_one_source_only_is_not_removed_there() {
    let Some(mounted) = merged(|mounted| {
        SOURCES.iter().for_each(|source| {
            fs::create_dir(mounted.path(source).join("folder")).unwrap();
        });
        fs::write(mounted.path("first/folder/name"), "").unwrap();
    }) else {
        return;
    };
    assert_eq!(fs::remove_dir(mounted.target("folder")).unwrap_err().raw_os_error(), Some(39));
    assert!(mounted.path("second/folder").is_dir());
}

/// A file in the first source and a folder in the second, or the other way round.
#[test]
fn a_removal_uncovers_nothing_of_another_type() {
    let Some(mounted) = merged(|mounted| {
        for (source, other) in [("first", "second"), ("second", "first")] {
            fs::create_dir(mounted.path(source).join(format!("folder in {source}"))).unwrap();
            fs::write(mounted.path(other).join(format!("folder in {source}")), "").unwrap();
        }
        fs::write(mounted.path("first/full"), "").unwrap();
        fs::create_dir(mounted.path("second/full")).unwrap();
        fs::write(mounted.path("second/full/name"), "").unwrap();
    }) else {
        return;
    };
    fs::remove_dir(mounted.target("folder in first")).unwrap();
    fs::remove_file(mounted.target("folder in second")).unwrap();
    assert_eq!(fs::remove_file(mounted.target("full")).unwrap_err().raw_os_error(), Some(39));
    let names = fs::read_dir(mounted.target("")).unwrap().flatten();
    assert_eq!(names.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["full"]);
}

/// The mount makes the changes itself, so it reads events every 5 ms.
#[test]
fn a_name_that_was_renamed_behind_is_listed_by_its_old_or_its_new_name() {
    let Some(mounted) = merged(|mounted| {
        SOURCES.iter().for_each(|source| {
            fs::create_dir(mounted.path(source).join("old")).unwrap();
        });
        fs::create_dir(mounted.path("first/beside")).unwrap();
    }) else {
        return;
    };
    let mut names = ["old", "new"];
    for case in 0..100 {
        fs::write(mounted.target("beside/own"), "").unwrap();
        fs::remove_file(mounted.target("beside/own")).unwrap();
        for source in SOURCES {
            let at = |name| mounted.path(source).join(name);
            fs::rename(at(names[0]), at(names[1])).unwrap();
        }
        let listed = fs::read_dir(mounted.target("")).unwrap().flatten();
        let listed: Vec<_> = listed.map(|entry| entry.file_name()).collect();
        assert!(names.iter().any(|name| listed.contains(&(*name).into())), "{case}: {listed:?}");
        names.reverse();
    }
}

#[test]
fn a_file_that_can_only_be_appended_to_is_appended_to() {
    for io in ["on", "off"] {
        let Some(mounted) = Mounted::new(&["--passthrough", io]) else { return };
        fs::write(mounted.source("log"), "1\n").unwrap();
        if !command("chattr", &[Path::new("+a"), &mounted.source("log")]) {
            thruway_testing::skipped("this file system has no such attribute");
            return;
        }
        let appended = File::options().append(true).open(mounted.target("log")).and_then(|file| {
            std::io::Write::write_all(&mut &file, b"2\n")?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 100)?)
        });
        let written = File::options().write(true).open(mounted.target("log")).map(drop);
        assert!(command("chattr", &[Path::new("-a"), &mounted.source("log")]));
        appended.unwrap();
        assert_eq!(written.unwrap_err().raw_os_error(), Some(1), "{io}");
        assert_eq!(fs::read_to_string(mounted.source("log")).unwrap(), "1\n2\n");
    }
}

#[test]
fn a_read_that_shall_leave_the_access_time_leaves_it() {
    for io in ["on", "off"] {
        let Some(mounted) = Mounted::new(&["--passthrough", io]) else { return };
        fs::write(mounted.source("file"), "text").unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
        File::open(mounted.source("file")).unwrap().set_times(times).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOATIME;
        let target = mounted.target("file");
        let file = rustix::fs::open(target, flags, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(rustix::io::read(&file, &mut [0; 9][..]).unwrap(), 4);
        assert_eq!(fs::metadata(mounted.source("file")).unwrap().atime(), 1_000_000_000, "{io}");
    }
}
