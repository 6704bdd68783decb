//! Each way to install, tried in fresh roots: what is installed works, and nothing is left behind after removal.
//!
//! A root is made once, by debootstrap. Each trial sees it below an overlay, so that the next one finds it as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::Builder;
use super::files::{self, copy, copy_tree, named};

/// What runs outside of the root, in a mount namespace of its own, and what runs in it.
const ENTER: &str = include_str!("trial/enter.sh");
const TRY: &str = include_str!("trial/try.sh");
const SUITES: [&str; 2] = ["bookworm", "trixie"];

/// Tries what stands in `target/dist`.
pub(super) fn run(builder: &Builder) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() || !has_debootstrap() {
        println!("dist: not tried, because that takes root and debootstrap");
        return Ok(());
    }
    for suite in SUITES {
        let base = base(builder, suite)?;
        let work = builder.work("trial");
        files::empty(&work)?;
        bring(builder, &work.join("upper/trial"))?;
        println!("dist: trying in {suite}");
        let mut enter = Command::new("unshare");
        enter.args([
            "--mount",
            "--pid",
            "--fork",
            "--propagation",
            "private",
            "sh",
            "-euc",
            ENTER,
            "enter",
        ]);
        crate::command::succeed(enter.arg(&base).arg(&work))?;
        named(&work, fs::remove_dir_all(&work))?;
    }
    Ok(())
}

fn has_debootstrap() -> bool {
    Path::new("/usr/sbin/debootstrap").metadata().is_ok()
}

/// The root of a suite, as debootstrap leaves it.
fn base(builder: &Builder, suite: &str) -> Result<PathBuf, String> {
    let base = builder.work("roots").join(suite);
    if base.join("etc/debian_version").metadata().is_err() {
        let partial = builder.work("roots").join(format!("{suite}.partial"));
        files::empty(&partial)?;
        println!("dist: debootstrap {suite}");
        let mut debootstrap = Command::new("/usr/sbin/debootstrap");
        debootstrap.args(["--variant=minbase", suite]).arg(&partial);
        crate::command::succeed(debootstrap.stdout(std::process::Stdio::null()))?;
        named(&partial, fs::rename(&partial, &base))?;
    }
    Ok(base)
}

/// What is tried, and how.
fn bring(builder: &Builder, folder: &Path) -> Result<(), String> {
    files::write_program(&folder.join("try.sh"), TRY)?;
    for file in files::below(&builder.output(""))? {
        let is_ours = file.parent() == Some(&builder.output(""));
        if let Some(name) = file.file_name().filter(|_| is_ours) {
            copy(&file, &folder.join(name), 0o644)?;
        }
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
