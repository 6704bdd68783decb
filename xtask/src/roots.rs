//! `cargo x root SUITE`: the whole test suite, or a command, in a fresh root of another Debian.
//!
//! debootstrap creates a root once, and `target/roots` keeps it together with all packages that `scripts/setup` has
//! installed and all that cargo has built. The checkout is copied into the root before each run, so that no run can
//! change it.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::debootstrap;

/// Run the whole suite, or a command, in a fresh root of Debian
///
/// Needs root, debootstrap and a network. The root stays in target/roots for the next run.
#[derive(Debug, Args)]
pub(crate) struct Root {
    /// Release of Debian
    #[arg(value_enum)]
    suite: Suite,
    /// Packages that `scripts/setup` installs before the command runs
    #[arg(long, value_enum, default_value_t = Setup::Test)]
    setup: Setup,
    /// Recreate the root, without earlier installations and builds
    #[arg(long)]
    fresh: bool,
    /// Time in minutes after which everything in the root is killed
    #[arg(long, default_value_t = 180)]
    minutes: u64,
    /// Command to run in the copy of the checkout
    #[arg(last = true, default_values = ["make", "test"])]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Suite {
    Bookworm,
    Trixie,
    Sid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Setup {
    /// The packages for building, serving and all tests
    Test,
    /// The packages for building and serving
    Serve,
    /// No packages: the command meets the root unchanged
    None,
}

/// The script outside of the root, which makes the root the root folder of its namespace, and the script inside.
const ENTER: &str = include_str!("roots/enter.sh");
const INSIDE: &str = include_str!("roots/inside.sh");
/// The copy of the checkout in the root, in a place that all users can read.
const CHECKOUT: &str = "srv/thruway";
/// Package sources that are kept for long are past their date of validity.
const APT_OPTIONS: &str = "Acquire::Check-Valid-Until \"false\";\nAcquire::Check-Date \"false\";\n";
/// Nothing in a root is worth a wait for the disk after each file.
const DPKG_OPTIONS: &str = "force-unsafe-io\n";
/// The file of certificates in the root, if this machine has one of its own.
const CERTIFICATES: &str = "etc/thruway-host.crt";
/// The variables by which programs find certificates.
const CERTIFICATE_VARIABLES: [&str; 4] =
    ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "PIP_CERT", "CARGO_HTTP_CAINFO"];
