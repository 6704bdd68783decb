//! Compiles what is packaged: stripped, and without the paths of the machine that it was built on.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::{self, read};
use super::ruby::Ruby;

/// The platform that programs are built for here.
pub(super) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds programs of one checkout.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) root: PathBuf,
    pub(super) version: String,
    /// Where the project is: each said once, in the workspace's manifest.
    pub(super) homepage: String,
    pub(super) repository: String,
    pub(super) maintainer: String,
}

impl Builder {
    pub(super) fn new(root: &Path) -> Result<Self, String> {
        let manifest: toml::Table = read(&root.join("Cargo.toml"))?
            .parse()
            .map_err(|error| format!("Cargo.toml: {error}"))?;
        let package = &manifest["workspace"]["package"];
        let text = |value: Option<&toml::Value>, key: &str| {
            let text = value.and_then(toml::Value::as_str);
            text.map(str::to_owned).ok_or_else(|| format!("Cargo.toml has no {key}"))
        };
        let maintainer = package.get("authors").and_then(|authors| authors.get(0));
        Ok(Self {
            root: root.to_owned(),
            version: text(package.get("version"), "version")?,
            homepage: text(package.get("homepage"), "homepage")?,
            repository: text(package.get("repository"), "repository")?,
            maintainer: text(maintainer, "authors")?,
        })
    }

    /// Where things are put for users.
    pub(super) fn output(&self, name: &str) -> PathBuf {
        self.root.join("target/dist").join(name)
    }

    /// Where things are put while they are made.
    pub(super) fn work(&self, name: &str) -> PathBuf {
        self.root.join("target/dist/work").join(name)
    }

    /// The command, which needs no library of the system that it runs on.
    pub(super) fn static_program(&self) -> Result<PathBuf, String> {
        // Packed, its relocations take a fiftieth of the room; its own start-up code (glibc 2.36) reads them.
        let flags = ["-Ctarget-feature=+crt-static", "-Clink-arg=-Wl,-z,pack-relative-relocs"];
        let target = self.work("static");
        // It carries all libraries, so it is made as small as can be.
        let small = Some(("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", OsStr::new("1")));
        self.cargo(&target, &flags, &["--target", TARGET, "--package", "thruway-cli"], small)?;
        Ok(target.join(TARGET).join("release/thruway"))
    }

    /// The command as Debian wants it, linked with the libraries of the system.
    pub(super) fn system_program(&self) -> Result<PathBuf, String> {
        let target = self.work("system");
        self.cargo(&target, &[], &["--package", "thruway-cli"], None)?;
        Ok(target.join("release/thruway"))
    }

    /// The extension for a Ruby.
    pub(super) fn extension(&self, ruby: &Ruby) -> Result<PathBuf, String> {
        let target = self.work(&format!("ruby-{}", ruby.version));
        self.cargo(
            &target,
            &[],
            &["--package", "thruway-gem-ext"],
            Some(("RUBY", ruby.program.as_os_str())),
        )?;
        Ok(target.join("release/libthruway_ext.so"))
    }

    fn cargo(
        &self,
        target: &Path,
        flags: &[&str],
        arguments: &[&str],
        variable: Option<(&str, &OsStr)>,
    ) -> Result<(), String> {
        let name = target.file_name().unwrap_or_default().display();
        println!("dist: cargo build {} ({name})", arguments.join(" "));
        let mut cargo = Command::new(crate::command::cargo());
        cargo.current_dir(&self.root).args(["build", "--quiet", "--locked", "--release"]);
        cargo.args(arguments).env("CARGO_TARGET_DIR", target);
        // Unit separators, since a path may have spaces.
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let flags = [flags, self.without_paths()].concat().join("\u{1f}");
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags);
        cargo.envs([
            ("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
            ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
        ]);
        if let Some((name, value)) = variable {
            cargo.env(name, value);
        }
        crate::command::succeed(&mut cargo)
    }

    /// Options that keep the folders of this machine out of programs, so that two machines build the same.
    fn without_paths(&self) -> Vec<String> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
        let mut paths = vec![format!("--remap-path-prefix={}=thruway", self.root.display())];
        let registry = home.map(|home| home.join("registry/src")).and_then(|sources| {
            let mut hosts = files::folders(&sources);
            hosts.pop()
        });
        paths.extend(registry.map(|host| format!("--remap-path-prefix={}=crates", host.display())));
        paths
    }
}
