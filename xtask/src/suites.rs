//! `cargo x suites`: independent test suites for file systems, on a mount.
//!
//! The suites are built from crates.io into `target/tools`. Their verdicts on the mount are compared with those on a
//! folder beside the mount: the mount must do no worse.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::command::succeed;

/// Run pjdfstest and fsx on mounts
///
/// Needs root, `/dev/fuse` and, to build pjdfstest, Debian's libacl1-dev; otherwise the task prints the reason and does
/// nothing.
#[derive(Debug, Args)]
pub(crate) struct Suites {
    /// Number of operations of fsx in each mode
    #[arg(long, default_value_t = 3000)]
    operations: u64,
    /// Use only suites that are already in target/tools
    #[arg(long)]
    at_hand: bool,
    /// Test the release build instead of the debug build
    #[arg(long)]
    release: bool,
}

/// The suites as crates with versions.
const SUITES: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Cases whose verdict may differ from that beside the mount, and the reasons.
const EXCUSED: [(&str, &str); 1] = [(
    "link::link_count_max",
    "the C library tells this limit by the kind of file system, and the suite skips what it does not tell",
)];

/// The users exist on every Debian. Stamps of ext4 have the resolution of the kernel's tick, some milliseconds.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["daemon", "daemon"], ["bin", "bin"]]
"#;

/// The options of the mounts for fsx, and the numbers of their sources.
const MODES: [(&str, &[&str], usize); 3] =
    [("live", &[], 1), ("daemon I/O", &["--passthrough", "off"], 1), ("three sources", &[], 3)];

/// The values of `--transport`.
const DEVICE: &str = "device";
const IO_URING: &str = "io-uring";

/// The kernel's switch for FUSE over io_uring, which is off on most machines.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

impl Suites {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        if let Some(missing) = missing() {
            println!("suites: not run, because {missing}");
            return Ok(());
        }
        let tools = root.join("target/tools");
        for (suite, version) in SUITES {
            if is_at_hand(&tools, suite, version) {
                continue;
            }
            if self.at_hand {
                println!(
                    "suites: not run, because {suite} {version} is not in target/tools; cargo x suites installs it"
                );
                return Ok(());
            }
            if let Some(missing) = missing_to_build(Path::new("/usr/include")) {
                println!("suites: not run, because {missing}");
                return Ok(());
            }
            install(&tools, suite, version)?;
        }
        let profile = if self.release { "release" } else { "debug" };
        let place = Place::new(root.join("target").join(profile).join("thruway"))?;
        self.run_over(DEVICE, &tools, &place)?;
        match UringSwitch::on() {
            Ok(_switch) if place.has_io_uring()? => self.run_over(IO_URING, &tools, &place),
            Ok(_) => {
                println!("skipped: suites over io_uring: this process may not use it");
                Ok(())
            }
            Err(error) => {
                println!("skipped: suites over io_uring: {SWITCH}: {error}");
                Ok(())
            }
        }
    }

    fn run_over(&self, transport: &str, tools: &Path, place: &Place) -> Result<(), String> {
        pjdfstest(&tools.join("bin/pjdfstest"), place, transport)?;
        MODES.iter().try_for_each(|(mode, options, sources)| {
            let mount = place.mount(transport, options, *sources)?;
            let mut fsx = Command::new(tools.join("bin/fsx"));
            fsx.args(["-q", "-q", "-S", "7", "-N", &self.operations.to_string()]);
            println!("suites: fsx, {} operations, {mode}, {transport}", self.operations);
            succeed(fsx.arg(mount.target.join("file")).current_dir(&place.folder))
        })
    }
}

/// Switches FUSE over io_uring on until the value is dropped.
struct UringSwitch {
    before: String,
}

impl UringSwitch {
    fn on() -> std::io::Result<Self> {
        let before = fs::read_to_string(SWITCH)?;
        fs::write(SWITCH, "Y")?;
        Ok(Self { before })
    }
}

impl Drop for UringSwitch {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, self.before.trim());
    }
}

/// Returns the reason why the suites cannot run on this machine.
fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may change owners");
    }
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    device.is_err().then_some("/dev/fuse cannot be opened")
}

fn is_at_hand(tools: &Path, suite: &str, version: &str) -> bool {
    let said = Command::new(tools.join("bin").join(suite)).arg("--version").output();
    said.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version))
}

