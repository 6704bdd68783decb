//! Files that move from one disk to another: on request, and when a disk is full in the middle of a write.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::XattrFlags;

use super::fixture::{Mounted, kill, wait_until};
use super::submounts::Disks;
use crate::{stderr, stdout, thruway};

const SOURCES: &[&str] = &["fast", "slow"];
/// Changes that are made while a file moves.
const CHANGES: u64 = 500;

const THREE: &[&str] = &["first", "second", "third"];

/// A mount of three disks, which `fill` fills before.
fn three_disks(fill: impl FnOnce(&Mounted)) -> Option<(Mounted, Disks)> {
    let mut disks = Disks::default();
    let mut is_possible = true;
    let mounted = Mounted::with_sources(THREE, &[], |mounted| {
        for disk in THREE {
            is_possible &= disks.mount_of(8 << 20, &mounted.path(disk));
        }
        fill(mounted);
    });
    mounted.filter(|_| is_possible).map(|mounted| (mounted, disks))
}

/// A mount of two disks of so many bytes.
fn disks(sizes: [u64; 2], arguments: &[&str]) -> Option<(Mounted, Disks)> {
    let mut disks = Disks::default();
    let mut is_possible = true;
    let mounted = Mounted::with_sources(SOURCES, arguments, |mounted| {
        for (source, bytes) in SOURCES.iter().zip(sizes) {
            is_possible &= disks.mount_of(bytes, &mounted.path(source));
        }
    })?;
    is_possible.then_some((mounted, disks))
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn value(path: &Path, name: &str) -> String {
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(path, name, value.as_mut_slice()).unwrap();
    String::from_utf8(value[..length].to_vec()).unwrap()
}

pub(super) fn move_to(path: &Path, source: &Path) -> Result<(), rustix::io::Errno> {
    let value = source.to_str().unwrap().as_bytes();
    rustix::fs::setxattr(path, "user.thruway.source", value, XattrFlags::empty())
}

fn move_command(mounted: &Mounted, arguments: &[&str]) -> Output {
    let mut command = thruway();
    command.args(["mount", "move"]).args(arguments).arg(mounted.target("")).output().unwrap()
}

#[test]
fn attributes_tell_where_a_file_is() {
    let Some((mounted, _disks)) = disks([1 << 20; 2], &[]) else { return };
    for source in SOURCES {
        fs::create_dir(mounted.path(source).join("folder")).unwrap();
        fs::write(mounted.path(source).join("folder/both"), source).unwrap();
    }
    fs::write(mounted.path("slow/folder/one"), "").unwrap();
    let file = mounted.target("folder/one");
    let path = |name: &str| mounted.path(name).to_str().unwrap().to_owned();
    for (name, expected) in [
        ("user.thruway.source", path("slow")),
        ("user.thruway.path", path("slow/folder/one")),
        ("user.thruway.copies", path("slow/folder/one")),
        ("user.mergerfs.basepath", path("slow")),
        ("user.mergerfs.relpath", "/folder/one".into()),
        ("user.mergerfs.fullpath", path("slow/folder/one")),
    ] {
        assert_eq!(value(&file, name), expected, "{name}");
    }
    let both = format!("{}\0{}", path("fast/folder/both"), path("slow/folder/both"));
    assert_eq!(value(&mounted.target("folder/both"), "user.mergerfs.allpaths"), both);
    assert_eq!(value(&mounted.target(""), "user.thruway.source"), path("fast"));
    // No program copies them.
    let mut names = vec![0; 4096];
    let length = rustix::fs::listxattr(&file, names.as_mut_slice()).unwrap();
    assert!(!String::from_utf8_lossy(&names[..length]).contains("thruway"));
    let refused = rustix::fs::setxattr(&file, "user.thruway.x", b"", XattrFlags::empty());
    assert_eq!(refused, Err(rustix::io::Errno::PERM));
    std::os::unix::fs::symlink("x", mounted.path("slow/folder/link")).unwrap();
    let mut command = thruway();
    command.args(["mount", "where"]);
    let command =
        command.args(["folder", "folder/both", "folder/link"].map(|name| mounted.target(name)));
    let output = command.output().unwrap();
    let lines: Vec<_> = stdout(&output).lines().map(str::to_owned).collect();
    let expected =
        ["fast/folder", "slow/folder", "fast/folder/both", "slow/folder/both", "slow/folder/link"];
    assert_eq!(lines, expected.map(path));
    let output = thruway().args(["mount", "where"]).arg(mounted.path("fast")).output().unwrap();
    assert!(stderr(&output).contains("not on a thruway mount"), "{}", stderr(&output));
}

#[test]
fn a_file_moves_with_all_that_belongs_to_it_and_its_users_go_on() {
    let Some((mounted, _disks)) = disks([8 << 20; 2], &["--create", "first"]) else { return };
    fs::create_dir_all(mounted.target("a/b")).unwrap();
    // Setgid stays, also for groups in which the daemon is not.
    std::os::unix::fs::chown(mounted.path("fast/a"), None, Some(34)).unwrap();
    fs::set_permissions(mounted.path("fast/a"), fs::Permissions::from_mode(0o2750)).unwrap();
    let file = mounted.target("a/b/file");
    let mut content = vec![7u8; 100_000];
    fs::write(&file, &content).unwrap();
    // A hole in the middle.
    let writer = File::options().write(true).open(&file).unwrap();
    writer.write_all_at(b"end", 3_000_000).unwrap();
    content.resize(3_000_000, 0);
    content.extend(b"end");
    let slow = mounted.path("slow");
    assert_eq!(move_to(&file, &slow), Err(rustix::io::Errno::BUSY), "it is open for writing");
    drop(writer);
    std::os::unix::fs::chown(&file, Some(12), Some(34)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o2650)).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_000_000_000, 123);
    File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    let before = fs::metadata(&file).unwrap();
    let mut reader = File::open(&file).unwrap();
    let mut start = [0; 10];
    reader.read_exact(&mut start).unwrap();
    move_to(&file, &slow).unwrap();
    assert!(!is_there(&mounted.path("fast/a/b/file")) && is_there(&mounted.path("slow/a/b/file")));
    assert_eq!(fs::read(&file).unwrap(), content);
    let after = fs::metadata(&file).unwrap();
    let facts =
        |stat: &fs::Metadata| (stat.mode(), stat.uid(), stat.gid(), stat.mtime_nsec(), stat.len());
    assert_eq!(facts(&after), facts(&before));
    assert!(after.blocks() * 512 < 1_000_000, "the hole is one");
    assert_eq!(fs::metadata(mounted.path("slow/a")).unwrap().mode() & 0o7777, 0o2750);
    // The reader goes on, and a writer writes to the file in its new place.
    reader.seek(SeekFrom::Start(3_000_000)).unwrap();
    let mut end = String::new();
    reader.read_to_string(&mut end).unwrap();
    assert_eq!(end, "end");
    File::options().append(true).open(&file).unwrap().write_all(b" more").unwrap();
    assert!(fs::read(mounted.path("slow/a/b/file")).unwrap().ends_with(b"end more"));
    drop(reader);
    move_to(&file, &mounted.path("fast")).unwrap();
    assert!(fs::read(mounted.path("fast/a/b/file")).unwrap().ends_with(b"end more"));
    assert_eq!(fs::read_dir(mounted.target("a/b")).unwrap().count(), 1);
    // Another file in its place is not replaced.
    fs::write(mounted.path("slow/a/b/file"), "another").unwrap();
    assert_eq!(move_to(&file, &slow), Err(rustix::io::Errno::EXIST));
    assert_eq!(move_to(&file, Path::new("/nowhere")), Err(rustix::io::Errno::INVAL));
}

