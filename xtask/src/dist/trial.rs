//! Trials of each way to install, in fresh roots: the installed programs work, and nothing is left behind after
//! removal.
//!
//! debootstrap creates a root once. Each trial sees the root below an overlay, so that the next one finds it unchanged.
//! The root of another processor is that of the Ruby for which the extension was built.

mod emulation;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::Builder;
use super::files::{self, copy, copy_tree, named};
use super::output;
use crate::debootstrap;
use emulation::Emulation;

/// The script outside of the root, in a mount namespace of its own, and the scripts inside.
const ENTER: &str = include_str!("trial/enter.sh");
const SHARED: &str = include_str!("trial/shared.sh");
const TRY: &str = include_str!("trial/try.sh");
const TRY_AARCH64: &str = include_str!("trial/try-aarch64.sh");
const SUITES: [&str; 2] = ["bookworm", "trixie"];

/// Tries the files in `target/dist`. `roots` are those of the Rubies for which the extension was built.
pub(super) fn run(builder: &Builder, roots: &[PathBuf]) -> Result<(), String> {
    if let Some(reason) = debootstrap::obstacle() {
        println!("dist: not tried, because {reason}");
        return Ok(());
    }
    if builder.processor.is_foreign() {
        let _emulation = Emulation::start()?;
        return roots.iter().try_for_each(|root| enter(builder, root, TRY_AARCH64));
    }
    SUITES.iter().try_for_each(|suite| enter(builder, &base(builder, suite, &[])?, TRY))
}

/// The root of a Debian for the other processor, with its Ruby.
pub(super) fn foreign_root(builder: &Builder) -> Result<PathBuf, String> {
    let _emulation = Emulation::start()?;
    base(builder, "bookworm", &["--arch=arm64", "--include=ruby-dev,ruby-rack"])
}

/// Tries everything in one root.
fn enter(builder: &Builder, base: &Path, script: &str) -> Result<(), String> {
    let work = builder.work("trial");
    files::empty(&work)?;
    bring(builder, &work.join("upper/trial"), script)?;
    println!("dist: trying in {}", base.file_name().unwrap_or_default().display());
    let mut enter = Command::new("unshare");
    enter.args(debootstrap::NAMESPACES);
    enter.args(["sh", "-euc", ENTER, "enter"]).arg(base).arg(&work);
    crate::command::succeed(&mut enter)?;
    named(&work, fs::remove_dir_all(&work))
}

/// The root of a suite, as debootstrap leaves it.
fn base(builder: &Builder, suite: &str, options: &[&str]) -> Result<PathBuf, String> {
    let name = format!("{suite}-{}", builder.processor.debian());
    debootstrap::root(&builder.work("roots"), &name, suite, options)
}

/// Copies the finished files and the scripts that try them into the root's folder.
fn bring(builder: &Builder, folder: &Path, script: &str) -> Result<(), String> {
    files::write_program(&folder.join("try.sh"), script)?;
    files::write(&folder.join("shared.sh"), SHARED)?;
    files::write(&folder.join("version"), format!("thruway {}\n", builder.version))?;
    for file in output::of_this_version(builder)? {
        copy(&file, &folder.join(file.file_name().unwrap_or_default()), 0o644)?;
    }
    for example in ["rails_app", "rack_hello"] {
        let from = builder.root.join("examples").join(example);
        let wants = |inside: &Path| !inside.starts_with("tmp") && !inside.starts_with("log");
        copy_tree(&from, &folder.join(example), &wants)?;
    }
    files::write_program(
        &folder.join("rails_app/bin/rails"),
        files::read(&builder.root.join("examples/rails_app/bin/rails"))?,
    )
}
