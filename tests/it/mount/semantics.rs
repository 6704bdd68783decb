//! Semantic cases on a plain folder, on mounts, and on mergerfs if it is installed: links, times, renames, listings,
//! extended attributes, locks, maps, and files that are open and removed.
//!
//! A mount differs from the folder only where `DIFFERENCES` says so, and is nowhere worse than mergerfs.

mod reported;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use std::io::{IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{
    DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    self as rfs, AtFlags, CWD, Dir, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags,
    StatxFlags, XattrFlags,
};
use rustix::io::{Errno, IoSlice, ReadWriteFlags, preadv2, pwritev2};
use thruway_sys::handle::FileHandle;
use thruway_sys::map::ReadOnlyMap;
use thruway_sys::record_lock::{LockKind, RecordLock, conflict, try_lock};
use thruway_testing::skipped;

use super::fixture::{Mounted, wait_until};
use super::submounts::Disks;
use crate::{stderr, thruway};

/// The outcome of a case: facts, or the error at which it ended.
type Outcome = Result<String, Errno>;

/// A case, which begins in an empty folder.
type Case = (&'static str, fn(&Path) -> Outcome);

/// Cases in which a mount differs from a plain folder, with the outcome on the mount.
const DIFFERENCES: [(&str, &str); 1] = [("read without waiting", "error 95")];

/// The case that also has this outcome if its two files are in different sources, as between file systems.
const ACROSS_SOURCES: (&str, &str) = ("an exchange", "error 18");

const CASES: &[Case] = &[
    ("hard links are one file", hard_links_are_one_file),
    ("a hard link of a symbolic link", a_hard_link_of_a_symbolic_link),
    ("a hard link of a folder", a_hard_link_of_a_folder),
    ("a hard link in place of a file", a_hard_link_in_place_of_a_file),
    ("a rename to another link of the file", a_rename_to_another_link),
    ("a symbolic link has the length of its target", a_symbolic_link_has_a_length),
    ("a symbolic link that is not followed", a_symbolic_link_that_is_not_followed),
    ("times have nanoseconds", times_have_nanoseconds),
    ("times before 1970", times_before_1970),
    ("times of a symbolic link", times_of_a_symbolic_link),
    ("a write changes the time and the size", a_write_changes_the_time),
    ("a truncation to the same size changes the time", a_truncation_changes_the_time),
    ("a name changes the time of its folder", a_name_changes_the_time_of_its_folder),
    ("a rename keeps the times of the file", a_rename_keeps_the_times),
    ("a change of mode changes no time of modification", a_change_of_mode_keeps_the_time),
    ("a file has a time of birth that stays", a_file_has_a_time_of_birth),
    ("a rename over an open file", a_rename_over_an_open_file),
    ("a rename that replaces nothing", a_rename_that_replaces_nothing),
    ("an exchange", an_exchange),
    ("a whiteout", a_whiteout),
    ("a rename over a full folder", a_rename_over_a_full_folder),
    ("a rename of a folder into itself", a_rename_into_itself),
    ("a rename between a file and a folder", a_rename_between_kinds),
    ("a folder is renamed below an open file", a_folder_is_renamed_below),
    ("a listing has the numbers of the files", a_listing_has_numbers),
    ("a listing while names are removed", a_listing_while_names_are_removed),
    ("a listing while names are made", a_listing_while_names_are_made),
    ("a listing is read again", a_listing_is_read_again),
    ("names of 255 bytes, and of no text", names_of_any_bytes),
    ("attributes are set, replaced and removed", attributes_are_set),
    ("an attribute for which there is no room", an_attribute_without_room),
    ("attributes of a symbolic link", attributes_of_a_symbolic_link),
    ("an access list and the mode", an_access_list_and_the_mode),
    ("a flock excludes another open file", a_flock_excludes),
    ("a record lock is seen by another process", a_record_lock_is_seen),
    ("a map shows what is written", a_map_shows_what_is_written),
    ("a map outlives its file", a_map_outlives_its_file),
    ("a removed file is used", a_removed_file_is_used),
    ("a removed file and its name again", a_removed_file_and_its_name_again),
    ("a removed folder takes no names", a_removed_folder_takes_no_names),
    ("a file without a name gets one", a_file_without_a_name),
    ("appends by two writers", appends_by_two_writers),
    ("exclusive creation", exclusive_creation),
    ("holes are found", holes_are_found),
    ("space is allocated and given back", space_is_allocated),
    ("a copy in the kernel", a_copy_in_the_kernel),
    ("pipes, sockets and devices", pipes_sockets_and_devices),
    ("a folder passes its group on", a_folder_passes_its_group_on),
    ("direct reads and writes", direct_reads_and_writes),
    ("everything is written to disk", everything_is_written_to_disk),
    ("a program is started", a_program_is_started),
    ("a file by its handle", a_file_by_its_handle),
    ("reopened through proc", reopened_through_proc),
    ("read without waiting", read_without_waiting),
];

fn open(path: &Path) -> Result<File, Errno> {
    let mut options = OpenOptions::new();
    plain(options.read(true).write(true).create(true).truncate(false).open(path))
}

/// Returns an error as the kernel's number.
fn plain<T>(result: std::io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn write(path: &Path, text: &str) -> Result<(), Errno> {
    plain(fs::write(path, text))
}

fn text(path: &Path) -> Result<String, Errno> {
    plain(fs::read_to_string(path))
}

fn meta(path: &Path) -> Result<fs::Metadata, Errno> {
    plain(fs::symlink_metadata(path))
}

fn set_old(path: &Path) -> Result<(), Errno> {
    let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1000));
    plain(File::open(path).and_then(|file| file.set_times(times)))
}

fn names(folder: &Path) -> Result<BTreeSet<String>, Errno> {
    let entries = plain(fs::read_dir(folder))?;
    let name = |entry: fs::DirEntry| String::from_utf8_lossy(entry.file_name().as_bytes()).into();
    Ok(entries.flatten().map(name).collect())
}

fn error_of<T>(result: Result<T, Errno>) -> String {
    format!("{:?}", result.err().map(Errno::raw_os_error))
}

fn hard_links_are_one_file(at: &Path) -> Outcome {
    write(&at.join("a"), "text")?;
    plain(fs::hard_link(at.join("a"), at.join("b")))?;
    let mut file = plain(OpenOptions::new().append(true).open(at.join("b")))?;
    plain(file.write_all(b" more"))?;
    let (a, b) = (meta(&at.join("a"))?, meta(&at.join("b"))?);
    plain(fs::remove_file(at.join("a")))?;
    let left = meta(&at.join("b"))?.nlink();
    Ok(format!("{} {} {} {left}", a.ino() == b.ino(), a.nlink(), a.len()))
}

fn a_hard_link_of_a_symbolic_link(at: &Path) -> Outcome {
    plain(symlink("nowhere", at.join("a")))?;
    rfs::linkat(CWD, at.join("a"), CWD, at.join("b"), AtFlags::empty())?;
    Ok(format!("{} {}", meta(&at.join("b"))?.is_symlink(), meta(&at.join("a"))?.nlink()))
}

fn a_hard_link_of_a_folder(at: &Path) -> Outcome {
    plain(fs::create_dir(at.join("a")))?;
    rfs::linkat(CWD, at.join("a"), CWD, at.join("b"), AtFlags::empty()).map(|()| String::new())
}

fn a_hard_link_in_place_of_a_file(at: &Path) -> Outcome {
    write(&at.join("a"), "a")?;
    write(&at.join("b"), "b")?;
    plain(fs::hard_link(at.join("a"), at.join("b"))).map(|()| String::new())
}

fn a_rename_to_another_link(at: &Path) -> Outcome {
    write(&at.join("a"), "a")?;
    plain(fs::hard_link(at.join("a"), at.join("b")))?;
    plain(fs::rename(at.join("a"), at.join("b")))?;
    Ok(format!("{:?}", names(at)?))
}

fn a_symbolic_link_has_a_length(at: &Path) -> Outcome {
    let target = "x/".repeat(2000);
    plain(symlink(&target, at.join("a")))?;
    let read = plain(fs::read_link(at.join("a")))?;
    Ok(format!("{} {}", meta(&at.join("a"))?.len(), read.as_os_str() == target.as_str()))
}

fn a_symbolic_link_that_is_not_followed(at: &Path) -> Outcome {
    write(&at.join("a"), "a")?;
    plain(symlink("a", at.join("b")))?;
    plain(symlink("c", at.join("c")))?;
    let no_follow = rfs::open(at.join("b"), OFlags::NOFOLLOW, Mode::empty());
    let no_folder = rfs::open(at.join("a"), OFlags::DIRECTORY, Mode::empty());
    Ok(format!("{} {} {}", error_of(no_follow), error_of(no_folder), error_of(text(&at.join("c")))))
}

fn times_have_nanoseconds(at: &Path) -> Outcome {
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_789);
    let file = open(&at.join("a"))?;
    plain(file.set_times(FileTimes::new().set_modified(time).set_accessed(time)))?;
    let meta = meta(&at.join("a"))?;
    Ok(format!("{} {} {}", meta.mtime(), meta.mtime_nsec(), meta.atime_nsec()))
}

