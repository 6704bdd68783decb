//! `cargo x gem`: builds the extension and puts it where Ruby finds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

/// Build the gem's extension; it is loaded with `-I target/PROFILE/gem -I gem/lib`
#[derive(Debug, Args)]
pub(crate) struct Gem {
    /// Optimised, as users run it
    #[arg(long)]
    release: bool,
}

impl Gem {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let mut build = Command::new(crate::cargo());
        build.current_dir(root).args(["build", "--quiet", "--package", "thruway-gem-ext"]);
        if self.release {
            build.arg("--release");
        }
        let status = build.status().map_err(|error| format!("cannot start cargo: {error}"))?;
        if !status.success() {
            return Err(format!("the extension does not build ({status})"));
        }
        install(&self.profile(root), &ruby_version()?)
            .map_err(|error| format!("cannot copy the extension: {error}"))
    }

    fn profile(&self, root: &Path) -> PathBuf {
        root.join("target").join(if self.release { "release" } else { "debug" })
    }
}

/// As `thruway/thruway.so` for who requires it, and in a folder of its Ruby's version for `thruway run`,
/// which meets all kinds of them.
fn install(profile: &Path, version: &str) -> std::io::Result<()> {
    let built = profile.join("libthruway_ext.so");
    let folder = profile.join("gem/thruway");
    for folder in [folder.join(version), folder] {
        fs::create_dir_all(&folder)?;
        // By rename, so that a running Ruby keeps the file that it has mapped.
        let partial = folder.join("thruway.so.partial");
        fs::copy(&built, &partial)?;
        fs::rename(partial, folder.join("thruway.so"))?;
    }
    Ok(())
}

/// The Ruby that the extension is built for: `RUBY`, or the one on `PATH`; as `3.1`.
fn ruby_version() -> Result<String, String> {
    let ruby = std::env::var_os("RUBY").unwrap_or_else(|| "ruby".into());
    let script = "print RUBY_VERSION[/\\A\\d+\\.\\d+/]";
    let output = Command::new(ruby).args(["--disable=gems", "-e", script]).output();
    let output = output.map_err(|error| format!("cannot start ruby: {error}"))?;
    String::from_utf8(output.stdout).map_err(|error| format!("ruby's version: {error}"))
}
