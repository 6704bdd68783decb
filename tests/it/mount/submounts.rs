//! File systems that are mounted and unmounted at the sources and below them, like disks that come and go.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use thruway_testing::skipped;

use super::differential::Numbers;
use super::fixture::{Mounted, kill, status_of, wait_until};
use super::freshness::{
    NameState, change, leads_through_a_link, look, look_merged, number, random_name,
};
use crate::{stderr, stdout, thruway};

const SOURCES: &[&str] = &["first", "second"];

/// File systems in memory, which are unmounted when the value is dropped.
#[derive(Default)]
pub(super) struct Disks(Vec<PathBuf>);

impl Disks {
    /// Mounts a disk with a file of this name, or reports why this machine cannot.
    pub(super) fn mount(&mut self, at: &Path, name: &str) -> bool {
        let aside = tempfile::tempdir().unwrap();
        if !call("mount", &[Path::new("-t"), Path::new("tmpfs"), Path::new("none"), aside.path()]) {
            skipped("mounting needs CAP_SYS_ADMIN");
            return false;
        }
        // The disk already contains its file when it appears, like a real disk.
        fs::write(aside.path().join(name), name).unwrap();
        assert!(call("mount", &[Path::new("--bind"), aside.path(), at]));
        assert!(call("umount", &[aside.path()]));
        self.0.push(at.to_owned());
        true
    }

    /// Mounts an empty disk of so many bytes.
    pub(super) fn mount_of(&mut self, bytes: u64, at: &Path) -> bool {
        let size = format!("size={bytes}");
        let arguments = ["-t", "tmpfs", "-o", &size, "none"].map(Path::new);
        self.0.push(at.to_owned());
        let is_done = call("mount", &[&arguments[..], &[at]].concat());
        if !is_done {
            skipped("mounting needs CAP_SYS_ADMIN");
        }
        is_done
    }

    /// Mounts the file system in a file.
    pub(super) fn mount_file(&mut self, file: &Path, at: &Path) -> bool {
        self.0.push(at.to_owned());
        call("mount", &[Path::new("-o"), Path::new("loop"), file, at])
    }

    pub(super) fn bind(&mut self, what: &Path, at: &Path) -> bool {
        self.0.push(at.to_owned());
        call("mount", &[Path::new("--bind"), what, at])
    }

    pub(super) fn unmount(&mut self, at: &Path) {
        // The daemon may be serving a request there, or may not have noticed that a mount upon this one is gone.
        wait_until(&format!("{} is not busy", at.display()), || call("umount", &[at]));
        let last = self.0.iter().rposition(|disk| disk == at).unwrap();
        self.0.remove(last);
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for disk in self.0.iter().rev() {
            call("umount", &[Path::new("-l"), disk]);
        }
    }
}

fn call(program: &str, arguments: &[&Path]) -> bool {
    Command::new(program).args(arguments).output().unwrap().status.success()
}

fn names(folder: &Path) -> Vec<String> {
    // A listing that is in progress when its file system disappears ends with an error.
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let Ok(entries) = entries else { return vec!["(error)".into()] };
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = entries.iter().map(name).collect();
    names.sort();
    names
}

/// Waits until these names are shown, and looks each up.
fn shows(folder: &Path, expected: &[&str]) {
    wait_until(&format!("{} has {expected:?}", folder.display()), || names(folder) == expected);
    assert!(expected.iter().all(|name| folder.join(name).symlink_metadata().is_ok()));
}

#[test]
fn a_disk_that_comes_below_a_source_is_written_to_and_one_that_goes_is_not_missed() {
    for sources in [&["first"][..], SOURCES] {
        let mut disks = Disks::default();
        let last = sources[sources.len() - 1];
        let fill = |mounted: &Mounted| {
            fs::create_dir_all(mounted.path(last).join("media/sub")).unwrap();
            fs::write(mounted.path(last).join("media/below"), "").unwrap();
        };
        let Some(mounted) = Mounted::with_sources(sources, &[], fill) else { return };
        let (disk, media) = (mounted.path(last).join("media"), mounted.target("media"));
        for _ in 0..2 {
            shows(&media, &["below", "sub"]);
            if !disks.mount(&disk, "disk") {
                return;
            }
            shows(&media, &["disk"]);
            fs::write(media.join("new"), "").unwrap();
            assert!(disk.join("new").symlink_metadata().is_ok());
            fs::create_dir(media.join("inner")).unwrap();
            shows(&media.join("inner"), &[]);
            assert!(disks.mount(&disk.join("inner"), "nested"));
            shows(&media.join("inner"), &["nested"]);
            disks.unmount(&disk.join("inner"));
            shows(&media.join("inner"), &[]);
            disks.unmount(&disk);
        }
        shows(&media, &["below", "sub"]);
    }
}