fn times_before_1970(at: &Path) -> Outcome {
    let time = SystemTime::UNIX_EPOCH - Duration::from_secs(100_000);
    let file = open(&at.join("a"))?;
    plain(file.set_times(FileTimes::new().set_modified(time)))?;
    Ok(meta(&at.join("a"))?.mtime().to_string())
}

fn times_of_a_symbolic_link(at: &Path) -> Outcome {
    write(&at.join("a"), "")?;
    plain(symlink("a", at.join("b")))?;
    let time = rfs::Timespec { tv_sec: 1000, tv_nsec: 5 };
    let times = rfs::Timestamps { last_access: time, last_modification: time };
    rfs::utimensat(CWD, at.join("b"), &times, AtFlags::SYMLINK_NOFOLLOW)?;
    let (file, link) = (meta(&at.join("a"))?, meta(&at.join("b"))?);
    Ok(format!("{} {} {}", file.mtime() == 1000, link.mtime(), link.mtime_nsec()))
}

fn a_write_changes_the_time(at: &Path) -> Outcome {
    let mut file = open(&at.join("a"))?;
    set_old(&at.join("a"))?;
    let before = meta(&at.join("a"))?.mtime();
    plain(file.write_all(b"text"))?;
    let (by_name, by_file) = (meta(&at.join("a"))?, plain(file.metadata())?);
    Ok(format!("{before} {} {} {}", by_name.mtime() > 1000, by_name.len(), by_file.len()))
}