/// Returns the reason why pjdfstest cannot be built on this machine. Without the check, the linker fails after minutes.
fn missing_to_build(headers: &Path) -> Option<&'static str> {
    const ACL: &str =
        "a header is missing that pjdfstest is built with, sys/acl.h (Debian's libacl1-dev)";
    (!headers.join("sys/acl.h").is_file()).then_some(ACL)
}

fn install(tools: &Path, suite: &str, version: &str) -> Result<(), String> {
    println!("suites: installing {suite} {version} into target/tools");
    let mut install = Command::new(crate::command::cargo());
    install.args(["install", "--locked", "--version", version, "--root"]);
    succeed(install.arg(tools).arg(suite))
}

/// Compares the verdict on each case on a mount with that in a folder.
fn pjdfstest(program: &Path, place: &Place, transport: &str) -> Result<(), String> {
    let beside = place.subfolder("beside")?;
    let expected = verdicts(program, place, &beside)?;
    let mount = place.mount(transport, &["--suid", "--dev", "--allow-other"], 1)?;
    let said = verdicts(program, place, &mount.target)?;
    let passed = said.values().filter(|verdict| *verdict == "ok").count();
    let cases = said.len();
    println!(
        "suites: pjdfstest, {transport}: {passed} of {cases} cases pass, the others are skipped"
    );
    let is_excused = |case: &String| EXCUSED.iter().any(|(excused, _)| case == excused);
    let differ: Vec<_> = expected
        .iter()
        .filter(|(case, verdict)| said.get(*case) != Some(verdict) && !is_excused(case))
        .map(|(case, verdict)| {
            format!("{case}: {verdict} beside, {:?} on the mount", said.get(case))
        })
        .collect();
    if differ.is_empty() && passed > 300 { Ok(()) } else { Err(differ.join("\n")) }
}

/// Returns `ok`, `skipped` or `FAILED`, by case.
fn verdicts(
    program: &Path,
    place: &Place,
    folder: &Path,
) -> Result<BTreeMap<String, String>, String> {
    let configuration = place.folder.join("configuration");
    let failed = |error: std::io::Error| format!("{}: {error}", program.display());
    fs::write(&configuration, CONFIGURATION).map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("-c").arg(&configuration).arg("-p").arg(folder).stderr(Stdio::null());
    let output = command.output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let verdict = |line: &str| {
        let (case, verdict) = line.trim_end().rsplit_once(' ')?;
        let is_verdict = case.contains("::") && matches!(verdict, "ok" | "skipped" | "FAILED");
        is_verdict.then(|| (case.trim_end().to_owned(), verdict.to_owned()))
    };
    Ok(text.lines().filter_map(verdict).collect())
}

/// A folder in memory for mounts and for the files beside them: some operations write to disk.
struct Place {
    thruway: PathBuf,
    folder: PathBuf,
}

impl Place {
    fn new(thruway: PathBuf) -> Result<Self, String> {
        let folder = Path::new("/dev/shm").join(format!("thruway-suites-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { thruway, folder })
    }

    fn subfolder(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }

    /// Whether a mount that requests io_uring gets it.
    fn has_io_uring(&self) -> Result<bool, String> {
        let mount = self.mount(IO_URING, &[], 1)?;
        let mut status = Command::new(&self.thruway);
        let output = status.args(["mount", "status"]).arg(&mount.target).output();
        let output = output.map_err(|error| format!("{status:?}: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).contains("io_uring"))
    }

    fn mount(
        &self,
        transport: &str,
        options: &[&str],
        sources: usize,
    ) -> Result<Mount<'_>, String> {
        // The path is as long as `beside`: one case depends on its length.
        let target = self.subfolder("target")?;
        let mut command = Command::new(&self.thruway);
        command.args(["mount", "--transport", transport]).args(options);
        for source in 0..sources {
            command.arg(self.subfolder(&format!("source{source}"))?);
        }
        succeed(command.arg(&target))?;
        Ok(Mount { place: self, target })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A mount, which is unmounted when the value is dropped.
struct Mount<'a> {
    place: &'a Place,
    target: PathBuf,
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let mut unmount = Command::new(&self.place.thruway);
        let _ = unmount.args(["unmount", "--lazy"]).arg(&self.target).status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_header_is_reported_before_anything_is_built() {
        let headers = tempfile::tempdir().unwrap();
        assert!(missing_to_build(headers.path()).is_some_and(|why| why.contains("libacl1-dev")));
        fs::create_dir(headers.path().join("sys")).unwrap();
        fs::write(headers.path().join("sys/acl.h"), "").unwrap();
        assert_eq!(missing_to_build(headers.path()), None);
    }
}
