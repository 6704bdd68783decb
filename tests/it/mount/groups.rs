//! Files that users may create only through a supplementary group.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr};

use super::fixture::Mounted;
use thruway_testing::skipped;

const USER: &str = "1000";
const GROUP: u32 = 2000;

/// Whether the user, as a member of this group, can run the script on the folder.
fn can(script: &str, folder: &Path, groups: &[&str]) -> bool {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER]).args(groups);
    let output = command.args(["sh", "-c", script, "sh"]).arg(folder).output().unwrap();
    output.status.success()
}

/// Returns an access list that permits the group everything, as `setfacl -m g:2000:rwx` makes it.
fn access_list() -> Vec<u8> {
    const NO_USER: u32 = u32::MAX;
    let entries = [
        (1_u16, 7_u16, NO_USER),
        (4, 5, NO_USER),
        (8, 7, GROUP),
        (16, 7, NO_USER),
        (32, 5, NO_USER),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn check(prepare: impl FnOnce(&Path), group: Option<u32>) {
    let Some(mounted) = Mounted::new(&["--allow-other"]) else { return };
    fs::set_permissions(mounted.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = mounted.target("shared");
    fs::create_dir(&folder).unwrap();
    prepare(&folder);
    let script = r#"cd "$1" && : >file && mkdir folder && ln -s x link && mkfifo pipe"#;
    assert!(!can(script, &folder, &["--clear-groups"]));
    assert!(can(script, &folder, &["--groups", "3000,2000"]));
    for name in ["file", "folder", "pipe"] {
        let made = fs::metadata(mounted.source("shared").join(name)).unwrap();
        assert_eq!((made.uid(), made.gid()), (1000, group.unwrap_or(1000)), "{name}");
    }
    assert!(can(r#"rm -r "$1"/*"#, &folder, &["--groups", "2000"]));
    assert_eq!(fs::read_dir(mounted.source("shared")).unwrap().count(), 0);
}

#[test]
fn a_group_in_an_access_list_lets_its_members_make_things() {
    let list = |folder: &Path| {
        setxattr(folder, "system.posix_acl_access", &access_list(), XattrFlags::empty()).unwrap();
    };
    check(list, None);
}

#[test]
fn the_folders_own_group_lets_its_members_make_things_that_inherit_it() {
    let setgid = |folder: &Path| {
        chown(folder, None, Some(GROUP)).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o2775)).unwrap();
    };
    check(setgid, Some(GROUP));
}

#[test]
fn setgid_stays_for_members_when_mode_or_access_list_change() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let file = mounted.target("file");
    fs::write(&file, "text").unwrap();
    if rustix::process::geteuid().as_raw() != 0 {
        return skipped("only root may keep setgid for another group");
    }
    chown(&file, None, Some(GROUP)).unwrap();
    let mode = || fs::metadata(mounted.source("file")).unwrap().mode() & 0o7777;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o2755)).unwrap();
    assert_eq!(mode(), 0o2755);
    setxattr(&file, "system.posix_acl_access", &access_list(), XattrFlags::empty()).unwrap();
    assert_eq!(mode(), 0o2775);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(mode(), 0o755);
}