fn a_truncation_changes_the_time(at: &Path) -> Outcome {
    let file = open(&at.join("a"))?;
    set_old(&at.join("a"))?;
    plain(file.set_len(0))?;
    Ok((meta(&at.join("a"))?.mtime() > 1000).to_string())
}

fn a_name_changes_the_time_of_its_folder(at: &Path) -> Outcome {
    let changes: [&dyn Fn() -> Result<(), Errno>; 4] = [
        &|| write(&at.join("a"), ""),
        &|| plain(fs::hard_link(at.join("a"), at.join("b"))),
        &|| plain(fs::rename(at.join("a"), at.join("c"))),
        &|| plain(fs::remove_file(at.join("c"))),
    ];
    let mut said = String::new();
    for change in changes {
        set_old(at)?;
        change()?;
        said.push_str(&format!("{} ", meta(at)?.mtime() > 1000));
    }
    Ok(said)
}

fn a_rename_keeps_the_times(at: &Path) -> Outcome {
    write(&at.join("a"), "")?;
    set_old(&at.join("a"))?;
    plain(fs::rename(at.join("a"), at.join("b")))?;
    Ok(meta(&at.join("b"))?.mtime().to_string())
}

fn a_change_of_mode_keeps_the_time(at: &Path) -> Outcome {
    write(&at.join("a"), "")?;
    set_old(&at.join("a"))?;
    plain(fs::set_permissions(at.join("a"), Permissions::from_mode(0o640)))?;
    let meta = meta(&at.join("a"))?;
    Ok(format!("{} {:o} {}", meta.mtime(), meta.mode(), meta.ctime() > 1000))
}

fn a_file_has_a_time_of_birth(at: &Path) -> Outcome {
    write(&at.join("a"), "")?;
    let birth = || {
        let stat = rfs::statx(CWD, at.join("a"), AtFlags::empty(), StatxFlags::BTIME)?;
        Ok((stat.stx_mask & StatxFlags::BTIME.bits() != 0, stat.stx_btime.tv_sec))
    };
    let before = birth()?;
    write(&at.join("a"), "text")?;
    Ok(format!("{} {}", before.0, birth()? == before))
}

fn a_rename_over_an_open_file(at: &Path) -> Outcome {
    write(&at.join("a"), "old")?;
    write(&at.join("b"), "new")?;
    let mut old = plain(File::open(at.join("a")))?;
    plain(fs::rename(at.join("b"), at.join("a")))?;
    let mut said = String::new();
    plain(old.read_to_string(&mut said))?;
    Ok(format!("{said} {} {}", plain(old.metadata())?.nlink(), text(&at.join("a"))?))
}

fn a_rename_that_replaces_nothing(at: &Path) -> Outcome {
    write(&at.join("a"), "a")?;
    write(&at.join("b"), "b")?;
    let rename =
        |to: &str| rfs::renameat_with(CWD, at.join("a"), CWD, at.join(to), RenameFlags::NOREPLACE);
    Ok(format!("{} {} {:?}", error_of(rename("b")), error_of(rename("c")), names(at)?))
}

fn an_exchange(at: &Path) -> Outcome {
    write(&at.join("a"), "a")?;
    plain(fs::create_dir(at.join("b")))?;
    rfs::renameat_with(CWD, at.join("a"), CWD, at.join("b"), RenameFlags::EXCHANGE)?;
    Ok(format!("{} {}", meta(&at.join("a"))?.is_dir(), text(&at.join("b"))?))
}

fn a_whiteout(at: &Path) -> Outcome {
    write(&at.join("a"), "a")?;
    rfs::renameat_with(CWD, at.join("a"), CWD, at.join("b"), RenameFlags::WHITEOUT)?;
    let left = meta(&at.join("a"))?;
    Ok(format!("{} {}", left.file_type().is_char_device(), left.rdev()))
}

