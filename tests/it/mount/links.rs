//! A mount follows symbolic links.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use super::fixture::Mounted;
use crate::{run, stderr};
use thruway_testing::skipped;

const FOLLOWED: [&str; 1] = ["--follow-symlinks=regular"];

/// A user whose links are followed, and another user.
const USER: u32 = 54_321;
const OTHER: u32 = 54_322;

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().file_type().is_symlink()
}

/// Two sources: the links are in the first one, and most files are in the second.
fn two_sources(mounted: &Mounted) {
    for folder in ["source/films", "second/films/new", "outside"] {
        fs::create_dir_all(mounted.path(folder)).unwrap();
    }
    fs::write(mounted.path("source/films/near"), "near").unwrap();
    fs::write(mounted.path("second/films/far"), "far").unwrap();
    fs::write(mounted.path("second/films/new/deep"), "deep").unwrap();
    fs::write(mounted.path("outside/secret"), "secret").unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(mounted.path("second/pipe"))
            .status()
            .unwrap()
            .success()
    );
    let absolute = mounted.path("second/films/far");
    let (shown, outside) = (mounted.target("films/far"), mounted.path("outside/secret"));
    let links: [(&str, &Path); 14] = [
        ("films/beside", Path::new("near")),
        ("films/to-far", Path::new("./far")),
        ("films/above", Path::new("../films/new/../far")),
        ("to-deep", Path::new("films/new/deep")),
        ("absolute", &absolute),
        ("by-target", &shown),
        ("folder", Path::new("films/new")),
        ("through", Path::new("folder/deep")),
        ("chain", Path::new("films/to-far")),
        ("dangling", Path::new("films/later")),
        ("loop", Path::new("loop")),
        ("escape", Path::new("../outside/secret")),
        ("absolute-escape", &outside),
        ("to-pipe", Path::new("pipe")),
    ];
    for (name, target) in links {
        symlink(target, mounted.source(name)).unwrap();
    }
}

#[test]
fn links_to_files_below_the_sources_are_shown_as_these_files_and_others_stay_links() {
    let mounted = Mounted::with_sources(&["source", "second"], &FOLLOWED, two_sources);
    let Some(mounted) = mounted else { return };
    for (name, text) in [
        ("films/beside", "near"),
        ("films/to-far", "far"),
        ("films/above", "far"),
        ("to-deep", "deep"),
        ("absolute", "far"),
        ("by-target", "far"),
        ("through", "deep"),
        ("chain", "far"),
    ] {
        let stat = fs::symlink_metadata(mounted.target(name)).unwrap();
        assert!(stat.is_file(), "{name}: {stat:?}");
        assert_eq!(fs::read_to_string(mounted.target(name)).unwrap(), text, "{name}");
    }
    let number = |name| fs::symlink_metadata(mounted.target(name)).unwrap().ino();
    assert_eq!(number("chain"), number("films/far"));
    let kept = ["folder", "dangling", "loop", "escape", "absolute-escape", "to-pipe"];
    assert_eq!(kept.map(|name| is_link(&mounted.target(name))), [true; 6]);
    // A listing does not call a followed link a link.
    for entry in fs::read_dir(mounted.target("")).unwrap() {
        let entry = entry.unwrap();
        let (listed, asked) = (entry.file_type().unwrap(), entry.metadata().unwrap().file_type());
        assert_eq!(listed, asked, "{entry:?}");
    }
    assert_eq!(fs::read_link(mounted.target("folder")).unwrap(), Path::new("films/new"));
    assert_eq!(mounted.status("follows_links"), true);
    assert_eq!(mounted.status("counts")["opens_daemon_io"], 0);
}

