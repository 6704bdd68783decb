//! The effect of capabilities, and the side effects of a change of owner.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use super::fixture::Mounted;
use thruway_testing::skipped;

const USER: u32 = 54_321;

/// Runs a command as an ordinary user with one capability; `None` if this machine cannot.
fn run_with(capability: &str, command: &[&str], path: &Path) -> Option<bool> {
    let capability = format!("+{capability}");
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid", &USER.to_string(), "--regid", &USER.to_string(), "--clear-groups"]);
    setpriv.args(["--inh-caps", &capability, "--ambient-caps", &capability]);
    let output = setpriv.args(command).arg(path).output();
    let output = output.map_err(|error| skipped(format_args!("setpriv: {error}"))).ok()?;
    Some(output.status.success())
}

/// Runs `act` in the source and on the mount, and compares the results.
fn both(mounted: &Mounted, name: &str, act: impl Fn(&Path) -> Option<bool>) {
    let Some(native) = act(&mounted.source(&format!("{name}-native"))) else { return };
    assert_eq!(act(&mounted.target(&format!("{name}-mounted"))), Some(native), "{name}");
    assert!(native, "{name}");
    let stat = fs::symlink_metadata(mounted.source(&format!("{name}-mounted"))).unwrap();
    assert_eq!((stat.uid(), stat.gid()), (USER, USER), "{name}");
}

#[test]
fn a_user_with_a_capability_makes_what_its_mode_forbids() {
    let Some(mounted) = Mounted::new(&["--allow-other", "--dev"]) else { return };
    let open = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(mounted.folder.path(), open(0o755)).unwrap();
    fs::set_permissions(mounted.source(""), open(0o755)).unwrap();
    let make = |command: &'static [&'static str]| {
        move |path: &Path| run_with("dac_override", command, path)
    };
    both(&mounted, "file", make(&["touch"]));
    both(&mounted, "folder", make(&["mkdir"]));
    both(&mounted, "fifo", make(&["mkfifo"]));
    both(&mounted, "link", make(&["ln", "-s", "x"]));
    // Without the capability, the command fails.
    assert_ne!(run_with("chown", &["touch"], &mounted.target("none")), Some(true));
}

#[test]
fn a_user_with_the_capability_makes_a_device() {
    let Some(mounted) = Mounted::new(&["--allow-other", "--dev"]) else { return };
    let open = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(mounted.folder.path(), open(0o755)).unwrap();
    fs::set_permissions(mounted.source(""), open(0o777)).unwrap();
    let make = |path: &Path| {
        let command = ["sh", "-c", "mknod \"$0\" c 1 3"];
        run_with("mknod", &command, path)
    };
    if make(&mounted.source("tried")) == Some(false) {
        return skipped("no device nodes here");
    }
    both(&mounted, "device", make);
    let made = fs::symlink_metadata(mounted.target("device-mounted"));
    assert!(made.is_ok_and(|made| made.file_type().is_char_device()));
}

#[test]
fn a_change_of_owner_to_what_it_is_clears_setuid_and_is_a_change() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let after = |path: &Path, mode| {
        fs::write(path, "text").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let before = fs::metadata(path).unwrap();
        // Two changes within one tick of the clock have the same time.
        let now = || fs::metadata(path).unwrap();
        let mut stat = before.clone();
        for _ in 0..100 {
            chown(path, None, None).unwrap();
            stat = now();
            if (stat.ctime(), stat.ctime_nsec()) != (before.ctime(), before.ctime_nsec()) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let is_changed = (stat.ctime(), stat.ctime_nsec()) > (before.ctime(), before.ctime_nsec());
        (stat.mode(), is_changed)
    };
    for mode in [0o6755, 0o4711, 0o2644, 0o644] {
        let native = after(&mounted.source("native"), mode);
        assert_eq!(after(&mounted.target("mounted"), mode), native, "{mode:o}");
        assert!(native.1);
    }
}
