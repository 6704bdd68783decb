//! Cases that users of other file systems of this kind have reported as faults there.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{
    self as rfs, AtFlags, CWD, Dir, Mode, OFlags, SeekFrom as Place, Timespec, Timestamps,
    XattrFlags,
};
use rustix::io::Errno;
use thruway_sys::map::ReadOnlyMap;

use super::{Case, Outcome, error_of, meta, names, open, plain, set_old, text, write};

pub(super) const CASES: &[Case] = &[
    ("links are counted at once", links_are_counted_at_once),
    ("a file is open in several ways", a_file_is_open_in_several_ways),
    ("a map while its folder is listed", a_map_while_its_folder_is_listed),
    ("the mode of a symbolic link", the_mode_of_a_symbolic_link),
    ("the link that is left is written", the_link_that_is_left_is_written),
    ("a folder of a removed open file", a_folder_of_a_removed_open_file),
    ("a large tree is removed", a_large_tree_is_removed),
    ("a listing goes back", a_listing_goes_back),
    ("a file without permissions is changed", a_file_without_permissions_is_changed),
    ("times of now, and times that stay", times_of_now_and_times_that_stay),
    ("lengths of attributes and of their list", lengths_of_attributes),
    ("a tree takes the place of a removed one", a_tree_takes_the_place),
    ("an append after a truncation", an_append_after_a_truncation),
    ("a dangling link and creation", a_dangling_link_and_creation),
    ("a program that runs is not written", a_program_that_runs_is_not_written),
    ("an exclusive file without a name", an_exclusive_file_without_a_name),
    ("a copy within a file", a_copy_within_a_file),
    ("the end of a file that others extend", the_end_of_a_file),
    ("deep folders and their path", deep_folders_and_their_path),
    ("data of a file that is replaced in turn", a_file_that_is_replaced_in_turn),
    ("the longest names are linked and renamed", the_longest_names),
];

fn links_are_counted_at_once(at: &Path) -> Outcome {
    write(&at.join("a"), "")?;
    let count = || meta(&at.join("a")).map(|meta| meta.nlink());
    let mut counts = vec![count()?];
    plain(fs::hard_link(at.join("a"), at.join("b")))?;
    counts.push(count()?);
    plain(fs::rename(at.join("b"), at.join("c")))?;
    counts.push(count()?);
    write(&at.join("d"), "")?;
    plain(fs::rename(at.join("d"), at.join("c")))?;
    counts.push(count()?);
    Ok(format!("{counts:?}"))
}

fn a_file_is_open_in_several_ways(at: &Path) -> Outcome {
    write(&at.join("a"), "text")?;
    let mut options = OpenOptions::new();
    let reader = plain(File::open(at.join("a")))?;
    let direct = OFlags::DIRECT.bits().cast_signed();
    let direct = plain(options.read(true).custom_flags(direct).open(at.join("a")));
    let writer = open(&at.join("a"))?;
    let appender = plain(OpenOptions::new().append(true).open(at.join("a")));
    plain(writer.write_all_at(b"T", 0))?;
    plain(appender?.write_all(b" end"))?;
    let mut said = [0; 8];
    plain(reader.read_exact_at(&mut said, 0))?;
    plain(options.custom_flags(0).open(at.join("a")))?;
    let length = plain(direct?.metadata())?.len();
    Ok(format!("{} {length}", String::from_utf8_lossy(&said)))
}

fn a_map_while_its_folder_is_listed(at: &Path) -> Outcome {
    write(&at.join("a"), &"text".repeat(3000))?;
    let map = plain(ReadOnlyMap::new(&plain(File::open(at.join("a")))?))?;
    let before = map.to_vec();
    let listed = names(at)?;
    plain(
        fs::read_dir(at).and_then(|all| all.flatten().try_for_each(|it| it.metadata().map(drop))),
    )?;
    Ok(format!("{listed:?} {}", map.to_vec() == before))
}

