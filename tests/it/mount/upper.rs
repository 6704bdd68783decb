//! Mounts with an upper source, which takes all changes, held to the kernel's overlayfs.

use std::fs;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::differential::{MODES, Numbers, Side, assert_same_tree, seeds};
use super::fixture::{Mounted, kill};
use crate::{run, stderr, thruway};
use thruway_testing::skipped;

/// A mount with an upper source in a new folder.
struct LayeredMount {
    mounted: Mounted,
}

const LOWER: &[&str] = &["source", "lowest"];

impl LayeredMount {
    /// Mounts two lower sources and the upper source `upper`, after `fill` has filled them.
    fn new(fill: impl FnOnce(&Mounted)) -> Option<Self> {
        let upper = UpperPath::new();
        let arguments = ["--upper", upper.0.to_str().unwrap()];
        let mounted = Mounted::with_sources(LOWER, &arguments, |mounted| {
            let place = mounted.path("upper");
            fs::create_dir(&place).unwrap();
            symlink(&place, &upper.0).unwrap();
            fill(mounted);
        });
        mounted.map(|mounted| Self { mounted })
    }

    fn upper(&self, name: &str) -> PathBuf {
        self.mounted.path("upper").join(name)
    }

    fn target(&self, name: &str) -> PathBuf {
        self.mounted.target(name)
    }

    fn lower(&self, name: &str) -> PathBuf {
        self.mounted.source(name)
    }

