//! Mounts of ordinary users: by `fusermount3`, and as root of a user namespace.
//!
//! A new namespace has copies of all mounts, which keep the disks of other tests in use. So `cargo x prove mount-users`
//! runs these tests, alone.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use super::fixture::wait_until;
use crate::{stderr, stdout};
use thruway_testing::skipped;

/// `nobody`: fusermount3 serves only users that have a name.
const USER: u32 = 65_534;

/// Makes a `/dev/fuse` that the user can open, and an own `/etc/fuse.conf`. Then runs the rest of the arguments.
const PREPARE: &str = "mknod \"$0/fuse\" c 10 229 && chmod 666 \"$0/fuse\" && mount --bind \"$0/fuse\" /dev/fuse && \
    if [ -e /etc/fuse.conf ]; then mount --bind \"$0/fuse.conf\" /etc/fuse.conf; fi && exec \"$@\"";

/// Exercises a mount of `source` and `other` at `target`. Each line fails the script if it fails.
const USE: &str = r#"
"$T" mount --log "$PWD/log" source=RW other target
echo text > target/new; test "$(cat source/new)" = text
test "$(cat target/old)" = old
echo more >> target/old; test "$(cat source/old)" = "$(printf 'old\nmore')"
mv target/new target/folder/moved; ln target/folder/moved target/link; test source/link -ef source/folder/moved
chmod 600 target/link; test "$(stat -c %a source/folder/moved)" = 600
exec 5< target/link; rm target/link target/folder/moved; test "$(cat <&5)" = text; exec 5<&-
test "$("$T" mount where target/old)" = "$PWD/source/old"
"$T" mount remove target other > /dev/null; "$T" mount add target other > /dev/null
"#;

/// The reason that an ordinary user is given for daemon I/O.
const LACK: &str = "passthrough needs CAP_SYS_ADMIN in the initial user namespace";

/// A mount namespace, and possibly a user namespace, in which an ordinary user can open `/dev/fuse`.
struct Namespace {
    folder: TempDir,
    /// A process in the namespace, which ends with its standard input.
    holder: Child,
    is_user_namespace: bool,
}

