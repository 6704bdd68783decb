//! `cargo x windows`: lints, builds and tests for Windows on Linux, under Wine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::wine::{TARGET, Wine, missing};
use crate::{debian, windows_boot};

/// The packages whose tests run on Windows.
const PACKAGES: [&str; 6] = [
    "thruway-sys",
    "thruway-resolve",
    "thruway-spawn",
    "thruway-pack",
    "thruway-boot",
    "thruway-cli",
];

/// Lint and test what runs on Windows, under Wine
#[derive(Debug, Args)]
pub(crate) struct Windows {
    /// Run all tests of Ruby's boot, not only the quick ones
    #[arg(long)]
    boot: bool,
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
        crate::command::succeed(&mut tests)?;
        windows_boot::test(root, &wine, self.boot)
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
    let wine = Wine::of(root);
    let mut cargo = wine.cargo(["build", "--release", "--package", "thruway-cli"])?;
    crate::command::succeed(cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "false"))?;
    Ok(debian::target(root).join(TARGET).join("release/thruway.exe"))
}
