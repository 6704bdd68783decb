//! Several sources in one view.

use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};

use super::fixture::{Mounted, kill, wait_until};
use crate::{stderr, thruway};

const SOURCES: &[&str] = &["first", "second", "third"];

/// Mounts three sources: the names `only_…` are in one source, `all` is in every source, and `folder` is merged from
/// two.
fn merged(arguments: &[&str]) -> Option<Mounted> {
    Mounted::with_sources(SOURCES, arguments, |mounted| {
        for source in SOURCES {
            let write = |name: &str| {
                let path = mounted.path(source).join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, *source).unwrap();
            };
            write("all");
            write(&format!("only_{source}"));
            if *source != "second" {
                write(&format!("folder/{source}"));
                write("folder/both");
            }
        }
        fs::create_dir_all(mounted.path("second/deep/er")).unwrap();
    })
}

fn names(mounted: &Mounted, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(mounted.target(folder)).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(mounted: &Mounted, name: &str) -> String {
    fs::read_to_string(mounted.target(name)).unwrap_or_else(|error| error.to_string())
}

#[test]
fn the_first_source_that_has_a_name_wins() {
    let Some(mounted) = merged(&[]) else { return };
    let root = ["all", "deep", "folder", "only_first", "only_second", "only_third"];
    assert_eq!(names(&mounted, ""), root);
    assert_eq!(names(&mounted, "folder"), ["both", "first", "third"]);
    assert_eq!(
        (text(&mounted, "all"), text(&mounted, "folder/both")),
        ("first".into(), "first".into())
    );
    assert_eq!(
        (text(&mounted, "only_third"), text(&mounted, "folder/third")),
        ("third".into(), "third".into())
    );
    // Two reads of the same listing agree, entry by entry.
    let inode = |name: &str| fs::metadata(mounted.target(name)).unwrap().ino();
    for entry in fs::read_dir(mounted.target("")).unwrap().flatten() {
        assert_eq!(entry.ino(), inode(entry.file_name().to_str().unwrap()));
    }
}

#[test]
fn a_name_costs_one_request_and_then_none_whether_it_is_there_or_not() {
    let Some(mounted) = merged(&[]) else { return };
    fs::metadata(mounted.target("only_first")).unwrap();
    let before = mounted.requests("lookup");
    for _ in 0..10 {
        // The name alone suffices: further attributes are requested only once, too.
        assert!(!mounted.target("missing").is_file());
        assert!(mounted.target("only_third").symlink_metadata().is_ok());
    }
    assert_eq!(mounted.requests("lookup"), before + 2);
}

#[test]
fn what_is_made_goes_where_the_policy_says() {
    for (policy, folder, root) in
        [("parent", "second", "first"), ("first", "first", "first"), ("none", "", "")]
    {
        let Some(mounted) = merged(&["--create", policy]) else { return };
        let made = fs::write(mounted.target("deep/er/new"), "new");
        assert_eq!(made.is_ok(), !folder.is_empty(), "{policy}: {made:?}");
        let in_root = fs::create_dir(mounted.target("new"));
        assert_eq!(in_root.is_ok(), !root.is_empty(), "{policy}: {in_root:?}");
        if policy == "none" {
            assert_eq!(made.unwrap_err().raw_os_error(), Some(30));
            continue;
        }
        assert_eq!(text(&mounted, "deep/er/new"), "new");
        assert_eq!(names(&mounted, "deep/er"), ["new"]);
        let has =
            |source: &str, name: &str| mounted.path(source).join(name).symlink_metadata().is_ok();
        for source in SOURCES {
            assert_eq!(has(source, "deep/er/new"), *source == folder, "{policy} {source}");
            assert_eq!(has(source, "new"), *source == root, "{policy} {source}");
        }
    }
}

#[test]
fn a_name_is_removed_from_every_source() {
    let Some(mounted) = merged(&[]) else { return };
    fs::remove_file(mounted.target("all")).unwrap();
    assert!(fs::metadata(mounted.target("all")).is_err());
    assert!(SOURCES.iter().all(|source| fs::metadata(mounted.path(source).join("all")).is_err()));
    let full = fs::remove_dir(mounted.target("folder")).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(39));
    fs::remove_dir_all(mounted.target("folder")).unwrap();
    assert!(fs::metadata(mounted.path("third/folder")).is_err());
    assert!(!names(&mounted, "").contains(&"folder".to_owned()));
}

#[test]
fn a_rename_stays_within_its_sources_or_is_one_to_another_file_system() {
    let Some(mounted) = merged(&["--make-folders", "off"]) else { return };
    let rename = |old: &str, new: &str| fs::rename(mounted.target(old), mounted.target(new));
    // `folder` is in the first and in the third, and so is each of its new names.
    rename("folder", "renamed").unwrap();
    assert_eq!(names(&mounted, "renamed"), ["both", "first", "third"]);
    assert!(fs::metadata(mounted.path("third/renamed/both")).is_ok());
    rename("renamed/both", "both").unwrap();
    assert!(fs::metadata(mounted.path("third/both")).is_ok());
    // `deep` is in the second only.
    let away = rename("only_first", "deep/only_first").unwrap_err();
    assert_eq!(away.raw_os_error(), Some(18));
    let link = fs::hard_link(mounted.target("only_first"), mounted.target("deep/link"));
    assert_eq!(link.unwrap_err().raw_os_error(), Some(18));
    fs::hard_link(mounted.target("only_second"), mounted.target("deep/link")).unwrap();
    // The name in an earlier source would hide the renamed file.
    rename("only_third", "all").unwrap();
    assert_eq!(text(&mounted, "all"), "third");
    assert!(fs::metadata(mounted.path("first/all")).is_err());
}