    fn unmount(&self) {
        let output = run(&["unmount", self.target("").to_str().unwrap()]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

/// A link to the upper source, whose name is known before the folder of the mount is.
struct UpperPath(PathBuf, #[expect(dead_code, reason = "removes the folder")] tempfile::TempDir);

impl UpperPath {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self(folder.path().join("upper"), folder)
    }
}

/// A mount of the kernel's overlayfs.
struct Overlay(PathBuf);

impl Overlay {
    /// Mounts these layers at a new folder of this name; says so if the kernel cannot.
    fn new(place: &Path, name: &str, lower: &[&str], upper: &str) -> Option<Self> {
        let (at, work) = (place.join(name), place.join(format!("{name} work")));
        fs::create_dir(&at).unwrap();
        fs::create_dir(&work).unwrap();
        let lower: Vec<_> =
            lower.iter().map(|name| place.join(name).display().to_string()).collect();
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.join(":"),
            place.join(upper).display(),
            work.display()
        );
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o", &options]).arg(&at);
        let output = mount.output().unwrap();
        if !output.status.success() {
            skipped(format_args!("overlayfs: {}", stderr(&output).trim()));
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

pub(super) fn tree(folder: &Path) -> String {
    Side::new(folder, &MODES).tree()
}

/// Fills a folder by random operations.
fn fill_at_random(folder: &Path, seed: u64) {
    let mut side = Side::new(folder, &MODES);
    side.make_folders();
    for step in 0..300 {
        let seed = (seed << 32 | step).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let _ = side.run(&mut Numbers(seed));
    }
}

/// Applies random operations to a mount and to overlayfs over the same layers. Then each of the two reads what the
/// other has written.
fn compare_with_overlayfs(seed: u64, operations: u64) -> Option<()> {
    let layered = LayeredMount::new(|mounted| {
        for (number, name) in LOWER.iter().enumerate() {
            fill_at_random(&mounted.path(name), seed * 10 + number as u64);
        }
        fs::create_dir(mounted.path("kernel upper")).unwrap();
    })?;
    let place = layered.mounted.folder.path();
    let before: Vec<_> = LOWER.iter().map(|name| tree(&place.join(name))).collect();
    let overlay = Overlay::new(place, "kernel", LOWER, "kernel upper")?;
    assert_same_tree(&tree(&layered.target("")), &tree(&overlay.0), "at the start");
    let mut ours = Side::new(&layered.target(""), &MODES);
    let mut theirs = Side::new(&overlay.0, &MODES);
    let mut history = Vec::new();
    for step in 0..operations {
        let numbers = (seed << 32 | step).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (operation, expected) = theirs.run(&mut Numbers(numbers));
        let (_, said) = ours.run(&mut Numbers(numbers));
        history.push(format!("{operation}: {expected:?}"));
        let recent = history[history.len().saturating_sub(12)..].join("\n");
        // A change of an open file that was removed may fail on overlayfs, which has no folder for the copy.
        let is_without_place = matches!(expected, Err(Errno::NOTDIR | Errno::NOENT | Errno::STALE))
            && matches!(operation.split(' ').next(), Some("20" | "21" | "22" | "23" | "25" | "26"));
        let place = format!("seed {seed}, step {step}, after\n{recent}");
        assert!(said == expected || is_without_place, "{said:?}, not {expected:?}: {place}");
    }
    let shown = ours.tree();
    assert_same_tree(&shown, &theirs.tree(), &format!("seed {seed}"));
    drop((ours, theirs));
    layered.unmount();
    drop(overlay);
    for (name, before) in LOWER.iter().zip(before) {
        assert_same_tree(&tree(&place.join(name)), &before, &format!("seed {seed}, {name}"));
    }
    let crossed = Overlay::new(place, "kernel over ours", LOWER, "upper")?;
    assert_same_tree(&tree(&crossed.0), &shown, &format!("seed {seed}, read by the kernel"));
    drop(crossed);
    fs::create_dir(place.join("ours over the kernel")).unwrap();
    let crossed = place.join("ours over the kernel");
    let mut mount = thruway();
    mount.args(["mount", "--upper"]).arg(place.join("kernel upper"));
    mount.args(LOWER.iter().map(|name| place.join(name))).arg(&crossed);
    let output = mount.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let read = tree(&crossed);
    let output = thruway().arg("unmount").arg(&crossed).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_same_tree(&read, &shown, &format!("seed {seed}, written by the kernel"));
    Some(())
}

#[test]
fn an_upper_source_behaves_as_on_overlayfs() {
    for seed in seeds(3) {
        if compare_with_overlayfs(seed, 1000).is_none() {
            return;
        }
    }
}

fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_char_device() && it.rdev() == 0)
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 64];
    let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).ok()?;
    value.truncate(length);
    Some(value)
}

#[test]
fn a_copy_has_all_attributes_and_the_lower_file_stays() {
    const HOLE: u64 = 1 << 36;
    let layered = LayeredMount::new(|mounted| {
        let file = mounted.source("folder/file");
        fs::create_dir(mounted.source("folder")).unwrap();
        // Of a group in which the daemon is not.
        std::os::unix::fs::chown(mounted.source("folder"), None, Some(8)).unwrap();
        fs::set_permissions(mounted.source("folder"), fs::Permissions::from_mode(0o2751)).unwrap();
        let sparse = File::create(&file).unwrap();
        sparse.write_all_at(b"begin", 0).unwrap();
        sparse.write_all_at(b"end", HOLE).unwrap();
        rustix::fs::setxattr(&file, "user.note", b"kept", XattrFlags::empty()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&file, Some(7), Some(8)).unwrap();
        fs::hard_link(&file, mounted.source("folder/other")).unwrap();
    });
    let Some(layered) = layered else { return };
    let name = "folder/file";
    let before = fs::metadata(layered.lower(name)).unwrap();
    let folder = fs::metadata(layered.target("folder")).unwrap();
    let mut reader = File::open(layered.target(name)).unwrap();
    // A change of the mode copies, too; here nothing but the mode differs.
    fs::set_permissions(layered.target(name), fs::Permissions::from_mode(0o604)).unwrap();
    let copy = fs::metadata(layered.upper(name)).unwrap();
    assert_eq!((copy.uid(), copy.gid(), copy.mode() & 0o7777), (7, 8, 0o604));
    assert_eq!((copy.mtime_nsec(), copy.len()), (before.mtime_nsec(), HOLE + 3));
    assert!(copy.blocks() < 64, "{} blocks", copy.blocks());
    assert_eq!(attribute(&layered.upper(name), "user.note").as_deref(), Some(b"kept".as_slice()));
    let made = fs::metadata(layered.upper("folder")).unwrap();
    assert_eq!((made.mode(), made.mtime_nsec()), (folder.mode(), folder.mtime_nsec()));
    assert_eq!(made.mode() & 0o7777, 0o2751);
    assert_eq!(fs::metadata(layered.target("folder")).unwrap().ino(), folder.ino());
    let writer = File::options().write(true).open(layered.target(name)).unwrap();
    writer.write_all_at(b"BEGIN", 0).unwrap();
    // Opened before the copy: the lower file. Opened now: the copy.
    let mut read = [0; 5];
    reader.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"begin");
    File::open(layered.target(name)).unwrap().read_exact(&mut read).unwrap();
    assert_eq!(&read, b"BEGIN");
    // Another name of the lower file is another file from now on.
    File::open(layered.target("folder/other")).unwrap().read_exact(&mut read).unwrap();
    assert_eq!(&read, b"begin");
    let after = fs::metadata(layered.lower(name)).unwrap();
    assert_eq!(after.ctime_nsec(), before.ctime_nsec());
    assert_eq!(after.mode(), before.mode());
}