fn the_mode_of_a_symbolic_link(at: &Path) -> Outcome {
    write(&at.join("a"), "")?;
    plain(fs::set_permissions(at.join("a"), Permissions::from_mode(0o640)))?;
    plain(symlink("a", at.join("b")))?;
    let link = rfs::open(at.join("b"), OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", link.as_raw_fd());
    let changed = rfs::chmod(path, Mode::from_raw_mode(0o600));
    Ok(format!("{} {:o}", error_of(changed), meta(&at.join("a"))?.mode()))
}

fn the_link_that_is_left_is_written(at: &Path) -> Outcome {
    write(&at.join("a"), &"x".repeat(312))?;
    plain(fs::hard_link(at.join("a"), at.join("b")))?;
    let reader = plain(File::open(at.join("a")))?;
    plain(fs::remove_file(at.join("a")))?;
    let file = open(&at.join("b"))?;
    plain(file.write_all_at(b"other", 0))?;
    plain(file.set_len(5))?;
    let mut said = String::new();
    plain((&reader).read_to_string(&mut said))?;
    Ok(format!("{said} {} {}", text(&at.join("b"))?, meta(&at.join("b"))?.nlink()))
}

fn a_folder_of_a_removed_open_file(at: &Path) -> Outcome {
    plain(fs::create_dir(at.join("a")))?;
    let mut file = open(&at.join("a/b"))?;
    plain(fs::remove_file(at.join("a/b")))?;
    plain(fs::remove_dir(at.join("a")))?;
    plain(file.write_all(b"text"))?;
    Ok(format!("{} {:?}", plain(file.metadata())?.nlink(), names(at)?))
}

fn a_large_tree_is_removed(at: &Path) -> Outcome {
    for number in 0..1000 {
        let folder = at.join(format!("a/{}/{}/{}", number % 10, number / 10 % 10, number / 100));
        plain(fs::create_dir_all(&folder))?;
        write(&folder.join("file"), "")?;
    }
    plain(fs::remove_dir_all(at.join("a")))?;
    Ok(format!("{:?}", names(at)?))
}

fn a_listing_goes_back(at: &Path) -> Outcome {
    (0..500).try_for_each(|number| write(&at.join(format!("file {number:03}")), ""))?;
    let mut dir = Dir::new(plain(File::open(at))?)?;
    let mut next = || dir.next().transpose();
    let mut places = Vec::new();
    while let Some(entry) = next()? {
        places.push((entry.offset(), entry.file_name().to_owned()));
    }
    // After each place comes the same name as before, also if others were removed.
    let mut is_right = true;
    for at_place in [400, 3, 250, 0, 499] {
        dir.seek(places[at_place].0)?;
        let name = dir.next().transpose()?.map(|entry| entry.file_name().to_owned());
        is_right &= name.as_ref() == places.get(at_place + 1).map(|(_, name)| name);
    }
    let removed = |(_, name): &&(_, std::ffi::CString)| !name.to_bytes().starts_with(b".");
    for (_, name) in places[..100].iter().filter(removed) {
        rfs::unlinkat(&plain(File::open(at))?, name.as_c_str(), AtFlags::empty())?;
    }
    dir.rewind();
    let left = dir.filter(Result::is_ok).count();
    Ok(format!("{} {is_right} {}", places.len(), left == names(at)?.len() + 2))
}

fn a_file_without_permissions_is_changed(at: &Path) -> Outcome {
    write(&at.join("a"), "text")?;
    plain(fs::set_permissions(at.join("a"), Permissions::from_mode(0o0)))?;
    rfs::setxattr(at.join("a"), "user.test", b"value", XattrFlags::empty())?;
    set_old(&at.join("a"))?;
    plain(OpenOptions::new().write(true).open(at.join("a")).and_then(|it| it.set_len(2)))?;
    plain(fs::set_permissions(at.join("a"), Permissions::from_mode(0o600)))?;
    text(&at.join("a"))
}

fn times_of_now_and_times_that_stay(at: &Path) -> Outcome {
    write(&at.join("a"), "")?;
    set_old(&at.join("a"))?;
    let special = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    let set = |accessed, modified| {
        let (last_access, last_modification) = (special(accessed), special(modified));
        let times = Timestamps { last_access, last_modification };
        rfs::utimensat(CWD, at.join("a"), &times, AtFlags::empty())
    };
    set(rfs::UTIME_NOW, rfs::UTIME_OMIT)?;
    let first = meta(&at.join("a"))?;
    set(rfs::UTIME_OMIT, rfs::UTIME_NOW)?;
    let second = meta(&at.join("a"))?;
    let is_kept = (first.atime(), first.atime_nsec()) == (second.atime(), second.atime_nsec());
    Ok(format!("{} {} {is_kept} {}", first.mtime(), first.atime() > 1000, second.mtime() > 1000))
}

fn lengths_of_attributes(at: &Path) -> Outcome {
    write(&at.join("a"), "")?;
    let list = |size: usize| rfs::listxattr(at.join("a"), vec![0; size].as_mut_slice());
    let empty = list(4096)?;
    for number in 0..20 {
        let name = format!("user.test{number}");
        rfs::setxattr(at.join("a"), &*name, &[7; 30], XattrFlags::empty())?;
    }
    let length = list(4096)?;
    let value =
        |size: usize| rfs::getxattr(at.join("a"), "user.test7", vec![0; size].as_mut_slice());
    let short = [error_of(list(length - 1)), error_of(value(29))];
    let exact = [list(length)?, value(30)?];
    Ok(format!("{empty} {length} {short:?} {exact:?}"))
}

fn a_tree_takes_the_place(at: &Path) -> Outcome {
    plain(fs::create_dir_all(at.join("a/b")))?;
    ["c", "d"].iter().try_for_each(|name| write(&at.join("a/b").join(name), name))?;
    plain(fs::create_dir_all(at.join("copy/b")))?;
    ["c", "d"].iter().try_for_each(|name| write(&at.join("copy/b").join(name), name))?;
    plain(fs::remove_dir_all(at.join("a")))?;
    plain(fs::rename(at.join("copy/b/c"), at.join("copy/b/e")))?;
    plain(fs::rename(at.join("copy"), at.join("a")))?;
    Ok(format!("{:?} {:?}", names(at)?, names(&at.join("a/b"))?))
}

fn an_append_after_a_truncation(at: &Path) -> Outcome {
    let mut appender = plain(OpenOptions::new().append(true).create(true).open(at.join("a")))?;
    plain(appender.write_all(b"0123456789"))?;
    plain(open(&at.join("a"))?.set_len(2))?;
    plain(appender.write_all(b"end"))?;
    let place = plain(appender.stream_position())?;
    Ok(format!("{} {place}", text(&at.join("a"))?))
}

fn a_dangling_link_and_creation(at: &Path) -> Outcome {
    plain(symlink("b", at.join("a")))?;
    let exclusive = error_of(plain(File::create_new(at.join("a"))).map(drop));
    write(&at.join("a"), "text")?;
    Ok(format!("{exclusive} {:?} {}", names(at)?, text(&at.join("b"))?))
}

fn a_program_that_runs_is_not_written(at: &Path) -> Outcome {
    plain(fs::copy("/bin/sleep", at.join("sleep")))?;
    let mut child = plain(Command::new(at.join("sleep")).arg("60").spawn())?;
    let written = plain(OpenOptions::new().write(true).open(at.join("sleep")));
    let replaced = write(&at.join("other"), "")
        .and_then(|()| plain(fs::rename(at.join("other"), at.join("sleep"))));
    plain(child.kill())?;
    plain(child.wait())?;
    Ok(format!("{} {}", error_of(written), error_of(replaced)))
}

fn an_exclusive_file_without_a_name(at: &Path) -> Outcome {
    let make = |flags| {
        let file = rfs::open(at, OFlags::TMPFILE | OFlags::RDWR | flags, Mode::RWXU)?;
        rustix::io::write(&file, b"text")?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let linked = rfs::linkat(CWD, &path, CWD, at.join("a"), AtFlags::SYMLINK_FOLLOW);
        Ok::<_, Errno>(error_of(linked))
    };
    Ok(format!("{} {} {}", make(OFlags::EXCL)?, make(OFlags::empty())?, text(&at.join("a"))?))
}

fn a_copy_within_a_file(at: &Path) -> Outcome {
    write(&at.join("a"), "0123456789")?;
    let file = open(&at.join("a"))?;
    let copy = |mut from: u64, mut to: u64| {
        rfs::copy_file_range(&file, Some(&mut from), &file, Some(&mut to), 4)
    };
    let copied = copy(0, 10)?;
    Ok(format!("{copied} {} {}", error_of(copy(0, 2)), text(&at.join("a"))?))
}

fn the_end_of_a_file(at: &Path) -> Outcome {
    let mut one = open(&at.join("a"))?;
    let other = open(&at.join("a"))?;
    plain(other.write_all_at(b"text", 4))?;
    let end = plain(one.seek(SeekFrom::End(0)))?;
    plain(other.set_len(100))?;
    let longer = rfs::seek(&one, Place::End(-10))?;
    plain(rfs::ftruncate(&other, 3).map_err(Into::into))?;
    Ok(format!(
        "{end} {longer} {} {}",
        plain(one.seek(SeekFrom::End(0)))?,
        meta(&at.join("a"))?.len()
    ))
}

fn deep_folders_and_their_path(at: &Path) -> Outcome {
    let name = "x".repeat(200);
    let mut folder = rfs::open(at, OFlags::DIRECTORY, Mode::empty())?;
    for _ in 0..40 {
        rfs::mkdirat(&folder, &*name, Mode::RWXU)?;
        folder = rfs::openat(&folder, &*name, OFlags::DIRECTORY, Mode::empty())?;
    }
    rfs::openat(&folder, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU)?;
    let found = rfs::statat(&folder, "file", AtFlags::empty())?.st_size;
    // The path of the last folder is longer than the kernel takes (PATH_MAX).
    plain(Command::new("rm").arg("-r").arg(at.join(&name)).status())?;
    Ok(format!("{found} {:?}", names(at)?))
}

fn a_file_that_is_replaced_in_turn(at: &Path) -> Outcome {
    let mut said = String::new();
    let mut open = Vec::new();
    for number in 0..20 {
        write(&at.join("new"), &format!("{number} "))?;
        plain(fs::rename(at.join("new"), at.join("a")))?;
        open.push(plain(File::open(at.join("a")))?);
    }
    open.iter_mut().try_for_each(|file| plain(file.read_to_string(&mut said).map(drop)))?;
    Ok(said)
}

fn the_longest_names(at: &Path) -> Outcome {
    let [one, other] = ["x", "y"].map(|letter| at.join(letter.repeat(255)));
    write(&one, "text")?;
    plain(fs::hard_link(&one, &other))?;
    plain(fs::remove_file(&one))?;
    plain(fs::rename(&other, &one))?;
    plain(symlink("a", &other))?;
    let long = write(&at.join("z".repeat(256)), "");
    let length = rfs::statvfs(at)?.f_namemax;
    Ok(format!("{} {} {} {length}", text(&one)?, error_of(long), names(at)?.len()))
}
