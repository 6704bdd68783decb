//! Debian's own Rust, which brings the sources of its library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tools and sources that build the standard library for a target which the toolchain at hand lacks. Each part
/// is given by one of its files and its package.
pub(crate) const LIBRARY_SOURCES: [(&str, &str); 4] = [
    ("/usr/bin/rustc", "rustc-web"),
    (CARGO, "cargo-web"),
    ("/usr/bin/cargo-clippy", "rust-web-clippy"),
    ("/usr/lib/rustlib/src/rust/library/std/Cargo.toml", "rust-web-src"),
];

/// Debian's own cargo.
pub(crate) const CARGO: &str = "/usr/bin/cargo";

/// Lets cargo build the standard library for a target that the toolchain does not have.
pub(crate) const BUILD_LIBRARY: &str = "-Zbuild-std=std,panic_unwind";

/// The packages that are not there, of these files and the packages that they come from.
pub(crate) fn missing(needed: &[(&str, &str)]) -> Option<String> {
    let missing = needed.iter().filter(|(file, _)| !Path::new(file).is_file());
    let packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    (!packages.is_empty()).then(|| packages.join(" "))
}

/// The folder of everything that Debian's Rust builds. Systems share it, so that build scripts and macros, which run
/// on this machine, are compiled once for all of them.
pub(crate) fn target(root: &Path) -> PathBuf {
    root.join("target/systems")
}

/// Debian's cargo, whatever toolchain started us, with options that are not stable yet.
pub(crate) fn cargo(root: &Path) -> Command {
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
