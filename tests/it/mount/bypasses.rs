//! Attempts to bypass a policy. Each test is a sequence of operations that once gave access that a rule refuses.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::fs::{self as raw, AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use super::fixture::{Mounted, wait_until};
use super::policy::{as_user, errno, names, ruled, ruled_in, ruled_with, write};
use crate::{run, stderr, stdout};
use thruway_testing::skipped;

const ACCESS: Option<i32> = Some(13);
const NOENT: Option<i32> = Some(2);
const XDEV: Option<i32> = Some(18);

fn exchange(old: PathBuf, new: PathBuf) -> Result<(), Errno> {
    raw::renameat_with(CWD, old, CWD, new, RenameFlags::EXCHANGE)
}

/// Opens a descriptor that names a file without opening its data.
fn named(path: PathBuf) -> OwnedFd {
    raw::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// Opens the file that the descriptor names for reading.
fn reopened(named: &OwnedFd) -> std::io::Result<File> {
    File::open(format!("/proc/self/fd/{}", named.as_raw_fd()))
}

#[test]
fn a_file_gets_no_name_under_which_other_rules_hold() {
    let rules = "[[rule]]\npaths = [\"*.jpg\"]\naccess = \"read\"\n\
        content = { regex = 'GPS' }\nverdict = \"deny\"\n";
    let fill = |mounted: &Mounted| {
        ["a.jpg", "c.jpg"].iter().for_each(|name| write(mounted, name, "GPS"));
        write(mounted, "b", "text");
    };
    let Some(mounted) = ruled(rules, fill) else { return };
    let at = |name: &str| mounted.target(name);
    assert_eq!(errno(fs::rename(at("a.jpg"), at("a"))), XDEV);
    assert_eq!(errno(fs::rename(at("a.jpg"), at("b"))), XDEV);
    assert_eq!(errno(fs::hard_link(at("a.jpg"), at("a"))), XDEV);
    assert_eq!(exchange(at("a.jpg"), at("b")), Err(Errno::XDEV));
    assert_eq!(exchange(at("b"), at("a.jpg")), Err(Errno::XDEV));
    // The renaming user has the file open, and may not read it under the new name.
    let open = File::open(at("b")).unwrap();
    assert_eq!(errno(fs::rename(at("b"), at("b.jpg"))), XDEV);
    drop(open);
    fs::rename(at("a.jpg"), at("b.jpg")).unwrap();
    fs::hard_link(at("b.jpg"), at("d.jpg")).unwrap();
    exchange(at("b.jpg"), at("c.jpg")).unwrap();
    assert_eq!(names(&at("")), ["b", "b.jpg", "c.jpg", "d.jpg"]);
    for name in ["b.jpg", "c.jpg", "d.jpg"] {
        assert_eq!(errno(fs::read(at(name))), ACCESS, "{name}");
    }
    let nameless = raw::open(at(""), OFlags::RDWR | OFlags::TMPFILE, Mode::RWXU).unwrap();
    let link = |name: &str| raw::linkat(&nameless, "", CWD, at(name), AtFlags::EMPTY_PATH);
    assert_eq!(link("new.jpg"), Err(Errno::XDEV));
    link("new").unwrap();
}

#[test]
fn mv_copies_what_may_not_be_renamed_and_the_copy_is_checked() {
    let rules = "[[rule]]\npaths = [\".*\"]\nuids = [1000]\nverdict = \"deny\"\n";
    let fill = |mounted: &Mounted| write(mounted, "folder/.secret", "text");
    let Some(mounted) = ruled(rules, fill) else { return };
    let number = |path: PathBuf| fs::metadata(path).unwrap().ino();
    let before = number(mounted.source("folder/.secret"));
    let mut mv = Command::new("mv");
    mv.arg(mounted.target("folder/.secret")).arg(mounted.target("folder/known"));
    assert!(mv.status().unwrap().success());
    assert_eq!(fs::read_to_string(mounted.source("folder/known")).unwrap(), "text");
    assert_ne!(number(mounted.source("folder/known")), before);
    assert_eq!(errno(fs::metadata(mounted.source("folder/.secret"))), NOENT);
}

#[test]
fn a_file_is_renamed_over_another_one_by_users_that_no_rule_about_it_refuses() {
    let rules = "[[rule]]\npaths = [\"mail\"]\nuids = [1000]\naccess = \"read\"\n\
        verdict = \"deny\"\n";
    let Some(mounted) = ruled(rules, |mounted| write(mounted, "mail", "old")) else { return };
    let at = |name: &str| mounted.target(name);
    fs::write(at("mail.new"), "new").unwrap();
    fs::rename(at("mail.new"), at("mail")).unwrap();
    assert_eq!(fs::read_to_string(at("mail")).unwrap(), "new");
    // The other name would give access to data that is written under this name.
    fs::write(at("mail.new"), "newer").unwrap();
    fs::hard_link(at("mail.new"), at("other")).unwrap();
    assert_eq!(errno(fs::rename(at("mail.new"), at("mail"))), XDEV);
    fs::set_permissions(at(""), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    as_user(1000, || {
        fs::write(at("mine"), "mine").unwrap();
        assert_eq!(errno(fs::rename(at("mine"), at("mail"))), XDEV);
    });
}

#[test]
fn a_folder_takes_nothing_to_where_other_rules_match() {
    let rules = "[[rule]]\npaths = [\".well-known\"]\nverdict = \"allow\"\n\
        [[rule]]\npaths = [\".*\"]\nverdict = \"hide\"\n\
        [[rule]]\npaths = [\"in/*/key\"]\nverdict = \"deny\"\n";
    let fill = |mounted: &Mounted| {
        let all = ["a/.git/config", "b/.well-known/x", "in/c/key", "in/d/key", "out/e"];
        all.iter().for_each(|name| write(mounted, name, "text"));
    };
    let Some(mounted) = ruled(rules, fill) else { return };
    let at = |name: &str| mounted.target(name);
    assert_eq!(errno(fs::rename(at("a"), at(".well-known"))), XDEV);
    assert_eq!(exchange(at("a"), at("b/.well-known")), Err(Errno::XDEV));
    assert_eq!(exchange(at("b/.well-known"), at("a")), Err(Errno::XDEV));
    assert_eq!(errno(fs::rename(at("in/c"), at("c"))), XDEV);
    assert_eq!(errno(fs::rename(at("out"), at("in/out"))), XDEV);
    assert_eq!(exchange(at("out"), at("in/c")), Err(Errno::XDEV));
    assert_eq!(errno(fs::read(at("a/.git/config"))), NOENT);
    fs::rename(at("in/c"), at("in/f")).unwrap();
    exchange(at("in/f"), at("in/d")).unwrap();
    assert_eq!(errno(fs::read(at("in/f/key"))), ACCESS);
    fs::rename(at("a"), at("g")).unwrap();
    assert_eq!(errno(fs::read(at("g/.git/config"))), NOENT);
}

#[test]
fn a_hidden_name_stays_hidden_although_a_user_may_make_it() {
    let rules = "[[rule]]\nuids = [0]\nverdict = \"allow\"\n\
        [[rule]]\npaths = [\".*\"]\nverdict = \"hide\"\n";
    let Some(mounted) = ruled(rules, |_| ()) else { return };
    fs::create_dir(mounted.target(".folder")).unwrap();
    fs::write(mounted.target(".file"), "text").unwrap();
    assert_eq!(fs::read_to_string(mounted.source(".file")).unwrap(), "text");
    as_user(1000, || {
        for name in [".folder", ".file"] {
            assert_eq!(errno(fs::metadata(mounted.target(name))), NOENT, "{name}");
        }
    });
}

/// Writes through a map of the file. Its page is dirty already, so no time changes.
const THROUGH_A_MAP: &str = "
import mmap, os, sys, time
path, keeps = sys.argv[1], sys.argv[2] == 'open'
file = os.open(path, os.O_RDWR)
held = mmap.mmap(file, 4096)
held[0:4] = b'fine'
if not keeps:
    os.close(file)
for _ in range(3):
    time.sleep(0.05)
    assert open(path, 'rb').read(4) == b'fine'
held[0:4] = b'EVIL'
try:
    open(path, 'rb')
    print('passed')
except PermissionError:
    print('refused')
held[0:4] = b'fine'
assert open(path, 'rb').read(4) == b'fine'
";

fn map(options: &[&str], keeps: &str) -> Option<(String, String)> {
    if Command::new("python3").arg("--version").output().is_err() {
        skipped("python3 is not installed");
        return None;
    }
    let rules = "[[rule]]\ncontent = { magic = '45 56 49 4c' }\naccess = \"read\"\n\
        verdict = \"deny\"\n";
    let fill = |mounted: &Mounted| write(mounted, "a", &"x".repeat(4096));
    let mounted = ruled_with(options, rules, fill)?;
    let mut python = Command::new("python3");
    python.args(["-c", THROUGH_A_MAP]).arg(mounted.target("a")).arg(keeps);
    let output = python.output().unwrap();
    Some((stdout(&output).to_owned(), stderr(&output).to_owned()))
}

#[test]
fn what_is_written_through_a_map_is_checked_at_the_next_open() {
    for keeps in ["open", "closed"] {
        let Some(said) = map(&[], keeps) else { return };
        assert_eq!(said, ("refused\n".into(), String::new()), "{keeps}");
    }
}

#[test]
fn with_daemon_io_checked_files_are_not_mapped_for_writing() {
    let Some((said, error)) = map(&["--passthrough", "off"], "open") else { return };
    assert_eq!(said, "");
    assert!(error.contains("[Errno 19]"), "{error}");
}

#[test]
fn a_file_with_several_names_is_checked_by_the_name_in_use() {
    let rules = "[[rule]]\npaths = [\"secret\"]\nverdict = \"deny\"\n";
    let fill = |mounted: &Mounted| {
        write(mounted, "secret/x", "text");
        write(mounted, "open/y", "");
        fs::hard_link(mounted.source("secret/x"), mounted.source("open/x")).unwrap();
    };
    let Some(mounted) = ruled(rules, fill) else { return };
    let at = |name: &str| mounted.target(name);
    let look_up = |name: &'static str| {
        let path = at(name);
        thread::spawn(move || fs::metadata(path).unwrap()).join().unwrap()
    };
    let read = |name: &str| fs::read_to_string(at(name));
    for _ in 0..2 {
        assert_eq!(read("open/x").unwrap(), "text");
        assert_eq!(errno(read("secret/x")), ACCESS);
    }
    let (secret, open) = (named(at("secret/x")), named(at("open/x")));
    look_up("secret/x");
    assert!(reopened(&open).is_ok());
    fs::metadata(at("secret/x")).unwrap();
    look_up("open/x");
    assert_eq!(errno(reopened(&secret)), ACCESS);
    // A thread that has looked up none of them, and has a descriptor: all known names count.
    let is_refused = thread::spawn(move || errno(reopened(&open))).join().unwrap();
    assert_eq!(is_refused, ACCESS);
    fs::hard_link(at("open/x"), at("open/z")).unwrap();
    assert_eq!(errno(fs::hard_link(at("secret/x"), at("open/w"))), ACCESS);
    assert_eq!(errno(fs::rename(at("open/z"), at("secret/z"))), ACCESS);
    assert_eq!((read("open/z").unwrap(), read("open/x").unwrap()), ("text".into(), "text".into()));
}

/// Takes a file's name away through the mount.
type TakesAway = fn(&Mounted);

/// None of these ways leaves a name in the folder, so the folder can be removed and forgotten.
#[test]
fn a_name_that_is_gone_counts_no_more_when_its_folder_is_forgotten() {
    let rules = "[[rule]]\npaths = [\"secret\"]\nverdict = \"deny\"\n";
    let ways: [(&str, TakesAway); 4] = [
        ("renamed", |mounted| fs::rename(mounted.target("d/x"), mounted.target("e/z")).unwrap()),
        ("removed", |mounted| fs::remove_file(mounted.target("d/x")).unwrap()),
        ("replaced", |mounted| {
            fs::rename(mounted.target("e/other"), mounted.target("d/x")).unwrap();
            fs::remove_file(mounted.target("d/x")).unwrap();
        }),
        ("exchanged", |mounted| {
            exchange(mounted.target("d/x"), mounted.target("e/other")).unwrap();
            fs::remove_file(mounted.target("d/x")).unwrap();
        }),
    ];
    for (way, take_away) in ways {
        let fill = |mounted: &Mounted| {
            ["d/x", "e/other"].iter().for_each(|name| write(mounted, name, "text"));
            for name in ["e/x", "e/y"] {
                fs::hard_link(mounted.source("d/x"), mounted.source(name)).unwrap();
            }
        };
        let Some(mounted) = ruled(rules, fill) else { return };
        let file = named(mounted.target("e/x"));
        fs::metadata(mounted.target("d/x")).unwrap();
        take_away(&mounted);
        let inodes = || mounted.status("inodes").as_u64();
        let before = inodes();
        fs::remove_dir(mounted.target("d")).unwrap();
        wait_until("the folder is forgotten", || inodes() < before);
        // The reading thread has looked up none of the names.
        let reopened = thread::spawn(move || reopened(&file)).join().unwrap();
        assert_eq!(reopened.map(drop).map_err(|error| error.raw_os_error()), Ok(()), "{way}");
    }
}

#[test]
fn what_is_refused_for_what_it_holds_is_not_made_to_hold_something_else() {
    let rules = "[[rule]]\ncontent = { magic = '23 21' }\naccess = \"read\"\nverdict = \"deny\"\n\
        [[rule]]\npaths = [\"inbox\"]\naccess = \"read\"\nverdict = \"deny\"\n";
    let fill = |mounted: &Mounted| {
        ["a", "b"].iter().for_each(|name| write(mounted, name, "#! secret"));
        write(mounted, "inbox", "secret");
    };
    let Some(mounted) = ruled(rules, fill) else { return };
    let append = |name: &str| File::options().append(true).open(mounted.target(name));
    assert_eq!(errno(File::options().write(true).open(mounted.target("a"))), ACCESS);
    assert_eq!(errno(append("a")), ACCESS);
    let cut = raw::open(mounted.target("b"), OFlags::WRONLY, Mode::empty());
    assert_eq!(cut.unwrap_err(), Errno::ACCESS);
    // Without an open file, as truncate(1) does not.
    let mut truncate = Command::new("perl");
    truncate.args(["-e", "exit(truncate($ARGV[0], 4) ? 0 : $!+0)"]).arg(mounted.target("a"));
    assert_eq!(truncate.status().unwrap().code(), ACCESS);
    // Replacing the whole content reveals nothing, and a drop box can be written to.
    fs::write(mounted.target("a"), "new").unwrap();
    append("inbox").unwrap();
}

#[test]
fn what_is_opened_to_be_read_and_written_has_to_be_allowed_both() {
    let rules = "[[rule]]\naccess = \"write\"\nverdict = \"allow\"\n\
        [[rule]]\npaths = [\"box\"]\nverdict = \"deny\"\n";
    let Some(mounted) = ruled(rules, |mounted| write(mounted, "box", "text")) else { return };
    let open = |reads: bool| File::options().read(reads).write(true).open(mounted.target("box"));
    open(false).unwrap();
    assert_eq!(errno(open(true)), ACCESS);
}

#[test]
fn targets_of_links_and_extended_attributes_need_permission_to_read() {
    let rules = "[[rule]]\npaths = [\"secret\"]\nuids = [1000]\naccess = \"read\"\n\
        verdict = \"deny\"\n";
    let fill = |mounted: &Mounted| {
        write(mounted, "secret/a", "text");
        symlink("elsewhere", mounted.source("secret/link")).unwrap();
        let set = |name: &str| {
            raw::setxattr(mounted.source("secret/a"), name, b"value", XattrFlags::empty()).unwrap();
        };
        ["user.note", "security.note"].iter().for_each(|name| set(name));
    };
    let Some(mounted) = ruled(rules, fill) else { return };
    let (link, file) = (mounted.target("secret/link"), mounted.target("secret/a"));
    let attribute = |name: &str| raw::getxattr(&file, name, &mut [0; 9][..]);
    let listed = || {
        let mut names = vec![0; 99];
        let length = raw::listxattr(&file, names.as_mut_slice()).unwrap();
        String::from_utf8(names[..length].to_vec()).unwrap()
    };
    let look = || (fs::read_link(&link).ok(), attribute("user.note").ok());
    // Root looks first: the kernel caches nothing of the result for other users.
    assert_eq!(look(), (Some("elsewhere".into()), Some(5)));
    assert!(listed().contains("user.note"));
    as_user(1000, || {
        assert_eq!(errno(fs::read_link(&link)), ACCESS);
        assert_eq!(attribute("user.note"), Err(Errno::ACCESS));
        assert_eq!(listed(), "security.note\0");
        assert_eq!(fs::symlink_metadata(&link).unwrap().len(), 9);
        assert_eq!(fs::metadata(&file).unwrap().len(), 4);
        assert_eq!(errno(fs::metadata(&link)), ACCESS);
    });
}

#[test]
fn a_copy_from_a_file_with_daemon_io_is_checked_too() {
    let rules = "[[rule]]\npaths = [\"in\"]\ncontent = { regex = 'EVIL' }\nverdict = \"deny\"\n\
        [[rule]]\npaths = [\"in\"]\nverdict = \"daemon-io\"\n";
    let Some(mounted) = ruled(rules, |mounted| write(mounted, "in/a", "good")) else { return };
    let from = File::open(mounted.target("in/a")).unwrap();
    let to = File::create(mounted.target("copy")).unwrap();
    let copy = || raw::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 4);
    assert_eq!(copy(), Ok(4));
    fs::write(mounted.source("in/a"), "EVIL").unwrap();
    assert!(from.read_exact_at(&mut [0; 4], 0).is_err());
    assert_eq!(copy(), Err(Errno::ACCESS));
}