/// The variables that also apply in the root: those of the network and of the terminal.
const KEPT_VARIABLES: [&str; 7] =
    ["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "TERM"];
const POLL: Duration = Duration::from_millis(100);

impl Root {
    pub(crate) fn run(&self, checkout: &Path) -> Result<(), String> {
        if let Some(reason) = debootstrap::obstacle() {
            return Err(format!(
                "no root of Debian {}: {reason}\n\nhint: as root: apt-get install debootstrap",
                self.suite_name()
            ));
        }
        let folder = checkout.join("target/roots");
        named(&folder, fs::create_dir_all(&folder))?;
        let _lock = self.lock(&folder)?;
        let root = self.made(&folder)?;
        bring_checkout(checkout, &root.join(CHECKOUT))?;
        println!("in {}: {}", self.suite_name(), self.command.join(" "));
        let status = self.wait(self.enter(&root)?)?;
        if status.success() { Ok(()) } else { Err(format!("in {}: {status}", self.suite_name())) }
    }

    fn suite_name(&self) -> String {
        self.suite.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Locks the root: two runs at once would change each other's files.
    fn lock(&self, folder: &Path) -> Result<File, String> {
        let path = folder.join(format!("{}.lock", self.suite_name()));
        let file = named(&path, File::create(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                Err(format!("another run uses the root of {}", self.suite_name()))
            }
            Err(TryLockError::Error(error)) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Returns the root with its package sources, which for a stable suite include the security archive, where the
    /// newer Rust is.
    fn made(&self, folder: &Path) -> Result<PathBuf, String> {
        let suite = self.suite_name();
        let root = folder.join(&suite);
        if self.fresh && root.symlink_metadata().is_ok() {
            named(&root, fs::remove_dir_all(&root))?;
        }
        let root = debootstrap::root(folder, &suite, &suite, &[])?;
        let mut sources = format!("deb {} {suite} main\n", debootstrap::archive("debian"));
        if !matches!(self.suite, Suite::Sid) {
            let security = debootstrap::archive("debian-security");
            sources.push_str(&format!("deb {security} {suite}-security main\n"));
        }
        write(&root.join("etc/apt/sources.list"), &sources)?;
        write(&root.join("etc/apt/apt.conf.d/90thruway-root"), APT_OPTIONS)?;
        write(&root.join("etc/dpkg/dpkg.cfg.d/90thruway-root"), DPKG_OPTIONS)?;
        // Without the file, a root would resolve no names of this machine's network.
        named(&root, fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf")))?;
        Ok(root)
    }

    /// Starts the command in namespaces of its own, which end with the task, even if the task is killed.
    fn enter(&self, root: &Path) -> Result<Child, String> {
        let mut enter = Command::new("setpriv");
        enter.args(["--pdeathsig", "KILL", "unshare"]).args(debootstrap::NAMESPACES);
        enter.args(["sh", "-euc", ENTER, "enter"]).arg(root).arg(registry());
        enter.args(["/usr/bin/env", "-i", "HOME=/root", "LANG=C.UTF-8"]);
        enter.arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        for name in KEPT_VARIABLES {
            if let Ok(value) = std::env::var(name) {
                enter.arg(format!("{name}={value}"));
            }
        }
        if let Some(file) = std::env::var_os("SSL_CERT_FILE") {
            named(Path::new(&file), fs::copy(&file, root.join(CERTIFICATES)))?;
            enter.args(CERTIFICATE_VARIABLES.map(|name| format!("{name}=/{CERTIFICATES}")));
        }
        let setup = self.setup.to_possible_value();
        enter.args(["sh", "-euc", INSIDE, "inside", CHECKOUT]);
        enter.arg(setup.as_ref().map_or("", |value| value.get_name())).args(&self.command);
        enter.spawn().map_err(|error| format!("cannot start setpriv: {error}"))
    }

    /// Waits for the command, and kills everything in the root after the time limit.
    fn wait(&self, mut child: Child) -> Result<ExitStatus, String> {
        let deadline = Instant::now() + Duration::from_secs(self.minutes.saturating_mul(60));
        loop {
            let status = child.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = status {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "in {}: killed after {} minutes\n\nhint: --minutes allows more",
                    self.suite_name(),
                    self.minutes
                ));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// The crates that cargo has downloaded on this machine, if any, which the root uses as well.
fn registry() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    home.unwrap_or_default().join("registry")
}

/// Copies all files that git tracks or would add, with their times, so that cargo compiles only changes. Earlier builds
/// stay in the copy.
pub(crate) fn bring_checkout(checkout: &Path, copy: &Path) -> Result<(), String> {
    named(copy, fs::create_dir_all(copy.join("target")))?;
    for entry in named(copy, fs::read_dir(copy))? {
        let entry = named(copy, entry)?;
        if entry.file_name() != "target" {
            let path = entry.path();
            let is_folder = named(&path, entry.file_type())?.is_dir();
            named(
                &path,
                if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) },
            )?;
        }
    }
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = start(list.current_dir(checkout).stdout(Stdio::piped()))?;
    let mut pack = Command::new("tar");
    // A file that is removed from the checkout but still in git's index is left out.
    pack.args([
        "--create",
        "--null",
        "--files-from=-",
        "--ignore-failed-read",
        "--owner=0",
        "--group=0",
    ]);
    pack.current_dir(checkout).stdin(output_of(list)?).stdout(Stdio::piped());
    let pack = start(&mut pack)?;
    let mut unpack = Command::new("tar");
    unpack.args(["--extract", "--preserve-permissions", "--directory"]).arg(copy);
    crate::command::succeed(unpack.stdin(output_of(pack)?))
}

fn start(command: &mut Command) -> Result<Child, String> {
    command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))
}

/// The standard output of a command, as the standard input of the next.
fn output_of(mut child: Child) -> Result<Stdio, String> {
    child.stdout.take().map(Stdio::from).ok_or_else(|| "a command without output".to_owned())
}

fn write(path: &Path, content: &str) -> Result<(), String> {
    named(path, fs::write(path, content))
}

/// Adds the path to an error.
fn named<T>(path: &Path, result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_what_git_knows_or_would_add_and_keeps_what_was_built() {
        let folder = tempfile::tempdir().unwrap();
        let (checkout, copy) = (folder.path().join("checkout"), folder.path().join("copy"));
        for (file, content) in [("a.rs", "new"), ("ignored", ""), (".gitignore", "/ignored\n")] {
            fs::create_dir_all(&checkout).unwrap();
            fs::write(checkout.join(file), content).unwrap();
        }
        let mut git = Command::new("git");
        crate::command::succeed(git.args(["init", "--quiet"]).arg(&checkout)).unwrap();
        fs::create_dir_all(copy.join("target/debug")).unwrap();
        fs::write(copy.join("removed.rs"), "").unwrap();
        fs::write(copy.join("a.rs"), "old").unwrap();
        bring_checkout(&checkout, &copy).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".gitignore", "a.rs", "target"]);
        assert_eq!(fs::read(copy.join("a.rs")).unwrap(), b"new");
        assert!(copy.join("target/debug").symlink_metadata().is_ok());
    }
}
