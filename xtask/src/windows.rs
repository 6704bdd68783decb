//! `cargo x windows`: lints, builds and tests for Windows on Linux, under Wine.
//!
//! It takes Debian's Rust, because rustup's brings no sources. The target is one of Windows 7, because Wine 8
//! lacks a library that the newer one needs. Wine gets a folder of its own and leaves no process behind.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::debian;

const TARGET: &str = "x86_64-win7-windows-gnu";

/// The packages that have a part on Windows.
const PACKAGES: [&str; 4] = ["thruway-sys", "thruway-resolve", "thruway-spawn", "thruway-cli"];

/// The tools that the tests need, each by one of its files, with its package.
const NEEDED: [(&str, &str); 5] = [
    ("/usr/bin/wine", "wine wine64"),
    ("/usr/bin/x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64"),
    ("/usr/bin/rustc", "rustc-web"),
    (debian::CARGO, "cargo-web"),
    ("/usr/bin/cargo-clippy", "rust-web-clippy"),
];

/// Lint and test what runs on Windows, under Wine
#[derive(Debug, Args)]
pub(crate) struct Windows {
    /// Arguments for cargo instead of the tests, such as `build --release --package thruway-cli`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Windows {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        if let Some(missing) = missing() {
            println!("windows: skipped, because this machine lacks {missing}");
            return Ok(());
        }
        let wine = Wine::start(root)?;
        if !self.arguments.is_empty() {
            return crate::command::succeed(&mut wine.cargo(&self.arguments)?);
        }
        let mut tests = wine.cargo(["test"].into_iter().chain(packages()))?;
        tests.envs(crate::linting::environment(Path::new(debian::CARGO)));
        crate::command::succeed(&mut tests)
    }
}

fn packages() -> impl Iterator<Item = &'static str> {
    PACKAGES.iter().flat_map(|package| ["--package", package])
}

/// Returns cargo's arguments for the budget of units.
pub(crate) fn plan() -> Vec<&'static str> {
    ["test", debian::BUILD_LIBRARY, "--target", TARGET].into_iter().chain(packages()).collect()
}

/// Builds `thruway.exe` as users run it.
pub(crate) fn release_program(root: &Path) -> Result<PathBuf, String> {
    let wine = Wine { root: root.to_owned() };
    let mut cargo = wine.cargo(["build", "--release", "--package", "thruway-cli"])?;
    crate::command::succeed(cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "false"))?;
    Ok(debian::target(root).join(TARGET).join("release/thruway.exe"))
}

/// The packages that are not there.
pub(crate) fn missing() -> Option<String> {
    debian::missing(&NEEDED)
}

/// Wine with a folder of its own; its server ends with this value.
pub(crate) struct Wine {
    root: PathBuf,
}

impl Wine {
    /// Sets the folder up if it is not there.
    pub(crate) fn start(root: &Path) -> Result<Self, String> {
        let wine = Self { root: root.to_owned() };
        if !wine.prefix().join("system.reg").is_file() {
            println!("windows: setting up Wine in target/wineprefix");
            fs::create_dir_all(wine.prefix())
                .map_err(|error| format!("target/wineprefix: {error}"))?;
            crate::command::succeed(wine.command("wineboot").arg("--init").stderr(Stdio::null()))?;
        }
        Ok(wine)
    }

    /// Wine, unless this machine lacks it.
    pub(crate) fn installed(root: &Path) -> Result<Option<Self>, String> {
        if missing().is_some() { Ok(None) } else { Self::start(root).map(Some) }
    }

    fn prefix(&self) -> PathBuf {
        self.root.join("target/wineprefix")
    }

    /// A command that finds Wine's folder.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.settle(command.current_dir(&self.root));
        command
    }

    /// Lets whatever a command starts run in Wine's folder.
    fn settle(&self, command: &mut Command) {
        command.env("WINEPREFIX", self.prefix()).env("WINEDEBUG", "-all");
    }

    /// Ends Wine's server, with all that still runs under it. A server that has ended already is as good.
    pub(crate) fn stop(&self) {
        for order in ["--kill", "--wait"] {
            let _ = self.command("wineserver").arg(order).stderr(Stdio::null()).status();
        }
    }

    /// Debian's cargo for Windows; programs that it starts run under Wine.
    pub(crate) fn cargo(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Command, String> {
        let mut arguments = arguments.into_iter();
        let verb = arguments.next().ok_or("cargo needs a command")?;
        let mut cargo = debian::cargo(&self.root);
        self.settle(&mut cargo);
        cargo.arg(verb).args([debian::BUILD_LIBRARY, "--target", TARGET]).args(arguments);
        cargo
            .env("CARGO_TARGET_X86_64_WIN7_WINDOWS_GNU_LINKER", "x86_64-w64-mingw32-gcc")
            .env("CARGO_TARGET_X86_64_WIN7_WINDOWS_GNU_RUNNER", "wine");
        Ok(cargo)
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        self.stop();
    }
}