#[test]
fn a_file_and_a_folder_that_are_mounted_below_a_source_are_shown() {
    let mut disks = Disks::default();
    let Some(mounted) = Mounted::new(&[]) else { return };
    fs::write(mounted.source("file"), "below").unwrap();
    fs::create_dir(mounted.source("folder")).unwrap();
    fs::write(mounted.path("other"), "upper").unwrap();
    fs::create_dir_all(mounted.path("beside/inner")).unwrap();
    let text = || fs::read_to_string(mounted.target("file")).unwrap();
    assert_eq!(text(), "below");
    shows(&mounted.target("folder"), &[]);
    if !disks.bind(&mounted.path("other"), &mounted.source("file")) {
        return skipped("mounting needs CAP_SYS_ADMIN");
    }
    wait_until("the file that was mounted", || text() == "upper");
    assert!(disks.bind(&mounted.path("beside"), &mounted.source("folder")));
    shows(&mounted.target("folder"), &["inner"]);
    disks.unmount(&mounted.source("file"));
    wait_until("the file below", || text() == "below");
    disks.unmount(&mounted.source("folder"));
    shows(&mounted.target("folder"), &[]);
}

#[test]
fn a_file_of_another_file_system_that_is_mounted_on_a_file_is_shown() {
    for sources in [&["first"][..], SOURCES] {
        let mut disks = Disks::default();
        let Some(mounted) = Mounted::with_sources(sources, &[], |_| ()) else { return };
        let file = mounted.source("file");
        fs::write(&file, "below").unwrap();
        fs::create_dir(mounted.path("disk")).unwrap();
        if !disks.mount(&mounted.path("disk"), "upper") {
            return;
        }
        let text = || fs::read_to_string(mounted.target("file")).unwrap_or_default();
        for _ in 0..2 {
            wait_until("the file below", || text() == "below");
            assert!(disks.bind(&mounted.path("disk/upper"), &file));
            wait_until("the file that was mounted", || text() == "upper");
            shows(&mounted.target(""), &["file"]);
            fs::write(mounted.target("file"), "text").unwrap();
            assert_eq!(fs::read_to_string(mounted.path("disk/upper")).unwrap(), "text");
            fs::write(&file, "upper").unwrap();
            disks.unmount(&file);
        }
        wait_until("the file below again", || text() == "below");
    }
}

#[test]
fn a_file_stays_open_while_disks_come_and_go_beside_it() {
    let mut disks = Disks::default();
    let Some(mounted) = Mounted::new(&["--passthrough", "off"]) else { return };
    fs::write(mounted.source("file"), "text").unwrap();
    fs::create_dir(mounted.source("media")).unwrap();
    let open = fs::File::open(mounted.target("file")).unwrap();
    shows(&mounted.target("media"), &[]);
    if !disks.mount(&mounted.source("media"), "disk") {
        return;
    }
    shows(&mounted.target("media"), &["disk"]);
    assert_eq!(std::io::read_to_string(&open).unwrap(), "text");
    assert_eq!(open.metadata().unwrap().len(), 4);
}

