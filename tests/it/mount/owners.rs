//! Owners and modes that are mapped: as they are shown, and as they are written to the sources.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::fixture::Mounted;
use crate::{run, stderr};
use thruway_testing::skipped;

/// A user of the sources, and the user that the mount shows instead.
const SOURCE: u32 = 54_321;
const SHOWN: u32 = 54_322;
/// A user whom no option mentions.
const OTHER: u32 = 54_323;

const MAPPED: [&str; 3] =
    ["--allow-other", "--map-user=54321:54322", "--map-group=54321:54322,60000:70000:10"];

/// Runs a script in the folder as this user with these groups; `None` if this machine cannot.
fn run_as(user: u32, groups: &str, script: &str, folder: &Path) -> Option<Output> {
    let user = user.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user]);
    command.args(if groups.is_empty() { vec!["--clear-groups"] } else { vec!["--groups", groups] });
    let output = command.args(["sh", "-euc", script]).current_dir(folder).output();
    output.map_err(|error| skipped(format_args!("setpriv: {error}"))).ok()
}

/// Makes a mount that other users may enter, or `None` if this machine or this user cannot.
fn mounted(sources: &'static [&'static str], arguments: &[&str]) -> Option<Mounted> {
    if rustix::process::geteuid().as_raw() != 0 {
        skipped("only root may give files away");
        return None;
    }
    let mounted = Mounted::with_sources(sources, arguments, |mounted| {
        for name in sources {
            chown(mounted.path(name), Some(SOURCE), Some(SOURCE)).unwrap();
        }
    })?;
    fs::set_permissions(mounted.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    Some(mounted)
}

fn owners(path: &Path) -> (u32, u32) {
    let stat = fs::symlink_metadata(path).unwrap();
    (stat.uid(), stat.gid())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// An access list for a named user and a named group.
fn access_list(user: u32, group: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries =
        [(1, 6, none), (2, 6, user), (4, 4, none), (8, 6, group), (16, 6, none), (32, 0, none)];
    let entry = |(tag, permissions, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    2_u32.to_le_bytes().into_iter().chain(entries.into_iter().flat_map(entry)).collect()
}

#[test]
fn mapped_owners_are_shown_and_written_with_every_operation() {
    let Some(mounted) = mounted(&["source", "second"], &MAPPED) else { return };
    let script = "umask 022; echo text >file; mkdir folder; mkfifo pipe; ln -s file link; ln file hard; \
                  echo more >>hard; chmod 640 hard; chgrp 70003 file; echo deep >folder/deep";
    let Some(output) = run_as(SHOWN, "70003", script, &mounted.target("")) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    for name in ["folder", "pipe", "link", "folder/deep"] {
        assert_eq!(owners(&mounted.source(name)), (SOURCE, SOURCE), "{name}");
        assert_eq!(owners(&mounted.target(name)), (SHOWN, SHOWN), "{name}");
    }
    assert_eq!(owners(&mounted.source("file")), (SOURCE, 60_003));
    assert_eq!(owners(&mounted.target("file")), (SHOWN, 70_003));
    assert_eq!(fs::read_to_string(mounted.source("file")).unwrap(), "text\nmore\n");
    // The kernel checks the owners that the mount shows, also for a member of a group.
    let reads = |user, groups| {
        run_as(user, groups, "cat file", &mounted.target("")).unwrap().status.success()
    };
    assert!(reads(SHOWN, "") && reads(OTHER, "70003"));
    assert!(!reads(SOURCE, "") && !reads(OTHER, "60003"));
    // No file is shown as this user's, so the user cannot create a file that it would own.
    set_mode(&mounted.source(""), 0o777).unwrap();
    let refused = run_as(SOURCE, "", "mkdir mine", &mounted.target("")).unwrap();
    assert!(stderr(&refused).contains("Value too large"), "{}", stderr(&refused));
    let made = run_as(OTHER, "", "echo >theirs", &mounted.target("")).unwrap();
    assert!(made.status.success() && owners(&mounted.source("theirs")) == (OTHER, OTHER));
    // Data moves as without a map.
    assert_eq!(mounted.status("passthrough"), true);
    assert_eq!(mounted.status("counts")["opens_daemon_io"], 0);
    let said = mounted.status("owners");
    assert_eq!(said, "user 54321 as 54322, group 54321 as 54322, group 60000 as 70000 (10)");
}

#[test]
fn a_change_of_owner_is_translated_and_one_to_the_owner_that_is_shown_changes_nothing() {
    let Some(mounted) = mounted(&["source"], &MAPPED) else { return };
    for (name, owner) in [("mapped", SOURCE), ("own", SHOWN), ("other", OTHER)] {
        fs::write(mounted.source(name), "").unwrap();
        chown(mounted.source(name), Some(owner), Some(owner)).unwrap();
    }
    for name in ["mapped", "own"] {
        assert_eq!(owners(&mounted.target(name)), (SHOWN, SHOWN));
        let before = owners(&mounted.source(name));
        chown(mounted.target(name), Some(SHOWN), Some(SHOWN)).unwrap();
        assert_eq!(owners(&mounted.source(name)), before, "{name}");
    }
    chown(mounted.target("other"), Some(SHOWN), Some(70_009)).unwrap();
    assert_eq!(owners(&mounted.source("other")), (SOURCE, 60_009));
    let refused = chown(mounted.target("other"), Some(SOURCE), None).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(75));
    assert_eq!(owners(&mounted.source("other")), (SOURCE, 60_009));
    chown(mounted.target("other"), Some(0), Some(70_010)).unwrap();
    assert_eq!(owners(&mounted.source("other")), (0, 70_010));
}

#[test]
fn access_lists_name_the_users_and_groups_of_the_mount() {
    const ACCESS: &str = "system.posix_acl_access";
    let Some(mounted) = mounted(&["source"], &MAPPED) else { return };
    fs::write(mounted.source("file"), "text").unwrap();
    let set =
        setxattr(mounted.target("file"), ACCESS, &access_list(SHOWN, 70_001), XattrFlags::empty());
    if set == Err(rustix::io::Errno::OPNOTSUPP) {
        return skipped("the file system has no access lists");
    }
    set.unwrap();
    let list = |path: &Path| {
        let mut bytes = [0; 256];
        let length = getxattr(path, ACCESS, &mut bytes).unwrap();
        bytes[..length].to_vec()
    };
    assert_eq!(list(&mounted.source("file")), access_list(SOURCE, 60_001));
    assert_eq!(list(&mounted.target("file")), access_list(SHOWN, 70_001));
    let writes = |user, groups| {
        run_as(user, groups, "echo >>file", &mounted.target("")).unwrap().status.success()
    };
    assert!(writes(SHOWN, "") && writes(OTHER, "70001"));
    assert!(!writes(SOURCE, "") && !writes(OTHER, "60001"));
    let refused =
        setxattr(mounted.target("file"), ACCESS, &access_list(SOURCE, 5), XattrFlags::empty());
    assert_eq!(refused, Err(rustix::io::Errno::OVERFLOW));
}

#[test]
fn a_forced_owner_works_with_all_files_and_gains_nobodys_rights_in_the_source() {
    let forced = ["--allow-other", "--force-user=54322", "--force-group=54322"];
    let Some(mounted) = mounted(&["source"], &forced) else { return };
    fs::create_dir(mounted.source("roots")).unwrap();
    for (name, mode) in
        [("roots/file", 0o600), ("roots/program", 0o4750), ("roots/grouped", 0o2710)]
    {
        fs::write(mounted.source(name), "text").unwrap();
        set_mode(&mounted.source(name), mode).unwrap();
    }
    let act = |script: &str| run_as(SHOWN, "", script, &mounted.target("roots")).unwrap();
    let script = "cat file >copy; mkdir folder; mv file folder/moved; echo new >>folder/moved; \
                  chmod 644 folder/moved; touch -d 2001-02-03 copy; rm copy; echo >made";
    let output = act(script);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(owners(&mounted.target("roots/folder/moved")), (SHOWN, SHOWN));
    // A file keeps its owner in the source, and a new file belongs to its creator.
    assert_eq!(owners(&mounted.source("roots/folder/moved")), (0, 0));
    assert_eq!(owners(&mounted.source("roots/made")), (SHOWN, SHOWN));
    // Whoever runs such a program in the source would get the rights of its owner there.
    for (script, name) in [
        ("echo >program", "roots/program"),
        ("echo >>grouped", "roots/grouped"),
        ("chmod 4755 program", "roots/program"),
        ("chmod u+s folder/moved", "roots/folder/moved"),
        ("chmod g+s folder/moved", "roots/folder/moved"),
    ] {
        let before = (mode(&mounted.source(name)), fs::read(mounted.source(name)).unwrap());
        assert!(!act(script).status.success(), "{script}");
        let after = (mode(&mounted.source(name)), fs::read(mounted.source(name)).unwrap());
        assert_eq!(after, before, "{script}");
    }
    assert!(act("chmod 0750 program && echo >program").status.success());
    // The owner is fixed.
    let refused = chown(mounted.target("roots/made"), Some(OTHER), None).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(1));
    chown(mounted.target("roots/made"), Some(SHOWN), Some(SHOWN)).unwrap();
    assert_eq!(owners(&mounted.source("roots/made")), (SHOWN, SHOWN));
}

#[test]
fn new_files_are_for_the_user_and_with_the_mode_that_the_options_say() {
    let created = [
        "--allow-other",
        "--create-user=54321",
        "--create-group=54321",
        "--create-mode=ug=rwX,o=",
        "--force-user=54322",
        "--fixed-changes=ignore",
    ];
    let Some(mounted) = mounted(&["source"], &created) else { return };
    let script = "umask 077; echo >file; mkdir folder; chown 54323 file; cp -p file copy; chmod 4711 copy; \
                  install -m 6755 /bin/true program";
    let Some(output) = run_as(SHOWN, "", script, &mounted.target("")) else { return };
    assert!(output.status.success() || stderr(&output).contains("chown"), "{}", stderr(&output));
    // An ordinary user may not change an owner at all; root's change is ignored.
    chown(mounted.target("file"), Some(OTHER), None).unwrap();
    let script = "umask 077; cp -p file copy; chmod 4711 copy; install -m 6755 /bin/true program";
    let output = run_as(SHOWN, "", script, &mounted.target("")).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for (name, bits) in [("file", 0o660), ("folder", 0o770), ("copy", 0o711), ("program", 0o755)] {
        assert_eq!(owners(&mounted.source(name)), (SOURCE, SOURCE), "{name}");
        assert_eq!(mode(&mounted.source(name)), bits, "{name}");
    }
}

#[test]
fn shown_modes_decide_what_users_may_do() {
    let Some(mounted) = mounted(&["source"], &["--allow-other", "--mode=go-w,fa-x,o-r"]) else {
        return;
    };
    fs::write(mounted.source("file"), "text").unwrap();
    set_mode(&mounted.source("file"), 0o777).unwrap();
    symlink("file", mounted.source("link")).unwrap();
    set_mode(&mounted.source(""), 0o777).unwrap();
    assert_eq!(mode(&mounted.target("file")), 0o640);
    assert_eq!(mode(&mounted.target("link")), 0o777);
    assert_eq!(mode(&mounted.target("")), 0o751);
    let reads = |user| run_as(user, "", "cat file", &mounted.target("")).unwrap().status.success();
    assert!(!reads(OTHER));
    // Bits that the program does not change stay in the source.
    set_mode(&mounted.target("file"), 0o600).unwrap();
    assert_eq!(mode(&mounted.source("file")), 0o737);
    assert_eq!(mode(&mounted.target("file")), 0o600);
    let refused = set_mode(&mounted.target("file"), 0o666).unwrap_err();
    assert_eq!((refused.raw_os_error(), mode(&mounted.source("file"))), (Some(1), 0o737));
    // An access list would say something else.
    let list = access_list(OTHER, OTHER);
    for path in [mounted.source("file"), mounted.target("file")] {
        let is_shown = path.starts_with(mounted.target(""));
        let set = setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty());
        assert!(!is_shown || set == Err(rustix::io::Errno::OPNOTSUPP), "{set:?}");
    }
    assert!(!reads(OTHER));
}

#[test]
fn what_would_lend_the_rights_of_another_user_is_refused() {
    for (arguments, words) in [
        (&["--suid", "--mode=a+x"][..], "--suid cannot be combined"),
        (&["--dev", "--force-user=5"], "--dev cannot be combined"),
        (&["--force-user=5", "--map-user=1:2"], "cannot be used with"),
        (&["--map-user=1:2,1:3"], "the owner 1 of the source is mapped twice"),
        (&["--map-user=1:2,3:2"], "the owner 2 of the mount is mapped twice"),
        (&["--map-group=no-such-group:5"], "there is no group \"no-such-group\""),
        (&["--force-user=4294967295"], "is not the number of a user"),
        (&["--mode=u+s"], "'u+s' is not a mode such as"),
        (&["--create-mode=1777"], "'1777' is not a mode such as"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("source"), folder.path().join("target"));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&target).unwrap();
        let places = [source.to_str().unwrap(), target.to_str().unwrap()];
        let output = run(&[&["mount"], arguments, &places].concat());
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
}
