//! Folders of several sources that get another part, or lose one.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, XattrFlags};

use super::fixture::{Mounted, wait_until};
use super::submounts::{Disks, disks_aside, go_or_come};
use super::upper_crash::kill_before;

const SOURCES: &[&str] = &["first", "second"];

/// The kernel keeps names until it is notified: no test waits for a timeout.
const KEPT: [&str; 4] = ["--entry-timeout", "3600", "--attribute-timeout", "3600"];

/// A mount of a small disk and a large one, which gets all new files. The small one has the folders `0` to `7`.
fn on_a_larger_disk() -> Option<(Mounted, Disks)> {
    let (mut disks, mut is_possible) = (Disks::default(), true);
    let arguments = [&["--create", "most-free"], &KEPT[..]].concat();
    let mounted = Mounted::with_sources(SOURCES, &arguments, |mounted| {
        is_possible &= disks.mount_of(1 << 20, &mounted.path("first"));
        is_possible &= disks.mount_of(8 << 20, &mounted.path("second"));
        for folder in 0..8 {
            fs::create_dir(mounted.path(&format!("first/{folder}"))).unwrap();
        }
        fs::write(mounted.path("first/7/name"), "").unwrap();
        ["to link", "to rename"].iter().for_each(|name| {
            fs::write(mounted.path("second").join(name), "").unwrap();
        });
    })?;
    is_possible.then_some((mounted, disks))
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// A way to make a name, and the way's own name.
type Maker<'a> = (&'a str, &'a dyn Fn(&Path));

/// The folder is made on the disk of the new name by the same request, and is watched before the name is there.
#[test]
fn a_new_name_in_a_folder_that_its_disk_lacked_goes_with_its_file() {
    let Some((mounted, _disks)) = on_a_larger_disk() else { return };
    let (rw, none) = (Mode::RUSR | Mode::WUSR, XattrFlags::empty());
    let second = mounted.path("second").into_os_string().into_encoded_bytes();
    let makers: [Maker<'_>; 8] = [
        ("create", &|name| drop(File::create(name).unwrap())),
        ("mkdir", &|name| fs::create_dir(name).unwrap()),
        ("mknod", &|name| rustix::fs::mknodat(CWD, name, FileType::Fifo, rw, 0).unwrap()),
        ("symlink", &|name| symlink("to", name).unwrap()),
        ("link", &|name| fs::hard_link(mounted.target("to link"), name).unwrap()),
        ("rename", &|name| fs::rename(mounted.target("to rename"), name).unwrap()),
        ("tmpfile", &|name| {
            let made = rustix::fs::open(name.parent().unwrap(), OFlags::TMPFILE | OFlags::RDWR, rw);
            let made = File::from(made.unwrap());
            rustix::fs::linkat(CWD, in_proc(&made), CWD, name, AtFlags::SYMLINK_FOLLOW).unwrap();
        }),
        ("move", &|name| {
            assert!(is_there(name));
            rustix::fs::setxattr(name, "user.thruway.source", &second, none).unwrap();
        }),
    ];
    for (folder, (how, make)) in makers.iter().enumerate() {
        let (name, behind) = (format!("{folder}/name"), format!("second/{folder}/name"));
        make(&mounted.target(&name));
        let behind = mounted.path(&behind);
        match fs::symlink_metadata(&behind).expect(how).is_dir() {
            true => fs::remove_dir(&behind).unwrap(),
            false => fs::remove_file(&behind).unwrap(),
        }
        wait_until(&format!("the name of {how} is gone"), || !is_there(&mounted.target(&name)));
    }
}

/// Creates the marks by which it is seen that a disk is present, the folders of downloads, and a torrent on the second
/// disk.
fn fill_with_downloads(mounted: &Mounted) {
    for source in SOURCES {
        fs::write(mounted.path(&format!("{source}/{source} is there")), "").unwrap();
        for folder in ["incomplete", "complete"] {
            fs::create_dir(mounted.path(&format!("{source}/downloads/{folder}"))).unwrap();
        }
    }
    fs::create_dir(mounted.path("second/downloads/incomplete/torrent")).unwrap();
    fs::write(mounted.path("second/downloads/incomplete/torrent/file"), "text").unwrap();
}

/// The rename is the first to look the folders up since a disk went or came.
#[test]
fn a_folder_is_renamed_whichever_disk_went_or_came() {
    for how in ["told", "asked"] {
        let arguments = [&["--changes", how], &KEPT[..]].concat();
        let Some((mounted, mut disks)) = disks_aside(SOURCES, &arguments) else { return };
        fill_with_downloads(&mounted);
        let (mut from, mut to) = ("downloads/incomplete/torrent", "downloads/complete/torrent");
        let folder = File::open(mounted.target(from)).unwrap();
        for comes in [false, true, false, true] {
            go_or_come(&mounted, &mut disks, "first", comes);
            fs::rename(mounted.target(from), mounted.target(to)).unwrap();
            (from, to) = (to, from);
            // It is the same folder for a program that has it open.
            assert_eq!(path_of(&folder), mounted.target(from));
            assert!(folder.metadata().unwrap().is_dir());
            assert_eq!(fs::read(mounted.target(from).join("file")).unwrap(), b"text");
        }
    }
}

/// The path by which the kernel knows an open file.
fn path_of(file: &File) -> PathBuf {
    fs::read_link(in_proc(file)).unwrap()
}

fn in_proc(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[test]
fn an_open_folder_stays_usable_while_the_disk_that_provides_it_is_away() {
    let Some((mounted, mut disks)) = disks_aside(SOURCES, &KEPT[..]) else { return };
    fill_with_downloads(&mounted);
    let downloads = File::open(mounted.target("downloads")).unwrap();
    let mode = || downloads.metadata().unwrap().mode() & 0o777;
    for (source, bits) in [("first", 0o711), ("second", 0o755)] {
        let part = mounted.path(source).join("downloads");
        fs::set_permissions(part, fs::Permissions::from_mode(bits)).unwrap();
    }
    for (comes, bits) in [(false, 0o755), (true, 0o711), (false, 0o755), (true, 0o711)] {
        go_or_come(&mounted, &mut disks, "first", comes);
        wait_until("the mode is that of the first part", || mode() == bits);
        let name = format!("made {comes}");
        let flags = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&downloads, &name, flags, Mode::RUSR).unwrap();
        let names = fs::read_dir(in_proc(&downloads)).unwrap();
        assert!(names.flatten().any(|entry| entry.file_name() == *name));
        rustix::fs::unlinkat(&downloads, &name, AtFlags::empty()).unwrap();
        assert!(is_there(&mounted.target("downloads")));
        assert_eq!(path_of(&downloads), mounted.target("downloads"));
    }
}

/// The new part comes before the one that was there.
#[test]
fn a_folder_is_renamed_out_of_one_that_has_just_got_another_first_part() {
    let Some((mounted, _disks)) = on_a_larger_disk() else { return };
    for folder in ["0", "1"] {
        fs::remove_dir(mounted.path("first").join(folder)).unwrap();
        fs::create_dir_all(mounted.path("second").join(folder).join("inner")).unwrap();
    }
    fs::write(mounted.path("first/file"), "").unwrap();
    let inner = File::open(mounted.target("0/inner")).unwrap();
    fs::remove_dir(mounted.target("1/inner")).unwrap();
    // The folder is made on the disk of the file.
    fs::hard_link(mounted.target("file"), mounted.target("0/link")).unwrap();
    assert!(is_there(&mounted.path("first/0/link")));
    // All names are looked up again, since another folder has got a part.
    let told = || mounted.status("counts")["changes_told"].as_u64();
    let before = told();
    fs::create_dir(mounted.path("first/1")).unwrap();
    wait_until("the folder is reported", || told() > before);
    fs::rename(mounted.target("0/inner"), mounted.target("1/inner")).unwrap();
    assert_eq!(path_of(&inner), mounted.target("1/inner"));
}

/// A folder that takes the place of another one is a new folder, as on a disk.
#[test]
fn a_folder_without_a_part_of_the_former_one_is_another_folder() {
    let fill = |mounted: &Mounted| {
        for source in SOURCES {
            fs::create_dir(mounted.path(source).join("folder")).unwrap();
        }
    };
    let Some(mounted) = Mounted::with_sources(SOURCES, &KEPT, fill) else { return };
    let target = mounted.target("folder");
    let former = File::open(&target).unwrap();
    fs::remove_dir(&target).unwrap();
    fs::create_dir(&target).unwrap();
    assert_eq!(path_of(&former), mounted.target("folder (deleted)"));
    let present = File::open(&target).unwrap();
    for source in SOURCES {
        let _ = fs::remove_dir(mounted.path(source).join("folder"));
    }
    wait_until("the folder is gone", || !is_there(&target));
    fs::create_dir(mounted.path("second/folder")).unwrap();
    fs::write(mounted.path("second/folder/new"), "").unwrap();
    wait_until("the new folder is there", || is_there(&target.join("new")));
    assert!(path_of(&present).to_string_lossy().ends_with(" (deleted)"));
}

/// A folder with a part more or less makes the mount look up the parts of all folders. Names are read again only where
/// the parts are others.
#[test]
fn names_are_not_read_again_since_another_folder_got_a_part() {
    let fill = |mounted: &Mounted| {
        for (source, folder) in [("first", "large"), ("second", "large"), ("second", "small")] {
            fs::create_dir_all(mounted.path(source).join(folder)).unwrap();
            fs::write(mounted.path(source).join(folder).join(source), "").unwrap();
        }
    };
    let Some(mounted) = Mounted::with_sources(SOURCES, &[], fill) else { return };
    let is_shown = |name: &str| is_there(&mounted.target(name));
    let reads = || mounted.status("counts")["merged_folders_read"].as_u64().unwrap();
    assert!(is_shown("large/first") && is_shown("large/second") && is_shown("small/second"));
    // The kernel keeps folders that are in use.
    let open = ["large", "small"].map(|folder| File::open(mounted.target(folder)).unwrap());
    let before = reads();
    let rounds = 3;
    for number in 1..=rounds {
        fs::create_dir(mounted.path("first/small")).unwrap();
        fs::write(mounted.path("first/small/first"), "").unwrap();
        wait_until("the part is shown", || is_shown("small/first"));
        let name = format!("large/{number}");
        assert!(!is_shown(&name));
        fs::write(mounted.path("second").join(&name), "").unwrap();
        wait_until("the name is shown", || is_shown(&name));
        fs::remove_dir_all(mounted.path("first/small")).unwrap();
        wait_until("the part is gone", || !is_shown("small/first"));
        assert!(is_shown("small/second") && is_shown("large/first"));
    }
    // The small folder is read once for each time that it has two parts.
    let more = reads() - before;
    assert!(more <= rounds, "{more} readings");
    let names = fs::read_dir(mounted.target("large")).unwrap().count();
    assert_eq!(names as u64, 2 + rounds);
    drop(open);
}

/// The kernel sends the request again, and the next worker finishes what was begun.
#[test]
fn a_rename_is_made_on_all_disks_when_the_worker_is_killed_in_between() {
    let fill = |mounted: &Mounted| {
        for source in SOURCES {
            fs::create_dir(mounted.path(source).join("old")).unwrap();
            fs::write(mounted.path(source).join("old").join(source), "").unwrap();
        }
        fs::write(mounted.path("second/old file"), "new").unwrap();
        fs::write(mounted.path("first/new file"), "replaced").unwrap();
    };
    // The second call of a rename of a folder is that on the first disk. A file of another disk is replaced by a
    // removal.
    for (call, number, name) in [
        ("renameat2", 1, ""),
        ("renameat2", 2, ""),
        ("renameat2", 1, " file"),
        ("unlinkat", 1, " file"),
    ] {
        let Some(mounted) = Mounted::with_sources(SOURCES, &[], fill) else { return };
        let target = |age: &str| mounted.target(&format!("{age}{name}"));
        assert!(is_there(&target("old")));
        let Some(mut strace) = kill_before(mounted.worker(), call, number) else { return };
        let renamed = fs::rename(target("old"), target("new"));
        // strace ends with the worker.
        strace.wait().unwrap();
        let case = format!("{call} {number} {name}: {renamed:?}");
        renamed.expect(&case);
        assert_eq!(mounted.restarts(), Some(1), "{case}");
        for source in SOURCES {
            let at = |age: &str| mounted.path(source).join(format!("{age}{name}"));
            assert!(!is_there(&at("old")), "{case}");
            assert_eq!(is_there(&at("new")), name.is_empty() || *source == "second", "{case}");
        }
        match name {
            "" => assert_eq!(fs::read_dir(target("new")).unwrap().count(), 2, "{case}"),
            _ => assert_eq!(fs::read(target("new")).unwrap(), b"new", "{case}"),
        }
    }
}