/// A name leads to the file of the first source that has the name, before a move and after it.
#[test]
fn a_move_never_brings_a_hidden_file_of_the_same_name_to_light() {
    let Some((mounted, _disks)) = three_disks(|_| ()) else { return };
    THREE.iter().for_each(|disk| fs::create_dir(mounted.path(disk).join("folder")).unwrap());
    for disk in ["first", "second"] {
        fs::write(mounted.path(disk).join("folder/both"), disk).unwrap();
    }
    let file = mounted.target("folder/both");
    wait_until("the first is shown", || fs::read(&file).is_ok_and(|text| text == b"first"));
    assert_eq!(move_to(&file, &mounted.path("third")), Err(rustix::io::Errno::EXIST));
    // The hidden file is no file of the mount, and the file that hides it does not move in its place.
    let [second, third] = ["second", "third"].map(|name| mounted.path(name));
    let (second, third) = (second.to_str().unwrap(), third.to_str().unwrap());
    let output = move_command(&mounted, &["--from", second, "--to", third, "--apply"]);
    assert_eq!(stdout(&output), "0 files, 0 bytes moved\n", "{}", stderr(&output));
    assert!(!is_there(&mounted.path("third/folder/both")));
    for disk in ["first", "second"] {
        assert_eq!(fs::read_to_string(mounted.path(disk).join("folder/both")).unwrap(), disk);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "first");
    // A move to the front hides the hidden file as before.
    fs::remove_file(mounted.path("first/folder/both")).unwrap();
    fs::write(mounted.path("third/folder/both"), "third").unwrap();
    wait_until("the second is shown", || fs::read(&file).is_ok_and(|text| text == b"second"));
    move_to(&file, &mounted.path("first")).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "second");
    assert!(!is_there(&mounted.path("second/folder/both")));
}

