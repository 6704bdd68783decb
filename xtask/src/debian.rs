//! Debian's own Rust, which includes the sources of its standard library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tools and sources that build the standard library for a target that the current toolchain lacks: one file of
/// each package, and the package.
pub const LIBRARY_SOURCES: [(&str, &str); 4] = [
    ("/usr/bin/rustc", "rustc-web"),
    (CARGO, "cargo-web"),
    ("/usr/bin/cargo-clippy", "rust-web-clippy"),
    ("/usr/lib/rustlib/src/rust/library/std/Cargo.toml", "rust-web-src"),
];

/// Debian's own cargo.
pub const CARGO: &str = "/usr/bin/cargo";

/// The option by which cargo builds the standard library for a target that the toolchain lacks.
pub const BUILD_LIBRARY: &str = "-Zbuild-std=std,panic_unwind";

/// The packages whose files in `needed` are missing.
pub fn missing(needed: &[(&str, &str)]) -> Option<String> {
    let missing = needed.iter().filter(|(file, _)| !Path::new(file).is_file());
    let packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    (!packages.is_empty()).then(|| packages.join(" "))
}

/// The target folder of all builds by Debian's Rust. Systems share it, so that build scripts and macros, which run on
/// this machine, are compiled once for all of them.
pub fn target(root: &Path) -> PathBuf {
    root.join("target/systems")
}

/// A command of Debian's cargo, independent of the toolchain that started the task, with unstable options allowed.
pub fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(CARGO);
    let mut with_debian_first = OsString::from("/usr/bin:");
    with_debian_first.push(std::env::var_os("PATH").unwrap_or_default());
    for rustup in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER"] {
        cargo.env_remove(rustup);
    }
    cargo
        .current_dir(root)
        .env("PATH", with_debian_first)
        .env("RUSTC", "/usr/bin/rustc")
        .env("CARGO_TARGET_DIR", target(root))
        .env("RUSTC_BOOTSTRAP", "1");
    cargo
}