fn a_rename_over_a_full_folder(at: &Path) -> Outcome {
    plain(fs::create_dir(at.join("a")))?;
    plain(fs::create_dir_all(at.join("b/c")))?;
    let full = error_of(plain(fs::rename(at.join("a"), at.join("b"))));
    plain(fs::remove_dir(at.join("b/c")))?;
    plain(fs::rename(at.join("a"), at.join("b")))?;
    Ok(format!("{full} {:?}", names(at)?))
}

fn a_rename_into_itself(at: &Path) -> Outcome {
    plain(fs::create_dir_all(at.join("a/b")))?;
    plain(fs::rename(at.join("a"), at.join("a/b/c"))).map(|()| String::new())
}

fn a_rename_between_kinds(at: &Path) -> Outcome {
    plain(fs::create_dir(at.join("a")))?;
    write(&at.join("b"), "")?;
    let rename = |from: &str, to: &str| plain(fs::rename(at.join(from), at.join(to)));
    Ok(format!("{} {}", error_of(rename("a", "b")), error_of(rename("b", "a"))))
}

fn a_folder_is_renamed_below(at: &Path) -> Outcome {
    plain(fs::create_dir(at.join("a")))?;
    let mut file = open(&at.join("a/file"))?;
    let folder = plain(File::open(at.join("a")))?;
    plain(fs::rename(at.join("a"), at.join("b")))?;
    plain(file.write_all(b"text"))?;
    let by_folder = rfs::statat(&folder, "file", AtFlags::empty())?;
    Ok(format!("{} {}", text(&at.join("b/file"))?, by_folder.st_size))
}

fn a_listing_has_numbers(at: &Path) -> Outcome {
    for name in ["a", "b", "c"] {
        write(&at.join(name), name)?;
    }
    plain(fs::create_dir(at.join("folder")))?;
    plain(symlink("a", at.join("link")))?;
    let mut said = BTreeSet::new();
    for entry in plain(fs::read_dir(at))?.flatten() {
        use std::os::unix::fs::DirEntryExt;
        let number = meta(&entry.path())?.ino() == entry.ino();
        said.insert(format!("{:?} {:?} {number}", entry.file_name(), entry.file_type().ok()));
    }
    let dots = Dir::read_from(plain(File::open(at))?)?
        .flatten()
        .filter(|entry| entry.file_name() == c"." || entry.file_name() == c"..");
    Ok(format!("{said:?} {}", dots.count()))
}

/// As `rm -r` does it.
fn a_listing_while_names_are_removed(at: &Path) -> Outcome {
    for name in 0..600 {
        write(&at.join(name.to_string()), "")?;
    }
    for entry in plain(fs::read_dir(at))?.flatten() {
        plain(fs::remove_file(entry.path()))?;
    }
    Ok(format!("{}", names(at)?.len()))
}

/// Each name that is there from the beginning to the end is listed once.
fn a_listing_while_names_are_made(at: &Path) -> Outcome {
    for name in 0..400 {
        write(&at.join(format!("old {name}")), "")?;
    }
    let (mut old, mut twice, mut seen) = (0, 0, BTreeSet::new());
    for (number, entry) in plain(fs::read_dir(at))?.flatten().enumerate() {
        let name = entry.file_name();
        old += usize::from(name.as_bytes().starts_with(b"old"));
        twice += usize::from(!seen.insert(name));
        if number < 200 {
            write(&at.join(format!("new {number}")), "")?;
        }
    }
    Ok(format!("{old} {twice}"))
}

fn a_listing_is_read_again(at: &Path) -> Outcome {
    write(&at.join("a"), "")?;
    let mut dir = Dir::read_from(plain(File::open(at))?)?;
    let before = dir.by_ref().flatten().count();
    write(&at.join("b"), "")?;
    dir.rewind();
    Ok(format!("{before} {}", dir.flatten().count()))
}

fn names_of_any_bytes(at: &Path) -> Outcome {
    let odd = std::ffi::OsString::from_vec(b"\xff\n\t\\ *".to_vec());
    write(&at.join(&odd), "odd")?;
    write(&at.join("x".repeat(255)), "")?;
    let long = error_of(write(&at.join("x".repeat(256)), ""));
    let found = plain(fs::read_dir(at))?.flatten().any(|entry| entry.file_name() == odd);
    Ok(format!("{long} {found} {}", text(&at.join(odd))?))
}