/// The state in which a move to an earlier source is interrupted: the file has some of its names there, or all.
#[test]
fn a_move_that_was_interrupted_is_finished_by_the_next_one_also_to_an_earlier_source() {
    for (case, moved) in [&["folder/name", "folder/link"][..], &["folder/name"], &["folder/link"]]
        .into_iter()
        .enumerate()
    {
        let Some((mounted, _disks)) = disks([8 << 20; 2], &[]) else { return };
        let [fast, slow] = ["fast", "slow"].map(|name| mounted.path(name));
        let old = File::open({
            fs::create_dir(slow.join("folder")).unwrap();
            fs::write(slow.join("folder/name"), "content").unwrap();
            fs::hard_link(slow.join("folder/name"), slow.join("folder/link")).unwrap();
            mounted.target("folder/name")
        });
        fs::create_dir(fast.join("folder")).unwrap();
        let copy = |to: &Path| {
            let mut cp = std::process::Command::new("cp");
            cp.arg("-p").arg(slow.join("folder/name")).arg(to).status().unwrap()
        };
        assert!(copy(&fast.join(moved[0])).success());
        moved[1..]
            .iter()
            .for_each(|name| fs::hard_link(fast.join(moved[0]), fast.join(name)).unwrap());
        let first = mounted.target(moved[0]);
        wait_until("the copy is shown", || {
            value(&first, "user.thruway.source") == fast.to_str().unwrap()
        });
        // A balance moves nothing that may be a copy that somebody made.
        let balance = move_command(&mounted, &["--balance", "--apply"]);
        assert!(stdout(&balance).starts_with("0 files"), "{case}: {}", stdout(&balance));
        let (from, to) = (slow.to_str().unwrap(), fast.to_str().unwrap());
        let arguments = [&["--from", from][..], &["--to", to, "--apply"]].concat();
        let output = move_command(&mounted, &arguments[if case == 0 { 2 } else { 0 }..]);
        assert!(output.status.success(), "{case}: {}{}", stdout(&output), stderr(&output));
        assert!(files_below(&slow).is_empty(), "{case}: {}", stdout(&output));
        assert_eq!(files_below(&fast).len(), 2);
        for name in ["folder/name", "folder/link"] {
            let name = mounted.target(name);
            assert_eq!(fs::read(&name).unwrap(), b"content");
            assert_eq!(name.metadata().unwrap().nlink(), 2);
        }
        assert_eq!(std::io::read_to_string(old.unwrap()).unwrap(), "content");
    }
}