#[test]
fn a_disk_that_is_mounted_at_a_source_takes_its_place_until_it_goes() {
    for sources in [&["first"][..], SOURCES] {
        let mut disks = Disks::default();
        let Some(mounted) = Mounted::with_sources(sources, &[], |mounted| {
            fs::write(mounted.path("first/old"), "").unwrap();
        }) else {
            return;
        };
        let first = mounted.path("first");
        shows(&mounted.target(""), &["old"]);
        if !disks.mount(&first, "one") {
            return;
        }
        shows(&mounted.target(""), &["one"]);
        fs::write(mounted.target("new"), "").unwrap();
        assert!(first.join("new").symlink_metadata().is_ok());
        // Another disk is mounted upon the first.
        assert!(disks.mount(&first, "two"));
        shows(&mounted.target(""), &["two"]);
        disks.unmount(&first);
        shows(&mounted.target(""), &["new", "one"]);
        disks.unmount(&first);
        shows(&mounted.target(""), &["old"]);
        fs::write(mounted.target("new"), "").unwrap();
        assert!(first.join("new").symlink_metadata().is_ok());
    }
}

/// Returns the state of a mount in the words of the status, and the exit status.
fn status(mounted: &Mounted) -> (String, Option<i32>) {
    let said = status_of(&mounted.target(""), &[]);
    (stdout(&said).to_owned(), said.status.code())
}

#[test]
fn a_source_that_is_unmounted_is_named_and_nothing_is_made_below_it() {
    for (how, is_killed) in [("", false), ("-l", false), ("", true)] {
        let mut disks = Disks::default();
        let mut can = true;
        let mounted = Mounted::with_sources(SOURCES, &["--create", "first"], |mounted| {
            can = disks.mount(&mounted.path("first"), "disk");
            if can {
                fs::create_dir(mounted.path("first/folder")).unwrap();
            }
            fs::write(mounted.path("second/stays"), "").unwrap();
        });
        let Some(mounted) = mounted.filter(|_| can) else { return };
        let first = mounted.path("first");
        shows(&mounted.target(""), &["disk", "folder", "stays"]);
        fs::read(mounted.target("disk")).unwrap();
        match how {
            "" => disks.unmount(&first),
            how => assert!(call("umount", &[Path::new(how), &first])),
        }
        shows(&mounted.target(""), &["stays"]);
        if is_killed {
            let supervisor = mounted.status_of_any("process").as_u64().unwrap();
            let children = format!("/proc/{supervisor}/task/{supervisor}/children");
            let worker = fs::read_to_string(children).unwrap().trim().parse().unwrap();
            kill(worker);
            wait_until("another worker", || mounted.restarts() == Some(1));
        }
        fs::write(mounted.target("new"), "").unwrap();
        assert!(names(&first).is_empty(), "{:?}", names(&first));
        assert!(mounted.path("second/new").symlink_metadata().is_ok());
        let (said, code) = status(&mounted);
        assert!(said.contains("its file system is not mounted"), "{said}");
        assert_eq!(code, Some(1));
        assert!(disks.mount(&first, "back"));
        shows(&mounted.target(""), &["back", "new", "stays"]);
        assert_eq!(status(&mounted).1, Some(0));
    }
}

#[test]
fn a_mount_whose_only_source_is_unmounted_fails_until_the_source_is_back() {
    let mut disks = Disks::default();
    let mut can = true;
    let mounted = Mounted::with_sources(&["first"], &[], |mounted| {
        can = disks.mount(&mounted.path("first"), "disk");
    });
    let Some(mounted) = mounted.filter(|_| can) else { return };
    shows(&mounted.target(""), &["disk"]);
    disks.unmount(&mounted.path("first"));
    let error = || fs::write(mounted.target("new"), "").err().and_then(|it| it.raw_os_error());
    wait_until("no such device", || error() == Some(19));
    assert!(names(&mounted.path("first")).is_empty());
    assert!(disks.mount(&mounted.path("first"), "back"));
    shows(&mounted.target(""), &["back"]);
}

/// A mount of these disks, each of which is also mounted aside, so that it can go and come. Below each is the folder
/// `downloads`.
pub(super) fn disks_aside(
    sources: &'static [&'static str],
    arguments: &[&str],
) -> Option<(Mounted, Disks)> {
    let mut disks = Disks::default();
    let mut is_possible = true;
    let all = [&["--missing", "skip", "--require-mount-point"], arguments].concat();
    let mounted = Mounted::with_sources(sources, &all, |mounted| {
        for source in sources {
            let aside = mounted.path(&format!("{source} aside"));
            fs::create_dir(&aside).unwrap();
            is_possible &= disks.mount_of(1 << 20, &aside);
            is_possible &= disks.bind(&aside, &mounted.path(source));
            fs::create_dir_all(aside.join("downloads")).unwrap();
        }
    })?;
    is_possible.then_some((mounted, disks))
}