fn attributes_are_set(at: &Path) -> Outcome {
    let path = at.join("a");
    write(&path, "")?;
    let set = |value: &[u8], flags| rfs::setxattr(&path, "user.test", value, flags);
    set(b"value", XattrFlags::CREATE)?;
    let again = error_of(set(b"value", XattrFlags::CREATE));
    set(b"longer value", XattrFlags::REPLACE)?;
    let mut value = [0; 64];
    let length = rfs::getxattr(&path, "user.test", &mut value)?;
    let mut list = [0; 256];
    let listed = rfs::listxattr(&path, &mut list)?;
    rfs::removexattr(&path, "user.test")?;
    let gone = error_of(rfs::getxattr(&path, "user.test", &mut value));
    let replaced = error_of(set(b"", XattrFlags::REPLACE));
    let list = String::from_utf8_lossy(&list[..listed]).into_owned();
    Ok(format!("{again} {length} {list:?} {gone} {replaced}"))
}

fn an_attribute_without_room(at: &Path) -> Outcome {
    let path = at.join("a");
    write(&path, "")?;
    rfs::setxattr(&path, "user.test", &[7; 100], XattrFlags::empty())?;
    let none: &mut [u8] = &mut [];
    let length = rfs::getxattr(&path, "user.test", none)?;
    let small = error_of(rfs::getxattr(&path, "user.test", &mut [0; 50]));
    let long = error_of(rfs::setxattr(&path, "user.long", &[7; 70_000], XattrFlags::empty()));
    Ok(format!("{length} {small} {long}"))
}

fn attributes_of_a_symbolic_link(at: &Path) -> Outcome {
    plain(symlink("nowhere", at.join("a")))?;
    rfs::lsetxattr(at.join("a"), "user.test", b"value", XattrFlags::empty()).map(|()| String::new())
}

/// The list gives a user rights, and the mask is the group's part of the mode.
fn an_access_list_and_the_mode(at: &Path) -> Outcome {
    let path = at.join("a");
    write(&path, "")?;
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in [
        (1u16, 6u16, u32::MAX),
        (2, 7, 1000),
        (4, 4, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        list.extend(tag.to_le_bytes().iter().chain(&rights.to_le_bytes()).chain(&id.to_le_bytes()));
    }
    rfs::setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty())?;
    let with_list = meta(&path)?.mode() & 0o777;
    plain(fs::set_permissions(&path, Permissions::from_mode(0o640)))?;
    let mut value = [0; 256];
    let length = rfs::getxattr(&path, "system.posix_acl_access", &mut value)?;
    Ok(format!("{with_list:o} {:?}", &value[..length]))
}

fn a_flock_excludes(at: &Path) -> Outcome {
    let (one, other) = (open(&at.join("a"))?, open(&at.join("a"))?);
    rfs::flock(&one, FlockOperation::LockExclusive)?;
    let refused = error_of(rfs::flock(&other, FlockOperation::NonBlockingLockShared));
    rfs::flock(&one, FlockOperation::Unlock)?;
    rfs::flock(&other, FlockOperation::NonBlockingLockShared)?;
    Ok(refused)
}

fn a_record_lock_is_seen(at: &Path) -> Outcome {
    let (one, other) = (open(&at.join("a"))?, open(&at.join("a"))?);
    let range = RecordLock { kind: LockKind::Exclusive, start: 10, end: 19 };
    plain(try_lock(one.as_fd(), &range))?;
    let beside = RecordLock { start: 20, end: 29, ..range };
    let found = |lock| Ok::<_, Errno>(plain(conflict(other.as_fd(), lock))?.is_some());
    Ok(format!("{} {}", found(&range)?, found(&beside)?))
}

fn a_map_shows_what_is_written(at: &Path) -> Outcome {
    let file = open(&at.join("a"))?;
    plain(file.write_all_at(b"before", 0))?;
    let map = plain(ReadOnlyMap::new(&file))?;
    let before = map.to_vec();
    plain(file.write_all_at(b"after!", 0))?;
    Ok(format!("{before:?} {:?}", map.to_vec()))
}

fn a_map_outlives_its_file(at: &Path) -> Outcome {
    write(&at.join("a"), "text")?;
    let map = plain(ReadOnlyMap::new(&open(&at.join("a"))?))?;
    plain(fs::remove_file(at.join("a")))?;
    write(&at.join("a"), "other")?;
    Ok(format!("{:?}", map.to_vec()))
}

fn a_removed_file_is_used(at: &Path) -> Outcome {
    let mut file = open(&at.join("a"))?;
    plain(fs::remove_file(at.join("a")))?;
    plain(file.write_all(b"some text"))?;
    plain(file.set_len(4))?;
    rfs::fchmod(&file, Mode::from_raw_mode(0o600))?;
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    plain(file.set_times(FileTimes::new().set_modified(time)))?;
    rfs::fsetxattr(&file, "user.test", b"value", XattrFlags::empty())?;
    let mut value = [0; 16];
    let length = rfs::fgetxattr(&file, "user.test", &mut value)?;
    plain(file.seek(SeekFrom::Start(0)))?;
    let mut said = String::new();
    plain(file.read_to_string(&mut said))?;
    let meta = plain(file.metadata())?;
    Ok(format!("{said} {} {:o} {} {length}", meta.nlink(), meta.mode(), meta.mtime()))
}