#[test]
fn a_hidden_file_that_differs_or_is_in_use_stays() {
    let Some((mounted, _disks)) = disks([8 << 20; 2], &[]) else { return };
    let [fast, slow] = ["fast", "slow"].map(|name| mounted.path(name));
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (source, name, text) in [
        (&fast, "other", "content"),
        (&slow, "other", "CONTENT"),
        (&fast, "used", "content"),
        (&slow, "used", "content"),
        (&fast, "linked", "content"),
        (&slow, "linked", "content"),
    ] {
        fs::write(source.join(name), text).unwrap();
        File::options().write(true).open(source.join(name)).unwrap().set_modified(time).unwrap();
    }
    let _used = File::options().write(true).open(slow.join("used")).unwrap();
    fs::hard_link(slow.join("linked"), slow.join("second name")).unwrap();
    let shown = |name: &str| is_there(&mounted.target(name));
    wait_until("the files are shown", || {
        ["other", "used", "second name"].iter().all(|it| shown(it))
    });
    // The attribute by which the command removes the copy takes all of its names.
    let value = [slow.to_str().unwrap(), "linked"].join("\0");
    let linked = mounted.target("linked");
    let name = "user.thruway.left_copy";
    let refused = rustix::fs::setxattr(&linked, name, value.as_bytes(), XattrFlags::empty());
    assert_eq!(refused, Err(rustix::io::Errno::MLINK));
    let output = move_command(&mounted, &["--to", fast.to_str().unwrap(), "--apply"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("other stays: another source has"), "{}", stdout(&output));
    assert!(stdout(&output).contains("used stays: it is open"), "{}", stdout(&output));
    let read = |name: &str| fs::read_to_string(slow.join(name)).unwrap();
    assert_eq!((read("other"), read("used")), ("CONTENT".into(), "content".into()));
}

/// A name below a link is no name of the view.
#[test]
fn a_link_in_an_earlier_source_does_not_keep_a_file_from_moving() {
    let on_three_disks = three_disks(|mounted| {
        fs::create_dir_all(mounted.path("first/folder")).unwrap();
        fs::write(mounted.path("first/folder/file"), "content").unwrap();
        fs::create_dir_all(mounted.path("elsewhere")).unwrap();
        fs::write(mounted.path("elsewhere/file"), "").unwrap();
        let elsewhere = mounted.path("elsewhere");
        std::os::unix::fs::symlink(elsewhere, mounted.path("second/folder")).unwrap();
    });
    let Some((mounted, _disks)) = on_three_disks else { return };
    move_to(&mounted.target("folder/file"), &mounted.path("third")).unwrap();
    assert_eq!(fs::read_to_string(mounted.path("third/folder/file")).unwrap(), "content");
    assert_eq!(fs::read_to_string(mounted.target("folder/file")).unwrap(), "content");
}

#[test]
fn where_answers_for_the_name_that_was_asked_for() {
    let Some((mounted, _disks)) = disks([1 << 20; 2], &[]) else { return };
    fs::create_dir(mounted.target("folder")).unwrap();
    fs::write(mounted.target("one"), "").unwrap();
    fs::hard_link(mounted.target("one"), mounted.target("folder/other")).unwrap();
    for name in ["one", "folder/other", "one"] {
        let output = thruway().args(["mount", "where"]).arg(mounted.target(name)).output().unwrap();
        assert_eq!(stdout(&output).trim(), mounted.path("fast").join(name).to_str().unwrap());
    }
}

/// The folder is made on the other disk before it is known that the file has no room there.
#[test]
fn a_file_that_finds_no_room_leaves_a_folder_that_is_shown_with_its_time_and_its_names() {
    let kept = ["--entry-timeout", "3600", "--attribute-timeout", "3600"];
    let arguments = [&["--create", "first"], &kept[..]].concat();
    let Some((mounted, _disks)) = disks([8 << 20, 256 << 10], &arguments) else { return };
    fs::create_dir_all(mounted.target("a/b")).unwrap();
    fs::create_dir(mounted.path("slow/a")).unwrap();
    let file = mounted.target("a/b/file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let modified = |path: &str| fs::metadata(mounted.path(path)).unwrap().modified().unwrap();
    wait_until("the time is shown", || modified("target/a") == modified("slow/a"));
    assert!(!is_there(&mounted.target("a/b/new")));
    let refused = Err(rustix::io::Errno::NOSPC);
    assert_eq!(move_to(&file, &mounted.path("slow")), refused);
    assert_eq!(modified("target/a"), modified("slow/a"));
    fs::write(mounted.path("slow/a/b/new"), "").unwrap();
    wait_until("the name is shown", || is_there(&mounted.target("a/b/new")));
}

#[test]
fn files_move_by_age_with_their_hard_links_and_what_would_be_done_is_shown_first() {
    let Some((mounted, _disks)) = disks([8 << 20; 2], &["--create", "first"]) else { return };
    let day = Duration::from_secs(86_400);
    fs::create_dir(mounted.target("folder")).unwrap();
    for (name, days) in [("old", 40), ("older", 50), ("new", 1)] {
        let file = File::create(mounted.target("folder").join(name)).unwrap();
        file.write_all_at(&[1; 10_000], 0).unwrap();
        file.set_modified(std::time::SystemTime::now() - day * days).unwrap();
    }
    fs::hard_link(mounted.target("folder/old"), mounted.target("import")).unwrap();
    let (fast, slow) = (mounted.path("fast"), mounted.path("slow"));
    let (fast, slow) = (fast.to_str().unwrap(), slow.to_str().unwrap());
    let arguments = ["--from", fast, "--to", slow, "--older-than", "30"];
    let shown = move_command(&mounted, &arguments);
    let lines: Vec<_> = stdout(&shown).lines().collect();
    assert!(lines[0].starts_with("folder/older: ") && lines[1].contains(" = "), "{lines:?}");
    assert!(
        lines[2].starts_with("2 files, ") && is_there(&mounted.path("fast/import")),
        "{lines:?}"
    );
    let moved = move_command(&mounted, &[&arguments[..], &["--apply"]].concat());
    assert!(moved.status.success(), "{}{}", stdout(&moved), stderr(&moved));
    let inode = |name: &str| fs::metadata(mounted.path("slow").join(name)).unwrap().ino();
    assert_eq!(inode("import"), inode("folder/old"));
    assert!(is_there(&mounted.path("fast/folder/new")) && !is_there(&mounted.path("fast/import")));
    let seen = |name: &str| fs::metadata(mounted.target(name)).unwrap();
    assert_eq!((seen("import").ino(), seen("import").nlink()), (seen("folder/old").ino(), 2));
    // Files can also be chosen by size, by fill, and for balance.
    for (name, size) in [("large", 3_000_000), ("small", 100)] {
        fs::write(mounted.target(name), vec![1; size]).unwrap();
    }
    let output =
        move_command(&mounted, &["--to", slow, "--larger-than", "1M", "--until-fill", "30"]);
    assert!(stdout(&output).starts_with("large: "), "{}", stdout(&output));
    let output = move_command(&mounted, &["--balance", "--apply"]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    for arguments in [&[][..], &["--to", "/nowhere"], &["--to", slow, "--until-fill", "101"]] {
        assert!(!move_command(&mounted, arguments).status.success(), "{arguments:?}");
    }
}

/// As with `moveonenospc` of mergerfs, the writer notices nothing.
#[test]
fn a_file_moves_when_its_disk_is_full_in_the_middle_of_a_write() {
    let arguments = ["--create", "first", "--on-full", "move"];
    let Some((mounted, _disks)) = disks([1 << 20, 16 << 20], &arguments) else { return };
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(mounted.target("download"))
        .unwrap();
    let mut expected = Vec::new();
    for piece in 0..40u8 {
        let bytes = vec![piece; 100_000];
        file.write_all(&bytes).unwrap();
        expected.extend(bytes);
        // A hash check reads the written data.
        let mut start = [255];
        file.read_exact_at(&mut start, u64::from(piece) * 100_000).unwrap();
        assert_eq!(start, [piece]);
    }
    assert!(is_there(&mounted.path("slow/download")) && !is_there(&mounted.path("fast/download")));
    assert_eq!(file.metadata().unwrap().len(), 4_000_000);
    drop(file);
    assert_eq!(fs::read(mounted.target("download")).unwrap(), expected);
    // Space that is reserved in advance moves, too.
    let file = File::create(mounted.target("reserved")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 << 20).unwrap();
    file.write_all_at(b"end", (2 << 20) - 3).unwrap();
    assert!(is_there(&mounted.path("slow/reserved")) && !is_there(&mounted.path("fast/reserved")));
    // If all disks are full, the write fails with the error of a full disk.
    let mut file = File::create(mounted.target("too large")).unwrap();
    let error = (0..200).find_map(|_| file.write_all(&[1; 100_000]).err()).unwrap();
    assert_eq!(error.raw_os_error(), Some(28));
    drop(file);
    fs::remove_file(mounted.target("too large")).unwrap();
    assert_eq!(fs::read_dir(mounted.target("")).unwrap().count(), 2);
}

/// Two writers append in turn, and each append is after the last one, before the file moves and after it.
#[test]
fn appends_stay_in_order_when_their_disk_is_full_and_the_file_moves() {
    let arguments = ["--create", "first", "--on-full", "move"];
    let Some((mounted, _disks)) = disks([1 << 20, 16 << 20], &arguments) else { return };
    let name = mounted.target("log");
    let append = || File::options().append(true).create(true).open(&name).unwrap();
    let mut writers = [append(), append()];
    let mut expected = Vec::new();
    for piece in 0..40u8 {
        let bytes = vec![piece; 70_001];
        writers[usize::from(piece % 2)].write_all(&bytes).unwrap();
        expected.extend(bytes);
    }
    writers[0].set_len(1_500_000).unwrap();
    writers[1].write_all(b"end").unwrap();
    expected.truncate(1_500_000);
    expected.extend(b"end");
    assert!(is_there(&mounted.path("slow/log")) && !is_there(&mounted.path("fast/log")));
    assert!(fs::read(mounted.path("slow/log")).unwrap() == expected, "the disk");
    assert!(fs::read(&name).unwrap() == expected, "the mount");
}

/// A program writes and changes times while the file moves back and forth. Each change that was made is found in the
/// file, wherever it is.
#[test]
fn no_change_is_lost_while_a_file_moves() {
    for arguments in [["--passthrough", "off"], ["--passthrough", "on"], ["--on-full", "move"]] {
        let Some((mounted, _disks)) = disks([1 << 20; 2], &arguments) else { return };
        let path = mounted.target("file");
        fs::write(&path, [0; 64]).unwrap();
        let is_done = AtomicBool::new(false);
        let moves = std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut moves = 0_u32;
                for source in ["slow", "fast"].into_iter().cycle() {
                    if is_done.load(Relaxed) {
                        return moves;
                    }
                    moves += u32::from(move_to(&path, &mounted.path(source)).is_ok());
                }
                unreachable!("sources without end")
            });
            let changed =
                std::panic::catch_unwind(|| (0..CHANGES).for_each(|it| change(&path, it)));
            is_done.store(true, Relaxed);
            changed.unwrap_or_else(|_| panic!("a change was lost with {arguments:?}"));
            mover.join().unwrap()
        });
        assert!(moves > 0, "{arguments:?}: the file never moved");
    }
}