/// Unmounts the disk, or mounts it again, and waits until only the mark of a disk that is present is shown.
pub(super) fn go_or_come(mounted: &Mounted, disks: &mut Disks, disk: &str, comes: bool) {
    let aside = mounted.path(&format!("{disk} aside"));
    match comes {
        true => assert!(disks.bind(&aside, &mounted.path(disk))),
        false => disks.unmount(&mounted.path(disk)),
    }
    let count = usize::from(!comes);
    // A daemon that gets no processor for seconds does not reply in time.
    wait_until("the disk is known", || {
        let failed = mounted.status_of_any("failed_sources");
        failed.as_object().is_some_and(|failed| failed.len() == count)
    });
    // The folder is looked up again, and is complete.
    let mark = format!("{disk} is there");
    wait_until("the mark", || mounted.target(&mark).symlink_metadata().is_ok() == comes);
}

#[test]
fn an_open_file_moves_from_a_full_disk_whichever_disks_went_and_came() {
    let sources = &["first", "second", "third"];
    let Some((mounted, mut disks)) = disks_aside(sources, &["--on-full", "move"]) else { return };
    fs::write(mounted.path("first/first is there"), "").unwrap();
    fs::write(mounted.path("second/downloads/file"), "").unwrap();
    let name = mounted.target("downloads/file");
    let open = fs::File::options().write(true).open(&name).unwrap();
    go_or_come(&mounted, &mut disks, "first", false);
    // The name is found below the folder of other disks, which is not the one that is shown afterwards.
    assert_eq!(name.metadata().unwrap().len(), 0);
    go_or_come(&mounted, &mut disks, "first", true);
    assert!(mounted.target("downloads").metadata().unwrap().is_dir());
    fs::write(mounted.path("second/filling"), vec![0; 900_000]).unwrap();
    open.write_all_at(&[7; 300_000], 0).unwrap();
    assert!(mounted.path("second/downloads/file").symlink_metadata().is_err());
    drop(open);
    assert!(fs::read(&name).unwrap().iter().all(|&byte| byte == 7));
}

/// A folder was made anew while the disk that has it was away, and programs use both when the disk is back. The first
/// program that does something then renames a folder in it.
#[test]
fn a_folder_that_was_made_anew_becomes_one_with_that_of_a_disk_that_comes_back() {
    for (away, other) in [("first", "second"), ("second", "first")] {
        let Some((mounted, mut disks)) = disks_aside(SOURCES, &[]) else { return };
        fs::write(mounted.path(away).join(format!("{away} is there")), "").unwrap();
        let folder = |name: &str| mounted.target(&format!("downloads/{name}"));
        let use_folder = |name: &str| {
            fs::create_dir_all(folder(name)).unwrap();
            fs::File::open(folder(name)).unwrap()
        };
        fs::create_dir(mounted.path(away).join("downloads/show")).unwrap();
        let before = ["show", "show/old", "show/both"].map(use_folder);
        go_or_come(&mounted, &mut disks, away, false);
        let anew = ["show", "show/new", "show/both", "show/both/below"].map(use_folder);
        go_or_come(&mounted, &mut disks, away, true);
        for name in ["new", "old", "both"] {
            let renamed = fs::rename(folder(&format!("show/{name}")), folder(name));
            assert!(renamed.is_ok(), "{away}: {name}: {renamed:?}");
        }
        for (name, at) in [("new", other), ("old", away), ("both", away), ("both/below", other)] {
            let there = mounted.path(at).join("downloads").join(name);
            assert!(there.symlink_metadata().is_ok(), "{name} on {at}");
        }
        // The folder that was made anew is still that of the programs that use it.
        for (open, name) in anew.iter().zip(["show", "new", "both", "both/below"]) {
            let path = fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).unwrap();
            assert_eq!(path, folder(name), "{away}");
        }
        // Whoever uses one of them sees changes in it, whichever disk has them.
        for (number, open) in before.iter().chain(&anew).enumerate() {
            let name = format!("file {number}");
            let look = || rustix::fs::statat(open, &name, rustix::fs::AtFlags::empty()).is_ok();
            assert!(!look());
            let shown = ["show", "old", "both", "show", "new", "both", "both/below"][number];
            fs::write(folder(shown).join(&name), "").unwrap();
            wait_until(&format!("{away}: {name} in {shown}"), look);
        }
    }
}