#[test]
fn removed_names_are_hidden_and_made_again() {
    const FILES: usize = 1000;
    let layered = LayeredMount::new(|mounted| {
        fs::create_dir_all(mounted.source("folder/below")).unwrap();
        fs::create_dir(mounted.path("lowest/folder")).unwrap();
        for number in 0..FILES {
            fs::write(mounted.source(&format!("folder/{number}")), "lower").unwrap();
        }
        fs::write(mounted.path("lowest/folder/0"), "lowest").unwrap();
    });
    let Some(layered) = layered else { return };
    let folder = layered.target("folder");
    for number in 0..FILES {
        fs::remove_file(folder.join(number.to_string())).unwrap();
    }
    assert!(is_whiteout(&layered.upper("folder/0")));
    let listed = |folder: &Path| -> Vec<_> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    let names = |folder: &Path| listed(folder).len();
    assert_eq!(listed(&folder), ["below"]);
    assert_eq!(names(&layered.upper("folder")), FILES);
    assert!(fs::symlink_metadata(folder.join("0")).is_err());
    fs::write(folder.join("0"), "new").unwrap();
    fs::create_dir(folder.join("1")).unwrap();
    symlink("0", folder.join("2")).unwrap();
    fs::rename(folder.join("0"), folder.join("3")).unwrap();
    assert_eq!(fs::read_to_string(folder.join("3")).unwrap(), "new");
    assert!(
        fs::symlink_metadata(folder.join("0")).is_err() && is_whiteout(&layered.upper("folder/0"))
    );
    // A folder with parts below cannot be renamed.
    let moved = fs::rename(folder.join("below"), layered.target("moved")).unwrap_err();
    assert_eq!(moved.raw_os_error(), Some(Errno::XDEV.raw_os_error()));
    fs::remove_dir_all(&folder).unwrap();
    assert!(is_whiteout(&layered.upper("folder")));
    fs::create_dir(&folder).unwrap();
    assert_eq!(names(&folder), 0);
    let opaque = attribute(&layered.upper("folder"), "trusted.overlay.opaque");
    assert_eq!(opaque.as_deref(), Some(b"y".as_slice()));
    assert_eq!(attribute(&folder, "trusted.overlay.opaque"), None);
    assert_eq!(names(&layered.lower("folder")), FILES + 1);
    assert_eq!(names(&layered.mounted.path(".upper.thruway-work")), 0);
}