/// Changes a file with the given number, and checks that it is so when the file is opened again.
fn change(path: &Path, number: u64) {
    let text = number.to_le_bytes();
    let file = File::options().write(true).open(path).unwrap();
    for at in 0..4 {
        file.write_all_at(&text, at * 8).unwrap();
    }
    let time = UNIX_EPOCH + Duration::from_secs(number);
    file.set_modified(time).unwrap();
    drop(file);
    let file = File::open(path).unwrap();
    let mut bytes = [0; 32];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, text.repeat(4)[..], "bytes of change {number}");
    assert_eq!(file.metadata().unwrap().modified().unwrap(), time, "time of change {number}");
}

/// Each file is whole under its names, whichever process is killed at whatever time.
#[test]
fn nothing_is_lost_when_a_worker_is_killed_in_the_middle_of_a_move() {
    let Some((mounted, _disks)) = disks([16 << 20; 2], &["--create", "first"]) else { return };
    let content = |number: usize| vec![number as u8; 20_000 + number];
    let name = |number: usize| format!("folder {}/file {number}", number % 7);
    for number in 0..200 {
        let path = mounted.target(&name(number));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content(number)).unwrap();
    }
    for number in (0..200).step_by(10) {
        fs::hard_link(mounted.target(&name(number)), mounted.target(&format!("link {number}")))
            .unwrap();
    }
    let check = || {
        for number in 0..200 {
            assert_eq!(
                fs::read(mounted.target(&name(number))).unwrap(),
                content(number),
                "{number}"
            );
        }
        for number in (0..200).step_by(10) {
            let link = mounted.target(&format!("link {number}"));
            assert_eq!(fs::read(link).unwrap(), content(number), "{number}");
        }
    };
    for round in 0..4usize {
        let (from, to) = if round % 2 == 0 { ("fast", "slow") } else { ("slow", "fast") };
        let mut command = thruway();
        command.args(["mount", "move", "--apply", "--from"]).arg(mounted.path(from));
        command.arg("--to").arg(mounted.path(to)).arg(mounted.target(""));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Somewhere in the next file.
        let _ = lines.nth(3 + 17 * round);
        let before = mounted.restarts();
        kill(worker(&mounted));
        wait_until("another worker", || mounted.restarts() > before);
        lines.for_each(drop);
        let _ = child.wait();
        check();
    }
    // A file that a kill has left in both sources is put right by the next move.
    let slow: PathBuf = mounted.path("slow");
    let moved = move_command(&mounted, &["--to", slow.to_str().unwrap(), "--apply"]);
    assert!(moved.status.success(), "{}{}", stdout(&moved), stderr(&moved));
    check();
    let left = files_below(&mounted.path("fast"));
    assert!(left.is_empty(), "{left:?} {}", stdout(&moved));
    assert_eq!(files_below(&mounted.path("slow")).len(), 220);
}

/// The process below the supervisor.
fn worker(mounted: &Mounted) -> u32 {
    let supervisor = mounted.status_of_any("process");
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
    children.unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let files = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => files_below(&entry.path()),
        false => vec![entry.path()],
    };
    entries.flat_map(files).collect()
}
