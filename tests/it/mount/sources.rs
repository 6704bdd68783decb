//! The sources of a mount: the changes permitted in each, and changes of the list while the mount is in use.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use super::fixture::{Mounted, kill, status_of, wait_until};
use super::submounts::Disks;
use crate::{stderr, stdout, thruway};

const SOURCES: &[&str] = &["first", "second"];

/// A mount whose sources have options; `{}` stands for the folder of the test.
fn with_options(arguments: &[&str], sources: &[&str], fill: impl FnOnce(&Path)) -> Option<Custom> {
    let plain = Mounted::new(&[])?;
    drop(plain);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("target")).unwrap();
    fill(folder.path());
    let mut command = thruway();
    command.arg("mount").arg("--log").arg(path("log")).args(arguments);
    command.args(sources.iter().map(|source| path(source))).arg(path("target"));
    let output = command.output().unwrap();
    Some(Custom { folder, output })
}

struct Custom {
    folder: tempfile::TempDir,
    output: Output,
}

impl Custom {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn assert_mounted(self) -> Self {
        assert!(self.output.status.success(), "{}", stderr(&self.output));
        self
    }

    fn change(&self, verb: &str, sources: &[&str]) -> Output {
        let mut command = thruway();
        command.args(["mount", verb]).arg(self.path("target"));
        command.args(sources.iter().map(|source| self.path(source))).output().unwrap()
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path("target").join(name)).unwrap_or_else(|error| error.to_string())
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_slice(&status_of(&self.path("target"), &["--json"]).stdout).unwrap()
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        let _ = thruway().args(["unmount", "--lazy"]).arg(self.path("target")).output();
    }
}

/// Creates folders with a file each, whose content is the folder's name.
fn fill(folders: &'static [&'static str]) -> impl FnOnce(&Path) {
    move |root| {
        for name in folders {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::write(root.join(name).join(format!("in_{name}")), name).unwrap();
        }
    }
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Sonarr links a download into a library whose folder is on another disk.
#[test]
fn a_link_and_a_rename_make_the_folder_on_the_disk_of_the_file() {
    let Some(mounted) = Mounted::with_sources(SOURCES, &[], |mounted| {
        fs::create_dir(mounted.path("first/library")).unwrap();
        // Of a group in which the daemon is not.
        std::os::unix::fs::chown(mounted.path("first/library"), None, Some(34)).unwrap();
        fs::set_permissions(mounted.path("first/library"), Permissions::from_mode(0o2775)).unwrap();
        fs::create_dir(mounted.path("second/downloads")).unwrap();
        fs::write(mounted.path("second/downloads/film"), "film").unwrap();
    }) else {
        return;
    };
    fs::create_dir_all(mounted.target("library/a film (1999)")).unwrap();
    let link = mounted.target("library/a film (1999)/film");
    fs::hard_link(mounted.target("downloads/film"), &link).unwrap();
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&link), inode(&mounted.target("downloads/film")));
    assert!(is_there(&mounted.path("second/library/a film (1999)/film")));
    for name in ["second/library", "second/library/a film (1999)"] {
        let made = fs::metadata(mounted.path(name)).unwrap();
        assert_eq!((made.gid(), made.mode() & 0o2000), (34, 0o2000), "{name}");
    }
    assert_eq!(fs::read_dir(mounted.target("library/a film (1999)")).unwrap().count(), 1);
    fs::rename(mounted.target("downloads/film"), mounted.target("library/moved")).unwrap();
    assert!(is_there(&mounted.path("second/library/moved")));
    assert_eq!(fs::read_to_string(mounted.target("library/moved")).unwrap(), "film");
    // A file in the way of the folder: as between file systems.
    fs::write(mounted.path("second/blocked"), "").unwrap();
    fs::create_dir(mounted.path("first/blocked")).unwrap();
    let blocked = fs::rename(mounted.target("library/moved"), mounted.target("blocked/moved"));
    assert!(matches!(errno(blocked), Some(18 | 20)));
}