fn a_removed_file_and_its_name_again(at: &Path) -> Outcome {
    write(&at.join("a"), "old")?;
    let mut old = plain(File::open(at.join("a")))?;
    plain(fs::remove_file(at.join("a")))?;
    write(&at.join("a"), "newer")?;
    let mut said = String::new();
    plain(old.read_to_string(&mut said))?;
    Ok(format!("{said} {} {}", plain(old.metadata())?.len(), meta(&at.join("a"))?.len()))
}

fn a_removed_folder_takes_no_names(at: &Path) -> Outcome {
    plain(fs::create_dir(at.join("a")))?;
    let folder = plain(File::open(at.join("a")))?;
    plain(fs::remove_dir(at.join("a")))?;
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let made = rfs::openat(&folder, "file", flags, Mode::from_raw_mode(0o644));
    Ok(format!("{} {}", error_of(made), plain(folder.metadata())?.nlink()))
}

fn a_file_without_a_name(at: &Path) -> Outcome {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let mut file = File::from(rfs::open(at, flags, Mode::from_raw_mode(0o640))?);
    plain(file.write_all(b"text"))?;
    let before = plain(file.metadata())?.nlink();
    rfs::linkat(&file, "", CWD, at.join("a"), AtFlags::EMPTY_PATH)?;
    let meta = meta(&at.join("a"))?;
    Ok(format!("{before} {} {:o} {}", meta.nlink(), meta.mode() & 0o777, text(&at.join("a"))?))
}

fn appends_by_two_writers(at: &Path) -> Outcome {
    let append = || {
        let mut options = OpenOptions::new();
        plain(options.append(true).create(true).open(at.join("a")))
    };
    let (mut one, mut other) = (append()?, append()?);
    for _ in 0..50 {
        plain(one.write_all(b"one "))?;
        plain(other.write_all(b"other "))?;
    }
    let plain_file = open(&at.join("a"))?;
    pwritev2(&plain_file, &[IoSlice::new(b"end")], 0, ReadWriteFlags::APPEND)?;
    Ok((text(&at.join("a"))? == "one other ".repeat(50) + "end").to_string())
}

fn exclusive_creation(at: &Path) -> Outcome {
    let new =
        || plain(OpenOptions::new().write(true).create_new(true).mode(0o0).open(at.join("a")));
    let mut file = new()?;
    // The mode is for the next open, and not for this one.
    plain(file.write_all(b"text"))?;
    Ok(format!("{} {:o} {}", error_of(new()), meta(&at.join("a"))?.mode(), text(&at.join("a"))?))
}

fn holes_are_found(at: &Path) -> Outcome {
    let file = open(&at.join("a"))?;
    plain(file.write_all_at(b"x", 1 << 20))?;
    plain(file.sync_all())?;
    let data = rfs::seek(&file, rfs::SeekFrom::Data(0))?;
    let hole = rfs::seek(&file, rfs::SeekFrom::Hole(0))?;
    let end = error_of(rfs::seek(&file, rfs::SeekFrom::Data(2 << 20)));
    Ok(format!("{data} {hole} {end} {}", meta(&at.join("a"))?.blocks() < 256))
}

fn space_is_allocated(at: &Path) -> Outcome {
    let file = open(&at.join("a"))?;
    rfs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20)?;
    let kept = plain(file.metadata())?;
    rfs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20)?;
    plain(file.write_all_at(&[7; 8192], 0))?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rfs::fallocate(&file, punch, 0, 4096)?;
    let mut bytes = [9; 8192];
    plain(file.read_exact_at(&mut bytes, 0))?;
    let size = plain(file.metadata())?.len();
    Ok(format!("{} {} {size} {} {}", kept.len(), kept.blocks() >= 2048, bytes[0], bytes[4096]))
}

fn a_copy_in_the_kernel(at: &Path) -> Outcome {
    write(&at.join("a"), "some text")?;
    let (from, to) = (plain(File::open(at.join("a")))?, open(&at.join("b"))?);
    let copied = rfs::copy_file_range(&from, Some(&mut 5), &to, Some(&mut 2), 100)?;
    Ok(format!("{copied} {:?}", text(&at.join("b"))?))
}