#[test]
fn a_followed_link_changes_its_file_and_is_itself_removed_renamed_and_replaced() {
    let mounted = Mounted::with_sources(&["source", "second"], &FOLLOWED, two_sources);
    let Some(mounted) = mounted else { return };
    fs::write(mounted.target("chain"), "written").unwrap();
    fs::set_permissions(mounted.target("chain"), fs::Permissions::from_mode(0o640)).unwrap();
    let far = mounted.path("second/films/far");
    assert_eq!(fs::read_to_string(&far).unwrap(), "written");
    assert_eq!(fs::metadata(&far).unwrap().mode() & 0o777, 0o640);
    // The renamed link's relative target counts from the new place.
    fs::rename(mounted.target("films/beside"), mounted.target("beside")).unwrap();
    assert!(is_link(&mounted.source("beside")) && is_link(&mounted.target("beside")));
    fs::rename(mounted.target("beside"), mounted.target("films/again")).unwrap();
    assert_eq!(fs::read_to_string(mounted.target("films/again")).unwrap(), "near");
    fs::remove_file(mounted.target("chain")).unwrap();
    assert!(fs::symlink_metadata(mounted.source("chain")).is_err());
    assert_eq!(fs::read_to_string(&far).unwrap(), "written");
    // Another program changes a link's target, and creates and removes the file.
    fs::remove_file(mounted.source("to-deep")).unwrap();
    symlink("films/near", mounted.source("to-deep")).unwrap();
    assert_eq!(fs::read_to_string(mounted.target("to-deep")).unwrap(), "near");
    fs::write(mounted.source("films/later"), "late").unwrap();
    assert_eq!(fs::read_to_string(mounted.target("dangling")).unwrap(), "late");
    fs::rename(mounted.source("films/later"), mounted.source("films/gone")).unwrap();
    assert!(is_link(&mounted.target("dangling")));
    // A new link is a link to its maker, and is followed from then on.
    symlink("films/near", mounted.target("made")).unwrap();
    assert_eq!(fs::read_to_string(mounted.target("made")).unwrap(), "near");
    assert!(fs::symlink_metadata(mounted.target("made")).unwrap().is_file());
    // A file that is open by a link stays open when the link is gone.
    let open = fs::File::open(mounted.target("made")).unwrap();
    fs::remove_file(mounted.target("made")).unwrap();
    assert_eq!(std::io::read_to_string(&open).unwrap(), "near");
    assert_eq!(fs::metadata(mounted.target("films/near")).unwrap().nlink(), 1);
}

#[test]
fn a_link_reaches_no_file_to_which_its_owner_could_not_make_a_hard_link() {
    if rustix::process::geteuid().as_raw() != 0 {
        skipped("only root may give files away");
        return;
    }
    let fill = |mounted: &Mounted| {
        let made = |name: &str, mode: u32, owner: u32| {
            let path = mounted.source(name);
            fs::write(&path, name).unwrap();
            chown(&path, Some(owner), Some(owner)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for (folder, mode, owner) in
            [("private", 0o700, 0), ("home", 0o755, USER), ("all", 0o777, 0)]
        {
            fs::create_dir(mounted.source(folder)).unwrap();
            fs::set_permissions(mounted.source(folder), fs::Permissions::from_mode(mode)).unwrap();
            chown(mounted.source(folder), Some(owner), Some(owner)).unwrap();
        }
        made("private/shown", 0o666, 0);
        made("own", 0o600, USER);
        made("shared", 0o666, OTHER);
        made("readable", 0o644, OTHER);
        made("program", 0o4777, OTHER);
        fs::set_permissions(mounted.source("program"), fs::Permissions::from_mode(0o4777)).unwrap();
        for (link, target, owner) in [
            ("home/own", "../own", USER),
            ("home/shared", "../shared", USER),
            ("home/readable", "../readable", USER),
            ("home/program", "../program", USER),
            ("home/private", "../private/shown", USER),
            ("home/of-root", "../private/shown", 0),
            ("all/of-root", "../readable", 0),
            ("of-root", "private/shown", 0),
            ("by-users-link", "home/private", 0),
        ] {
            symlink(target, mounted.source(link)).unwrap();
            lchown(mounted.source(link), Some(owner), Some(owner)).unwrap();
        }
    };
    let arguments = ["--follow-symlinks=regular", "--allow-other"];
    let Some(mounted) = Mounted::with_sources(&["source"], &arguments, fill) else { return };
    for followed in ["home/own", "home/shared", "of-root"] {
        assert!(!is_link(&mounted.target(followed)), "{followed}");
    }
    for kept in ["readable", "program", "private", "of-root"] {
        assert!(is_link(&mounted.target("home").join(kept)), "home/{kept}");
    }
    assert!(is_link(&mounted.target("all/of-root")) && is_link(&mounted.target("by-users-link")));
}

#[test]
fn links_that_are_followed_are_refused_where_they_would_weaken_another_option() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    let policy = folder.path().join("policy.toml");
    fs::create_dir(&source).unwrap();
    fs::create_dir(&target).unwrap();
    fs::write(&policy, "[[rule]]\npaths = [\"**\"]\nverdict = \"read-only\"\n").unwrap();
    let policy = format!("--policy={}", policy.display());
    for (arguments, error) in [
        (&["--follow-symlinks=regular", "--mode=0644"][..], "options about owners and modes"),
        (&["--follow-symlinks=regular", &policy], "cannot be combined with --policy"),
        (&["--follow-symlinks=all"], "a folder at one place only"),
        (&["--follow-symlinks=files"], "one of never and regular"),
    ] {
        let mut all = vec!["mount"];
        all.extend(arguments);
        let paths = [source.to_str().unwrap(), target.to_str().unwrap()];
        all.extend(paths);
        let output = run(&all);
        assert!(!output.status.success() && stderr(&output).contains(error), "{}", stderr(&output));
    }
}