/// A file that a rename replaces is gone in each source, as `sed -i` and editors expect. Nothing of it appears when the
/// new file goes.
#[test]
fn a_rename_replaces_the_files_of_all_sources() {
    let Some(mounted) = merged(&[]) else { return };
    let rename = |old: &str, new: &str| {
        let renamed = fs::rename(mounted.target(old), mounted.target(new));
        renamed.map_err(|error| error.raw_os_error())
    };
    let is_in =
        |source: &str, name: &str| mounted.path(source).join(name).symlink_metadata().is_ok();
    // `only_first` comes before the files that it replaces.
    rename("only_first", "only_third").unwrap();
    assert!(is_in("first", "only_third") && !is_in("third", "only_third"));
    fs::remove_file(mounted.target("only_third")).unwrap();
    assert!(!names(&mounted, "").contains(&"only_third".to_owned()));
    // A folder replaces an empty one of another source, and no full one.
    fs::create_dir(mounted.path("third/empty")).unwrap();
    fs::create_dir_all(mounted.path("second/full/name")).unwrap();
    fs::create_dir(mounted.path("first/mine")).unwrap();
    fs::write(mounted.path("first/mine/file"), "").unwrap();
    wait_until("the folders are seen", || {
        ["empty", "full", "mine"].iter().all(|name| mounted.target(name).is_dir())
    });
    assert_eq!(rename("mine", "full"), Err(Some(39)));
    assert_eq!(rename("mine", "only_second"), Err(Some(20)));
    assert_eq!(rename("only_second", "mine"), Err(Some(21)));
    rename("mine", "empty").unwrap();
    assert!(is_in("first", "empty/file") && !is_in("third", "empty"));
    assert_eq!(names(&mounted, "empty"), ["file"]);
}

#[test]
fn a_rename_changes_nothing_in_a_read_only_source() {
    let Some(mounted) = Mounted::with_sources(&["first", "second"], &[], |mounted| {
        for (source, name) in [("first", "new"), ("second", "old"), ("second", "new")] {
            fs::write(mounted.path(source).join(name), source).unwrap();
        }
    }) else {
        return;
    };
    let set = |source: &str, access: &str, place: &[&str]| {
        let mut given = mounted.path(source).into_os_string();
        given.push(access);
        let mut command = thruway();
        command.args(["mount", "add"]).args(place).arg(mounted.target("")).arg(given);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    };
    let rename = |old: &str, new: &str| fs::rename(mounted.target(old), mounted.target(new));
    set("first", "=RO", &["--first"]);
    // The file of the read-only source would hide the new name.
    assert_eq!(rename("old", "new").unwrap_err().raw_os_error(), Some(30));
    assert_eq!(text(&mounted, "new"), "first");
    set("first", "", &["--first"]);
    set("second", "=RO", &[]);
    fs::write(mounted.target("newer"), "newer").unwrap();
    rename("newer", "new").unwrap();
    assert_eq!(text(&mounted, "new"), "newer");
    assert_eq!(fs::read_to_string(mounted.path("second/new")).unwrap(), "second");
}

#[test]
fn a_merged_folder_is_changed_in_every_source() {
    let Some(mounted) = merged(&[]) else { return };
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o710);
    fs::set_permissions(mounted.target("folder"), mode).unwrap();
    for source in ["first", "third"] {
        let folder = fs::metadata(mounted.path(source).join("folder")).unwrap();
        assert_eq!(folder.mode() & 0o777, 0o710, "{source}");
    }
}

#[test]
fn what_others_change_in_any_source_is_seen() {
    let Some(mounted) = merged(&[]) else { return };
    assert_eq!(text(&mounted, "only_third"), "third");
    assert!(fs::metadata(mounted.target("new")).is_err());
    fs::write(mounted.path("second/new"), "second").unwrap();
    wait_until("a new name", || text(&mounted, "new") == "second");
    fs::write(mounted.path("first/only_third"), "first now").unwrap();
    wait_until("an earlier source", || text(&mounted, "only_third") == "first now");
    fs::remove_file(mounted.path("first/only_third")).unwrap();
    wait_until("the later source again", || text(&mounted, "only_third") == "third");
    fs::remove_file(mounted.path("third/only_third")).unwrap();
    wait_until("nothing", || fs::metadata(mounted.target("only_third")).is_err());
    // A folder gains another part.
    assert_eq!(names(&mounted, "folder"), ["both", "first", "third"]);
    fs::create_dir(mounted.path("second/folder")).unwrap();
    fs::write(mounted.path("second/folder/second"), "").unwrap();
    wait_until("a part more", || names(&mounted, "folder").len() == 4);
    fs::remove_dir_all(mounted.path("second/folder")).unwrap();
    wait_until("a part less", || names(&mounted, "folder").len() == 3);
}

#[test]
fn a_source_that_breaks_gives_errors_for_its_own_names_only() {
    let Some(inner) = Mounted::new(&[]) else { return };
    fs::write(inner.source("broken"), "").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("whole")).unwrap();
    fs::create_dir(path("target")).unwrap();
    fs::write(path("whole/good"), "good").unwrap();
    let mut command = thruway();
    command.arg("mount").arg(path("whole")).arg(inner.target("")).arg(path("target"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::metadata(path("target/broken")).is_ok());
    inner.processes().into_iter().for_each(kill);
    wait_until("the inner mount is dead", || fs::metadata(inner.target("broken")).is_err());
    assert_eq!(fs::read_to_string(path("target/good")).unwrap(), "good");
    fs::write(path("target/new"), "new").unwrap();
    wait_until("its error", || fs::metadata(path("target/broken")).is_err());
    assert!(thruway().arg("unmount").arg(path("target")).status().unwrap().success());
}