fn pipes_sockets_and_devices(at: &Path) -> Outcome {
    let (kind, mode) = (rfs::FileType::Fifo, Mode::from_raw_mode(0o600));
    rfs::mknodat(CWD, at.join("pipe"), kind, mode, 0)?;
    let reader = rfs::open(at.join("pipe"), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
    let mut writer = plain(OpenOptions::new().write(true).open(at.join("pipe")))?;
    plain(writer.write_all(b"text"))?;
    let mut bytes = [0; 8];
    let read = rustix::io::read(&reader, &mut bytes)?;
    // A path of a socket has 108 bytes at most.
    let folder = plain(File::open(at))?;
    let short = format!("/proc/self/fd/{}/socket", std::os::fd::AsRawFd::as_raw_fd(&folder));
    let _listener = plain(UnixListener::bind(&short))?;
    plain(UnixStream::connect(&short))?;
    let kind = meta(&at.join("socket"))?.file_type();
    let device = rfs::FileType::CharacterDevice;
    rfs::mknodat(CWD, at.join("null"), device, mode, rfs::makedev(1, 3))?;
    Ok(format!("{read} {} {}", kind.is_socket(), meta(&at.join("null"))?.rdev()))
}

fn a_folder_passes_its_group_on(at: &Path) -> Outcome {
    plain(std::os::unix::fs::chown(at, None, Some(1000)))?;
    plain(fs::set_permissions(at, Permissions::from_mode(0o2775)))?;
    write(&at.join("a"), "")?;
    plain(DirBuilder::new().mode(0o700).create(at.join("b")))?;
    let (file, folder) = (meta(&at.join("a"))?, meta(&at.join("b"))?);
    Ok(format!("{} {} {:o}", file.gid(), folder.gid(), folder.mode() & 0o7777))
}

fn direct_reads_and_writes(at: &Path) -> Outcome {
    write(&at.join("a"), &"text".repeat(4096))?;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
    let file = plain(options.open(at.join("a")))?;
    // The address of a page is aligned; one page of the buffer begins there.
    let mut buffer = vec![0; 12_288];
    let skip = buffer.as_ptr().align_offset(4096);
    let page = &mut buffer[skip..skip + 4096];
    plain(file.read_exact_at(page, 4096))?;
    Ok(String::from_utf8_lossy(&page[..8]).into_owned())
}

fn everything_is_written_to_disk(at: &Path) -> Outcome {
    let file = open(&at.join("a"))?;
    plain(file.write_all_at(b"text", 0))?;
    rfs::fdatasync(&file)?;
    rfs::fsync(&file)?;
    let folder = plain(File::open(at))?;
    rfs::fsync(&folder)?;
    rfs::syncfs(&folder)?;
    Ok(String::new())
}

fn a_program_is_started(at: &Path) -> Outcome {
    write(&at.join("program"), "#!/bin/sh\necho \"$0 $1\" | sed 's/.*\\///'\n")?;
    plain(fs::set_permissions(at.join("program"), Permissions::from_mode(0o755)))?;
    // A program that another thread starts may have inherited the file that was written, for a moment.
    let said = RefCell::new(String::new());
    wait_until("the program is not busy", || {
        let output = Command::new(at.join("program")).arg("argument").output();
        output.is_ok_and(|output| {
            *said.borrow_mut() = String::from_utf8_lossy(&output.stdout).into_owned();
            true
        })
    });
    Ok(said.into_inner())
}

fn a_file_by_its_handle(at: &Path) -> Outcome {
    write(&at.join("a"), "text")?;
    let folder = plain(File::open(at))?;
    let name = CString::new("a").unwrap();
    let handle = plain(FileHandle::of(folder.as_fd(), &name))?;
    plain(fs::rename(at.join("a"), at.join("b")))?;
    let open = || {
        let file = plain(handle.open(folder.as_fd(), OFlags::RDONLY.bits().cast_signed()))?;
        let mut said = String::new();
        plain(File::from(file).read_to_string(&mut said))?;
        Ok::<_, Errno>(said)
    };
    let said = open()?;
    plain(fs::remove_file(at.join("b")))?;
    Ok(format!("{said} {}", error_of(open())))
}

fn reopened_through_proc(at: &Path) -> Outcome {
    write(&at.join("a"), "text")?;
    let path = rfs::open(at.join("a"), OFlags::PATH, Mode::empty())?;
    plain(fs::rename(at.join("a"), at.join("b")))?;
    text(Path::new(&format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path))))
}

fn read_without_waiting(at: &Path) -> Outcome {
    write(&at.join("a"), "text")?;
    let file = plain(File::open(at.join("a")))?;
    plain(file.read_at(&mut [0; 4], 0))?;
    let mut bytes = [0; 4];
    let read = preadv2(&file, &mut [IoSliceMut::new(&mut bytes)], 0, ReadWriteFlags::NOWAIT)?;
    Ok(read.to_string())
}

/// Runs each case in its own folder below `base`.
fn outcomes(base: &Path) -> Vec<(&'static str, String)> {
    let run = |(number, (name, case)): (usize, &Case)| {
        let folder = base.join(format!("case {number}"));
        fs::create_dir(&folder).unwrap();
        let error = |errno: Errno| format!("error {}", errno.raw_os_error());
        (*name, case(&folder).unwrap_or_else(error))
    };
    CASES.iter().chain(reported::CASES).enumerate().map(run).collect()
}

