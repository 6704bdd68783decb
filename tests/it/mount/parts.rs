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