/// Random cases in CI.
const CASES: u64 = 150;

/// Random changes behind the mount, and disks that come and go at the sources and below them. The mount always shows
/// the state of the sources.
#[test]
fn what_is_shown_while_disks_come_and_go_is_what_the_sources_have() {
    for sources in [&["first"][..], SOURCES] {
        let mut disks = Disks::default();
        let Some(mounted) = Mounted::with_sources(sources, &[], |mounted| {
            for source in sources {
                fs::create_dir_all(mounted.path(source).join("a/c")).unwrap();
                fs::create_dir_all(mounted.path(source).join("b/c")).unwrap();
            }
        }) else {
            return;
        };
        let below: Vec<_> = sources.iter().map(|source| mounted.path(source)).collect();
        let mut numbers = Numbers(number("THRUWAY_SEED", 7).max(1));
        let mut history = std::collections::VecDeque::new();
        for case in 0..number("THRUWAY_CASES", CASES) {
            let source = numbers.of(&(0..below.len()).collect::<Vec<_>>());
            let place = below[source].join(numbers.of(&["", "a", "b", "a/c", "b/c"]));
            let is_disk = numbers.below(4) == 0;
            history.push_back(match (is_disk, disks.0.last().cloned()) {
                (true, Some(last)) if numbers.below(2) == 0 => {
                    disks.unmount(&last);
                    format!("unmount {}", last.display())
                }
                (true, _) if fs::symlink_metadata(&place).is_ok_and(|stat| stat.is_dir()) => {
                    if !disks.mount(&place, "x") {
                        return;
                    }
                    format!("mount {}", place.display())
                }
                _ => change(&below[source], &mut numbers),
            });
            if history.len() > 8 {
                history.pop_front();
            }
            for _ in 0..4 {
                let name = random_name(&mut numbers);
                let inside = numbers.below(3) == 0;
                if below.len() > 1 && leads_through_a_link(&below, &name) {
                    continue;
                }
                let is_right = || {
                    let through = std::panic::catch_unwind(|| look(&mounted.target(&name), inside));
                    through.is_ok_and(|seen| {
                        without_numbers(seen) == without_numbers(look_merged(&below, &name, inside))
                    })
                };
                wait_until(&format!("{name} after case {case}: {history:#?}"), is_right);
            }
        }
    }
}

/// The number of a file on a later file system differs in the mount, as the whole mount is one device.
fn without_numbers(seen: NameState) -> NameState {
    match seen {
        NameState::File { mode, links, size, changed, what, .. } => {
            NameState::File { number: 0, mode, links, size, changed, what }
        }
        other => other,
    }
}

#[test]
fn a_source_that_is_given_again_is_left_out() {
    let mut disks = Disks::default();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["source", "bound", "target"] {
        fs::create_dir(path(name)).unwrap();
    }
    std::os::unix::fs::symlink("source", path("link")).unwrap();
    let is_bound = disks.bind(&path("source"), &path("bound"));
    let mut mount = thruway();
    mount.arg("mount").args(["source", "link", "source"].map(path));
    mount.args(is_bound.then(|| path("bound"))).arg(path("target"));
    let mounted = mount.output().unwrap();
    if !mounted.status.success() {
        return skipped(stderr(&mounted).trim());
    }
    let changed = (|| {
        fs::create_dir(path("target/folder"))?;
        fs::write(path("target/file"), "")?;
        fs::rename(path("target/file"), path("target/moved"))?;
        fs::remove_file(path("target/moved"))?;
        fs::remove_dir(path("target/folder"))
    })();
    assert!(thruway().arg("unmount").arg(path("target")).status().unwrap().success());
    changed.unwrap();
    assert!(names(&path("source")).is_empty());
}