/// Returns the expected outcomes on a mount: those of the plain folder, but for the known differences.
fn expected(plain: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    let known = |name| DIFFERENCES.iter().find(|(known, _)| *known == name);
    let outcome = |(name, outcome): &(&'static str, String)| {
        (*name, known(*name).map_or(outcome.clone(), |(_, different)| (*different).into()))
    };
    plain.iter().map(outcome).collect()
}

fn compare(sources: &'static [&'static str], arguments: &[&str]) {
    let options = [&["--suid", "--dev"], arguments].concat();
    let Some(mounted) = Mounted::with_sources(sources, &options, |_| ()) else { return };
    fs::create_dir(mounted.path("plain")).unwrap();
    let expected = expected(&outcomes(&mounted.path("plain")));
    let is_random = arguments.contains(&"random");
    for (ours, theirs) in outcomes(&mounted.target("")).iter().zip(&expected) {
        if !is_random || (ours.0, &*ours.1) != ACROSS_SOURCES {
            assert_eq!(ours, theirs, "{sources:?} {arguments:?}");
        }
    }
}

#[test]
fn each_case_is_as_on_a_plain_folder() {
    compare(&["source"], &[]);
}

#[test]
fn each_case_of_several_sources_is_as_on_a_plain_folder() {
    compare(&["source", "second", "third"], &[]);
    compare(&["source", "second", "third"], &["--create", "random"]);
}

#[test]
fn each_case_through_the_daemon_is_as_on_a_plain_folder() {
    compare(&["source"], &["--passthrough", "off"]);
    compare(&["source", "second"], &["--on-full", "move"]);
}

#[test]
fn a_mount_is_nowhere_worse_than_mergerfs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    ["plain", "first", "second", "target"].iter().for_each(|n| fs::create_dir(path(n)).unwrap());
    let mut command = Command::new("mergerfs");
    command.args([
        "-o",
        "allow_other,use_ino,dev,suid,cache.files=auto-full,category.create=ff,minfreespace=0",
    ]);
    command.arg(format!("{}:{}", path("first").display(), path("second").display()));
    match command.arg(path("target")).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => return skipped(String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => return skipped(format_args!("mergerfs: {error}")),
    }
    let (plain, theirs) = (outcomes(&path("plain")), outcomes(&path("target")));
    assert!(Command::new("umount").arg("-l").arg(path("target")).status().unwrap().success());
    for (name, expected) in &plain {
        let their = &theirs.iter().find(|(known, _)| known == name).unwrap().1;
        if their != expected {
            println!("{name}\n  plain    {expected}\n  mergerfs {their}");
        }
        let is_ours_different = DIFFERENCES.iter().any(|(known, _)| known == name);
        assert!(!is_ours_different || their != expected, "mergerfs is better: {name}");
    }
}

/// `df` shows the sum of both disks; only the first takes new files.
#[test]
fn the_space_of_a_mount_is_the_sum_and_what_is_available_is_for_new_files() {
    let mut disks = Disks::default();
    let sizes = [8 << 20, 16 << 20];
    let is_filled = Cell::new(true);
    let fill = |mounted: &Mounted| {
        for (name, bytes) in ["source", "second"].iter().zip(sizes) {
            is_filled.set(is_filled.get() && disks.mount_of(bytes, &mounted.path(name)));
        }
    };
    let Some(mounted) = Mounted::with_sources(&["source", "second"], &[], fill) else { return };
    if !is_filled.get() {
        return;
    }
    let bytes = || {
        let space = rfs::statvfs(mounted.target("")).unwrap();
        [space.f_blocks, space.f_bavail].map(|blocks| blocks * space.f_frsize)
    };
    assert_eq!(bytes(), [24 << 20, 24 << 20]);
    let mut closed = mounted.path("second").into_os_string();
    closed.push("=NC");
    let mut add = thruway();
    add.args(["mount", "add"]).arg(mounted.target("")).arg(closed);
    let output = add.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(bytes(), [24 << 20, 8 << 20]);
}

#[test]
fn a_mount_without_extended_attributes_has_none() {
    let Some(mounted) = Mounted::new(&["--xattr", "off"]) else { return };
    fs::write(mounted.source("file"), "").unwrap();
    let set = |path| rfs::setxattr(path, "user.test", b"value", XattrFlags::empty());
    set(mounted.source("file")).unwrap();
    let file = mounted.target("file");
    assert_eq!(set(file.clone()), Err(Errno::OPNOTSUPP));
    assert_eq!(rfs::getxattr(&file, "user.test", &mut [0; 8]), Err(Errno::OPNOTSUPP));
    assert_eq!(rfs::listxattr(&file, &mut [0; 8]), Err(Errno::OPNOTSUPP));
}