#[test]
fn a_read_only_source_refuses_changes_and_a_closed_one_new_files() {
    let sources = ["archive=RO", "old=NC", "new"];
    let Some(mounted) = with_options(&["--create", "first"], &sources, |root| {
        fill(&["archive", "old", "new"])(root);
        for name in ["archive", "old", "new"] {
            fs::create_dir(root.join(name).join("folder")).unwrap();
        }
    }) else {
        return;
    };
    let mounted = mounted.assert_mounted();
    let target = |name: &str| mounted.path("target").join(name);
    assert_eq!(mounted.text("in_archive"), "archive");
    let mode = Permissions::from_mode(0o600);
    for (what, result) in [
        ("open", File::options().write(true).open(target("in_archive")).map(drop)),
        ("truncate", File::create(target("in_archive")).map(drop)),
        ("chmod", fs::set_permissions(target("in_archive"), mode.clone())),
        ("unlink", fs::remove_file(target("in_archive"))),
        ("rename", fs::rename(target("in_archive"), target("x"))),
        ("link", fs::hard_link(target("in_archive"), target("x"))),
        ("rmdir", fs::remove_dir(target("folder"))),
    ] {
        assert_eq!(errno(result), Some(30), "{what}");
    }
    fs::write(target("made"), "made").unwrap();
    fs::create_dir(target("folder/made")).unwrap();
    assert!(is_there(&mounted.path("new/made")) && is_there(&mounted.path("new/folder/made")));
    fs::write(target("in_old"), "changed").unwrap();
    assert_eq!(fs::read_to_string(mounted.path("old/in_old")).unwrap(), "changed");
    fs::rename(target("in_old"), target("folder/in_old")).unwrap();
    assert!(is_there(&mounted.path("old/folder/in_old")));
    // The disk of the file takes no new folders either.
    assert_eq!(errno(fs::rename(target("folder/in_old"), target("folder/made/x"))), Some(18));
    fs::remove_file(target("folder/in_old")).unwrap();
    assert_eq!(mounted.status()["sources"].as_array().unwrap().len(), 3);
}

