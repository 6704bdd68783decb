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
        install(&self.profile(root)).map_err(|error| format!("cannot copy the extension: {error}"))
    }

    fn profile(&self, root: &Path) -> PathBuf {
        root.join("target").join(if self.release { "release" } else { "debug" })
    }
}

/// By rename, so that a running Ruby keeps the file that it has mapped.
fn install(profile: &Path) -> std::io::Result<()> {
    let folder = profile.join("gem/thruway");
    fs::create_dir_all(&folder)?;
    let partial = folder.join("thruway.so.partial");
    fs::copy(profile.join("libthruway_ext.so"), &partial)?;
    fs::rename(partial, folder.join("thruway.so"))
}