#[test]
fn what_the_kernel_makes_up_is_no_source() {
    let target = tempfile::tempdir().unwrap();
    for (source, kind) in [("/proc", "proc"), ("/proc/self", "proc"), ("/sys", "sysfs")] {
        if !Path::new(source).join(".").is_dir() {
            skipped(format_args!("{source} is not mounted"));
            continue;
        }
        let output = run(&["mount", source, target.path().to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{source}");
        let said = format!("thruway: cannot mount {source}: it is {kind}");
        assert!(stderr(&output).starts_with(&said), "{}", stderr(&output));
    }
}

/// The source reserves blocks for another user, which threads without `CAP_SYS_RESOURCE` may not use. Quotas are not
/// tested, because the kernels at hand had none.
#[test]
fn what_the_source_keeps_back_is_kept_back_from_the_mount() {
    let own = rustix::thread::capabilities(None).unwrap();
    if !own.effective.contains(rustix::thread::CapabilitySet::SYS_RESOURCE) {
        skipped("nothing is kept back: this process has no CAP_SYS_RESOURCE itself");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    if !disk_in_a_file(folder.path(), &["-m", "40"], "loop,resuid=65534") {
        return;
    }
    for passthrough in ["on", "off"] {
        let options = ["mount", "--allow-other", "--passthrough", passthrough];
        let output = run(&[&options[..], &[&at("disk"), &at("target")]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let file = File::create(at("target/file")).unwrap();
        let written = file.write_all_at(&vec![1; 18 << 20], 0).and_then(|()| file.sync_all());
        assert_eq!(errno(written), Some(28), "{passthrough}");
        drop(file);
        fs::remove_file(at("target/file")).unwrap();
        assert!(run(&["unmount", &at("target")]).status.success());
    }
    assert!(did("umount", &["-l", &at("disk")]));
}

/// On a file system with times in whole seconds, two contents of the same second have the same stamp.
#[test]
fn what_was_found_in_a_content_counts_once_the_next_change_would_show() {
    let folder = tempfile::tempdir().unwrap();
    // Inodes of 128 bytes have no room for more than seconds.
    if !disk_in_a_file(folder.path(), &["-I", "128"], "loop") {
        return;
    }
    let disk = folder.path().join("disk");
    let rules = "[[rule]]\ncontent = { regex = 'EVIL' }\naccess = \"read\"\nverdict = \"deny\"\n";
    if let Some(mounted) = ruled_in(Some(&disk), rules, |_| {}) {
        // A second ends within at most one of these checks.
        for name in ["a", "b", "c"] {
            write(&mounted, name, "good");
            // Longer than two ticks of the clock of file times.
            thread::sleep(Duration::from_millis(60));
            assert_eq!(fs::read(mounted.target(name)).unwrap(), b"good");
            write(&mounted, name, "EVIL");
            assert_eq!(errno(fs::read(mounted.target(name))), ACCESS, "{name}");
        }
    }
    assert!(did("umount", &["-l", disk.to_str().unwrap()]));
}

/// Creates an ext4 file system in a file, mounts it at `disk`, and creates a folder `target` beside it.
fn disk_in_a_file(folder: &Path, made_with: &[&str], mounted_with: &str) -> bool {
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    File::create(at("image")).unwrap().set_len(32 << 20).unwrap();
    ["disk", "target"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
    let is_made = did("mkfs.ext4", &[&["-q"], made_with, &[at("image").as_str()]].concat())
        && did("mount", &["-t", "ext4", "-o", mounted_with, &at("image"), &at("disk")]);
    if !is_made {
        skipped("no file system in a file can be made and mounted");
    }
    is_made
}

fn did(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}