#[test]
fn a_full_source_is_skipped_and_so_is_one_short_of_its_minimal_space() {
    let mut disks = Disks::default();
    let folder = tempfile::tempdir().unwrap();
    for name in ["small", "large"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    if !disks.mount_of(1 << 20, &folder.path().join("small"))
        || !disks.mount_of(8 << 20, &folder.path().join("large"))
    {
        return;
    }
    for (options, least, expected) in [
        ("", "0", "small"),
        ("=RW,2M", "0", "large"),
        ("", "2M", "large"),
        ("=RW,4K", "2M", "small"),
        ("=RW,1T", "0", "large"),
    ] {
        let target = tempfile::tempdir().unwrap();
        let small = format!("{}{options}", folder.path().join("small").display());
        let mut command = thruway();
        command.args(["mount", "--create", "first", "--free-min", least, &small]);
        let output = command.arg(folder.path().join("large")).arg(target.path()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        fs::write(target.path().join("file"), "x").unwrap();
        assert!(is_there(&folder.path().join(expected).join("file")), "{options} {least}");
        fs::remove_file(target.path().join("file")).unwrap();
        if options.is_empty() && least == "0" {
            fs::write(folder.path().join("small/filler"), vec![1; 2 << 20]).unwrap_err();
            // On a disk of blocks, folders need space too. This disk refuses the next page.
            let most =
                (0..400).filter(|n| fs::write(target.path().join(format!("{n}")), [1]).is_ok());
            assert_eq!(most.count(), 400);
            assert!(fs::read_dir(folder.path().join("large")).unwrap().count() > 0);
            for name in 0..400 {
                fs::remove_file(target.path().join(format!("{name}"))).unwrap();
            }
            fs::remove_file(folder.path().join("small/filler")).unwrap();
        }
        assert!(thruway().arg("unmount").arg(target.path()).status().unwrap().success());
    }
}

#[test]
fn sources_come_and_go_while_the_mount_is_in_use() {
    let Some(mounted) = with_options(&[], &["one", "two"], fill(&["one", "two", "three"])) else {
        return;
    };
    let mounted = mounted.assert_mounted();
    fs::write(mounted.path("one/both"), "one").unwrap();
    fs::write(mounted.path("three/both"), "three").unwrap();
    assert_eq!((mounted.text("both").as_str(), mounted.text("in_two").as_str()), ("one", "two"));
    let open = File::open(mounted.path("target/in_two")).unwrap();
    let added = mounted.change("add", &["three"]);
    assert!(added.status.success(), "{}", stderr(&added));
    assert_eq!(stdout(&added).lines().count(), 3);
    assert_eq!(
        (mounted.text("in_three").as_str(), mounted.text("both").as_str()),
        ("three", "one")
    );
    // A removed source that is added again comes first.
    assert!(mounted.change("remove", &["three", "two"]).status.success());
    assert!(!is_there(&mounted.path("target/in_two")));
    assert_eq!(std::io::read_to_string(&open).unwrap(), "two");
    let mut command = thruway();
    command.args(["mount", "add", "--first"]).arg(mounted.path("target"));
    assert!(command.arg(mounted.path("three")).status().unwrap().success());
    assert_eq!(mounted.text("both"), "three");
    // The next worker knows them.
    let workers = workers_of(&mounted);
    workers.into_iter().for_each(kill);
    wait_until("the next worker", || mounted.text("both") == "three");
    assert!(mounted.change("add", &["two"]).status.success());
    assert_eq!(mounted.text("in_two"), "two");
    for (verb, source, words) in [
        ("add", "missing", "No such file"),
        ("add", "target/x", "contains the other"),
        ("remove", "missing", "is not a source"),
    ] {
        let output = mounted.change(verb, &[source]);
        assert!(stderr(&output).contains(words) && !output.status.success(), "{}", stderr(&output));
    }
    let last = mounted.change("remove", &["one", "two", "three"]);
    assert!(stderr(&last).contains("no source would be left"), "{}", stderr(&last));
    assert_eq!(mounted.text("in_two"), "two");
}

/// A new list of sources drops what is known of all folders, and so do reports of changes that are late.
#[test]
fn a_listing_goes_on_where_it_was_when_a_source_comes() {
    const NAMES: usize = 3000;
    let filled = |folder: &Path| {
        fill(&["one", "two", "three"])(folder);
        for number in 0..NAMES {
            let source = if number % 2 == 0 { "one" } else { "two" };
            fs::write(folder.join(source).join(format!("name {number}")), "").unwrap();
        }
    };
    let Some(mounted) = with_options(&[], &["one", "two"], filled) else { return };
    let mounted = mounted.assert_mounted();
    let target = mounted.path("target");
    let mut listing = fs::read_dir(&target).unwrap();
    let mut names: Vec<_> = listing.by_ref().take(100).flatten().map(|it| it.file_name()).collect();
    // The source lists new names among the old ones.
    (0..NAMES / 2).for_each(|number| fs::write(target.join(format!("new {number}")), "").unwrap());
    assert!(mounted.change("add", &["three"]).status.success());
    assert_eq!(mounted.text("in_three"), "three");
    names.extend(listing.flatten().map(|entry| entry.file_name()));
    let is_old = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("name ");
    names.retain(is_old);
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!((names.len(), all), (NAMES, NAMES));
}

/// Returns the child processes of the process that the status names.
fn workers_of(mounted: &Custom) -> Vec<u32> {
    let supervisor = mounted.status()["process"].as_u64().unwrap();
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
    children.unwrap().split_whitespace().map(|child| child.parse().unwrap()).collect()
}

#[test]
fn patterns_and_a_file_of_sources_are_evaluated_again() {
    let Some(mounted) = with_options(&[], &["disk*"], fill(&["disk1", "disk2"])) else { return };
    let mounted = mounted.assert_mounted();
    assert_eq!(mounted.text("in_disk2"), "disk2");
    fill(&["disk3", "other"])(mounted.folder.path());
    let reloaded = mounted.change("reload", &[]);
    assert!(reloaded.status.success(), "{}", stderr(&reloaded));
    assert_eq!((stdout(&reloaded).lines().count(), mounted.text("in_disk3")), (3, "disk3".into()));
    assert!(mounted.change("remove", &["disk1"]).status.success());
    assert!(!is_there(&mounted.path("target/in_disk1")));
    // The list is read from a file, and again on a signal.
    let list = mounted.path("list");
    fs::write(&list, format!("# disks\n{}\n", mounted.path("disk1").display())).unwrap();
    let target = tempfile::tempdir().unwrap();
    let mut command = thruway();
    command.args(["mount", "--sources"]).arg(&list).arg("--").arg(target.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(is_there(&target.path().join("in_disk1")));
    fs::write(&list, format!("{}=RO\n", mounted.path("other").display())).unwrap();
    let status = status_of(target.path(), &["--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let process = status["process"].as_u64().unwrap().to_string();
    assert!(Command::new("kill").args(["-HUP", &process]).status().unwrap().success());
    wait_until("the file of sources", || is_there(&target.path().join("in_other")));
    // The names of former sources are invalidated afterwards.
    wait_until("no former source", || !is_there(&target.path().join("in_disk1")));
    assert_eq!(errno(fs::remove_file(target.path().join("in_other"))), Some(30));
    assert!(thruway().arg("unmount").arg(target.path()).status().unwrap().success());
}

#[test]
fn a_missing_source_fails_is_waited_for_or_is_skipped() {
    let sources = ["there", "missing"];
    let Some(mounted) = with_options(&[], &sources, fill(&["there"])) else { return };
    assert!(!mounted.output.status.success());
    assert!(
        stderr(&mounted.output).contains("hint: --missing wait"),
        "{}",
        stderr(&mounted.output)
    );
    let Some(mounted) = with_options(
        &["--missing", "wait", "--missing-timeout", "0.1"],
        &sources,
        fill(&["there"]),
    ) else {
        return;
    };
    assert!(!mounted.output.status.success());
    let Some(mounted) = with_options(&["--missing", "skip"], &sources, fill(&["there"])) else {
        return;
    };
    let mounted = mounted.assert_mounted();
    assert_eq!(mounted.text("in_there"), "there");
    assert_eq!(mounted.status()["failed_sources"].as_object().unwrap().len(), 1);
    fill(&["missing"])(mounted.folder.path());
    wait_until("the source that appears", || mounted.text("in_missing") == "missing");
    assert_eq!(mounted.status()["failed_sources"].as_object().unwrap().len(), 0);
}

#[test]
fn nothing_is_written_below_the_mount_point_of_an_absent_disk() {
    let mut disks = Disks::default();
    let folders: &[&str] = &["there", "disk"];
    for required in [
        &["--require-marker", ".disk"][..],
        &["--require-marker", ".disk", "--require-mount-point"],
    ] {
        let arguments: Vec<_> =
            required.iter().chain(&["--missing", "skip", "--create", "first"]).copied().collect();
        let mut is_possible = true;
        let Some(mounted) = with_options(&arguments, &["disk", "there"], |root| {
            for name in folders {
                fs::create_dir(root.join(name)).unwrap();
            }
            fs::write(root.join("there/.disk"), "").unwrap();
            is_possible = disks.mount(&root.join("there"), ".disk");
        }) else {
            return;
        };
        if !is_possible {
            return;
        }
        let mounted = mounted.assert_mounted();
        fs::write(mounted.path("target/file"), "").unwrap();
        assert!(is_there(&mounted.path("there/file")) && !is_there(&mounted.path("disk/file")));
        assert_eq!(mounted.status()["failed_sources"].as_object().unwrap().len(), 1);
        assert!(disks.mount(&mounted.path("disk"), ".disk"));
        wait_until("the disk", || {
            mounted.status()["failed_sources"].as_object().unwrap().is_empty()
        });
        fs::write(mounted.path("target/other"), "").unwrap();
        assert!(is_there(&mounted.path("disk/other")));
        disks.unmount(&mounted.path("disk"));
        // While the disk is released, its names fail with another error.
        wait_until("no disk", || {
            let asked = fs::symlink_metadata(mounted.path("target/other"));
            asked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        });
        fs::write(mounted.path("target/other"), "").unwrap();
        assert!(is_there(&mounted.path("there/other")) && !is_there(&mounted.path("disk/other")));
        assert!(thruway().arg("unmount").arg(mounted.path("target")).status().unwrap().success());
        disks.unmount(&mounted.path("there"));
    }
}

/// A new file is kept open for some seconds, through the mount of its source's root.
#[test]
fn a_new_file_in_the_root_gets_a_link_in_a_folder_at_once() {
    let Some(mounted) = with_options(&[], SOURCES, |root| {
        fs::create_dir_all(root.join("first/folder")).unwrap();
        fs::create_dir(root.join("second")).unwrap();
    }) else {
        return;
    };
    let mounted = mounted.assert_mounted();
    for number in 0..3 {
        let file = mounted.path("target").join(format!("file {number}"));
        let link = mounted.path("target/folder").join(format!("link {number}"));
        fs::write(&file, "text").unwrap();
        fs::hard_link(&file, &link).unwrap();
        assert_eq!(fs::metadata(&link).unwrap().nlink(), 2);
    }
}