impl Namespace {
    /// Makes the namespace and folders that belong to the user, or reports why this machine cannot.
    fn new(is_user_namespace: bool) -> Option<Self> {
        if std::env::var_os("THRUWAY_MOUNT_USERS").is_none() {
            skipped("cargo x prove mount-users runs this test");
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            skipped("becoming another user needs root");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("a user's ").tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_thruway"));
        fs::hard_link(binary, path("thruway"))
            .or_else(|_| fs::copy(binary, path("thruway")).map(drop))
            .unwrap();
        fs::create_dir(path("own")).unwrap();
        ["source", "source/folder", "other", "target"]
            .iter()
            .for_each(|name| fs::create_dir(path("own").join(name)).unwrap());
        fs::write(path("own/source/old"), "old\n").unwrap();
        fs::write(path("fuse.conf"), "").unwrap();
        let given = ["", "source", "source/folder", "source/old", "other", "target"];
        given.iter().for_each(|name| {
            chown(path("own").join(name), Some(USER), Some(USER)).unwrap();
        });
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", PREPARE]);
        command.arg(folder.path());
        if is_user_namespace {
            command.args(as_user()).args(["unshare", "--user", "--map-root-user", "--mount"]);
        }
        command.args(["sh", "-c", "echo ready; read end"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        if ready != "ready\n" {
            let _ = holder.wait();
            skipped("a namespace with /dev/fuse for an ordinary user");
            return None;
        }
        let namespace = Self { folder, holder, is_user_namespace };
        if !namespace.run("true").status.success() {
            skipped("the user cannot reach the folder for temporary files");
            return None;
        }
        Some(namespace)
    }

    /// Runs a shell script as the user, in the folder `own`, up to its first failure.
    fn run(&self, script: &str) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--mount"]);
        if self.is_user_namespace {
            command.arg("--user");
        } else {
            command.args(as_user());
        }
        command.args(["sh", "-ec", &format!("cd \"$0\"\n{script}")]);
        command.arg(self.folder.path().join("own"));
        command.env("T", self.folder.path().join("thruway")).output().unwrap()
    }

    fn assert_works(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(output.status.success(), "{script}\n{}{}", stdout(&output), stderr(&output));
        stdout(&output).to_owned()
    }

    /// Asserts that a mount with these options fails with both texts, and leaves nothing behind.
    fn assert_refused(&self, options: &str, message: &str, hint: &str) {
        let output = self.run(&format!("{options} source target"));
        let errors = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{options}: {errors}");
        assert!(errors.contains(message), "{options}: {errors}");
        assert!(errors.contains(&format!("\n\nhint: {hint}")), "{options}: {errors}");
        self.assert_is_unmounted();
    }

    fn assert_is_unmounted(&self) {
        let folder = self.folder.path().to_str().unwrap().rsplit(' ').next().unwrap();
        let own = format!("grep fuse.thruway /proc/self/mounts | grep -q '{folder}/own/target '");
        self.assert_works(&format!("if {own}; then exit 1; fi"));
    }

    /// Returns the mount's status.
    fn status(&self) -> serde_json::Value {
        let reply = RefCell::default();
        // A daemon that gets no processor for seconds does not reply in time.
        wait_until("the daemon replies", || {
            let output = self.run("\"$T\" mount status --json target");
            let status: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
            let has_replied = status["process"].is_number();
            reply.replace(status);
            has_replied
        });
        reply.take()
    }

    /// Returns the number of the mount's supervisor.
    fn supervisor(&self) -> u32 {
        self.status()["process"].as_u64().unwrap().try_into().unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join("own").join(name)).unwrap()
    }

    /// Uses a mount, replaces its worker, unmounts by `unmount` and mounts again, and unmounts by SIGTERM.
    fn exercise(&self, unmount: &str) {
        self.assert_works(USE);
        let status = self.status();
        assert_eq!(status["passthrough"], false, "{status}");
        assert_eq!(status["daemon_io_reasons"], serde_json::json!({ LACK: 1 }));
        let supervisor = self.supervisor();
        let killed = format!("kill -9 $(cat /proc/{supervisor}/task/{supervisor}/children)");
        self.assert_works(&format!("{killed}; grep -q more target/old; ls target"));
        // The lack is said once, and not again by the next worker.
        wait_until("another worker starts", || self.read("log").contains("starting another"));
        assert_eq!(self.read("log").matches(LACK).count(), 1, "{}", self.read("log"));
        self.assert_works(unmount);
        self.assert_is_unmounted();
        self.wait_for_end(supervisor);
        self.assert_works("\"$T\" mount --log \"$PWD/log\" source target; cat target/old");
        let supervisor = self.supervisor();
        self.assert_works(&format!("kill {supervisor}"));
        self.wait_for_end(supervisor);
        self.assert_is_unmounted();
    }

    fn wait_for_end(&self, process: u32) {
        // A process whose parent does not wait for it stays in the table without its descriptors.
        let has_none = |mut files: fs::ReadDir| files.next().is_none();
        let files = format!("/proc/{process}/fd");
        wait_until("the daemon ends", || fs::read_dir(&files).map_or(true, has_none));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.run("\"$T\" unmount --force target");
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// The command that runs others as the user.
fn as_user() -> Vec<String> {
    let user = USER.to_string();
    ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"].map(str::to_owned).to_vec()
}

/// Whether `fusermount3` is there with its rights. Otherwise reports that it is missing.
fn has_fusermount() -> bool {
    let found = ["/usr/bin/fusermount3", "/bin/fusermount3"].map(fs::metadata);
    let is_setuid = found.iter().flatten().any(|found| found.permissions().mode() & 0o4000 != 0);
    if !is_setuid {
        skipped("fusermount3 is not installed (Debian: fuse3)");
    }
    is_setuid
}

#[test]
fn an_ordinary_user_mounts_by_fusermount3() {
    let Some(user) = Namespace::new(false) else { return };
    let mount = "\"$T\" mount";
    let no_program = "PATH=/nowhere \"$T\" mount";
    user.assert_refused(no_program, "cannot start fusermount3", "mounting needs root, or fuser");
    if !has_fusermount() {
        return;
    }
    user.exercise("fusermount3 -u target");
    user.assert_refused(&format!("{mount} --allow-other"), "allow_other", "without --allow-other");
    user.assert_refused(&format!("{mount} --suid"), "--suid needs root", "mount as root, or");
    user.assert_refused(&format!("{mount} --dev"), "--dev needs root", "mount as root, or");
    let restrained = "setpriv --no-new-privs \"$T\" mount";
    user.assert_refused(restrained, "Operation not permitted", "no_new_privs is set");
    fs::write(user.folder.path().join("fuse.conf"), "user_allow_other\n").unwrap();
    user.assert_works("\"$T\" mount --allow-other source target");
    let mut root = Command::new("nsenter");
    root.args(["--target", &user.holder.id().to_string(), "--mount", "cat"]);
    let read = root.arg(user.folder.path().join("own/target/old")).output().unwrap();
    assert!(stdout(&read).starts_with("old\n"), "{}", stderr(&read));
    user.assert_works("\"$T\" unmount target");
    let device = user.folder.path().join("fuse");
    fs::set_permissions(&device, fs::Permissions::from_mode(0o600)).unwrap();
    user.assert_refused(mount, "failed to open /dev/fuse", "this user has to be able to read");
}

#[test]
fn root_of_a_user_namespace_mounts_by_itself() {
    let Some(user) = Namespace::new(true) else { return };
    user.exercise("PATH=/usr/sbin:/sbin:$PATH umount target");
    user.assert_refused("\"$T\" mount --dev", "--dev has no effect", "mount without --dev");
}

#[test]
fn a_dead_mount_of_an_ordinary_user_is_removed() {
    let Some(user) = Namespace::new(false) else { return };
    if !has_fusermount() {
        return;
    }
    user.assert_works("\"$T\" mount source target");
    let supervisor = user.supervisor();
    let workers = format!("$(cat /proc/{supervisor}/task/{supervisor}/children)");
    user.assert_works(&format!("workers={workers}; kill -9 {supervisor} $workers"));
    user.wait_for_end(supervisor);
    user.assert_works("\"$T\" unmount target");
    user.assert_is_unmounted();
}
