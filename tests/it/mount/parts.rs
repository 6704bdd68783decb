//! Folders of several sources that get another part, or lose one.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, XattrFlags};

use super::fixture::{Mounted, wait_until};
use super::submounts::Disks;

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

fn in_proc(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// The folder is made on the disk of the new name by the same request, and is watched before the name is there.
#[test]
fn a_new_name_in_a_folder_that_its_disk_lacked_goes_with_its_file() {
    let Some((mounted, _disks)) = on_a_larger_disk() else { return };
    let (rw, none) = (Mode::RUSR | Mode::WUSR, XattrFlags::empty());
    let second = mounted.path("second").into_os_string().into_encoded_bytes();
    let makers: [(&str, &dyn Fn(&Path)); 8] = [
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
