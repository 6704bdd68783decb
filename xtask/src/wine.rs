//! Wine, and Debian's Rust for the programs that run under it.
//!
//! Builds use Debian's Rust, because rustup's has no sources of the standard library. The target is Windows 7, because
//! Wine 8 lacks a library that newer targets need. Wine gets a folder of its own and leaves no process behind.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::debian;

/// The target of all builds for Windows.
pub const TARGET: &str = "x86_64-win7-windows-gnu";

/// The tools that the tests need, each by one of its files, with its package.
const NEEDED: [(&str, &str); 5] = [
    ("/usr/bin/wine", "wine wine64"),
    ("/usr/bin/x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64"),
    ("/usr/bin/rustc", "rustc-web"),
    (debian::CARGO, "cargo-web"),
    ("/usr/bin/cargo-clippy", "rust-web-clippy"),
];

/// Wine with a folder of its own. Wine's server ends when the value is dropped.
pub struct Wine {
    root: PathBuf,
}

impl Wine {
    /// Wine for commands that only build.
    pub fn of(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Creates Wine's folder, if the folder does not exist yet, and starts Wine's server. By itself the server would
    /// end shortly after each program, and reset the connection of a program that starts at that moment.
    pub fn start(root: &Path) -> Result<Self, String> {
        let wine = Self { root: root.to_owned() };
        if !wine.prefix().join("system.reg").is_file() {
            println!("windows: setting up Wine in target/wineprefix");
            fs::create_dir_all(wine.prefix())
                .map_err(|error| format!("target/wineprefix: {error}"))?;
            crate::command::succeed(wine.command("wineboot").arg("--init").stderr(Stdio::null()))?;
            crate::command::succeed(wine.command("wineserver").arg("--wait"))?;
        }
        // A run that was killed has left its server.
        wine.stop();
        crate::command::succeed(wine.command("wineserver").arg("--persistent"))?;
        Ok(wine)
    }

    /// Wine, unless this machine lacks it.
    pub fn installed(root: &Path) -> Result<Option<Self>, String> {
        if missing().is_some() { Ok(None) } else { Self::start(root).map(Some) }
    }

    fn prefix(&self) -> PathBuf {
        self.root.join("target/wineprefix")
    }

    /// A command that finds Wine's folder.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.settle(command.current_dir(&self.root));
        command
    }

    /// Makes a command and its children use Wine's folder.
    pub fn settle(&self, command: &mut Command) {
        command.env("WINEPREFIX", self.prefix()).env("WINEDEBUG", "-all");
    }

    /// Ends Wine's server, with all programs that still run under it. A server that has already ended is no error.
    pub fn stop(&self) {
        for order in ["--kill", "--wait"] {
            let _ = self.command("wineserver").arg(order).stderr(Stdio::null()).status();
        }
    }

    /// Debian's cargo for Windows; programs that it starts run under Wine.
    pub fn cargo(
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

/// The packages of missing tools.
pub fn missing() -> Option<String> {
    debian::missing(&NEEDED)
}