/// A file system of this size in memory.
struct SmallDisk(PathBuf);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_upper_source_leaves_the_lower_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut mount = Command::new("mount");
    let output =
        mount.args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"]).arg(folder.path()).output().unwrap();
    if !output.status.success() {
        return skipped(format_args!("tmpfs: {}", stderr(&output).trim()));
    }
    let disk = SmallDisk(folder.path().to_owned());
    let upper = disk.0.join("upper");
    fs::create_dir(&upper).unwrap();
    let arguments = ["--upper", upper.to_str().unwrap()];
    let mounted = Mounted::with_sources(&["source"], &arguments, |mounted| {
        fs::write(mounted.source("large"), vec![b'x'; 4 << 20]).unwrap();
        fs::write(mounted.source("small"), "small").unwrap();
    });
    let Some(mounted) = mounted else { return };
    let error = File::options().append(true).open(mounted.target("large")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    assert_eq!(fs::read(mounted.target("large")).unwrap().len(), 4 << 20);
    assert!(fs::symlink_metadata(upper.join("large")).is_err());
    // There is room again, and the mount point itself is no upper source.
    let mut small = File::options().append(true).open(mounted.target("small")).unwrap();
    small.write_all(b" and more").unwrap();
    assert_eq!(fs::read_to_string(upper.join("small")).unwrap(), "small and more");
    let file = File::options().write(true).truncate(true).open(mounted.target("large")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    let mut again = thruway();
    again.args(["mount", "--upper"]).arg(&disk.0).arg(mounted.source("")).arg(mounted.path("x"));
    fs::create_dir(mounted.path("x")).unwrap();
    let output = again.output().unwrap();
    assert!(stderr(&output).contains("is a mount point"), "{}", stderr(&output));
    drop(mounted);
}

#[test]
fn a_copy_is_complete_although_the_worker_is_killed() {
    let layered = LayeredMount::new(|mounted| {
        fs::write(mounted.source("large"), vec![b'x'; 64 << 20]).unwrap();
    });
    let Some(layered) = layered else { return };
    let file = layered.target("large");
    let writing = thread::spawn(move || {
        let mut file = File::options().append(true).open(file).unwrap();
        file.write_all(b"end").unwrap();
    });
    kill(layered.mounted.worker());
    writing.join().unwrap();
    let read = fs::read(layered.target("large")).unwrap();
    assert!(read.len() == (64 << 20) + 3 && read.ends_with(b"xend"), "{} bytes", read.len());
    assert_eq!(fs::metadata(layered.lower("large")).unwrap().len(), 64 << 20);
}

#[test]
fn an_upper_source_that_makes_no_sense_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for name in ["lower/upper", "upper/lower", "target"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    let refused = |upper: &str, options: &[&str], lower: &str| {
        let (upper, lower, target) = (path(upper), path(lower), path("target"));
        let mut arguments = vec!["mount", "--upper", &upper];
        arguments.extend(options);
        arguments.extend([lower.as_str(), target.as_str()]);
        let output = run(&arguments);
        assert!(!output.status.success(), "{options:?}");
        stderr(&output).to_owned()
    };
    for (upper, lower) in [("lower/upper", "lower"), ("upper", "upper/lower"), ("lower", "lower")] {
        let text = refused(upper, &[], lower);
        assert!(
            text.contains("contains the other") || text.contains("no source is left"),
            "{text}"
        );
    }
    let options: [&[&str]; 6] = [
        &["--create", "most-free"],
        &["--on-full", "move"],
        &["--free-min", "1G"],
        &["--missing", "skip"],
        &["--xattr", "off"],
        &["--follow-symlinks", "regular"],
    ];
    for option in options {
        let text = refused("upper", option, "lower");
        assert!(
            text.contains("--upper cannot be combined with") && text.contains(option[0]),
            "{text}"
        );
    }
    assert!(refused("absent", &[], "lower").contains("hint: mkdir"));
    fs::create_dir_all(path("open")).unwrap();
    fs::create_dir(path(".open.thruway-work")).unwrap();
    fs::set_permissions(path(".open.thruway-work"), fs::Permissions::from_mode(0o777)).unwrap();
    let text = refused("open", &[], "lower");
    assert!(text.contains("other users may change the work folder"), "{text}");
    let text = refused("upper", &[], "lower=NC");
    assert!(text.contains("the options of"), "{text}");
}

#[test]
fn an_upper_source_has_one_mount() {
    let Some(layered) =
        LayeredMount::new(|mounted| fs::create_dir(mounted.path("second")).unwrap())
    else {
        return;
    };
    let (upper, lower, second) =
        (layered.upper(""), layered.lower(""), layered.mounted.path("second"));
    let mut mount = thruway();
    let output =
        mount.arg("mount").arg("--upper").args([&upper, &lower, &second]).output().unwrap();
    assert!(stderr(&output).contains("is the upper source of another mount"));
    layered.unmount();
    let output = mount.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(thruway().arg("unmount").arg(&second).status().unwrap().success());
}
