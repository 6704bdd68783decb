//! Compiles the programs of packages: stripped, and without paths of the build machine.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::{self, read};
use super::platform::Processor;
use super::ruby::Ruby;

/// Builds the programs of one checkout.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) root: PathBuf,
    pub(super) processor: Processor,
    pub(super) version: String,
    /// The project's addresses, each defined once, in the workspace's manifest.
    pub(super) homepage: String,
    pub(super) repository: String,
    pub(super) maintainer: String,
    /// The versions of Ruby whose extension has been built.
    extensions: RefCell<BTreeSet<String>>,
}

impl Builder {
    pub(super) fn new(root: &Path, processor: Processor) -> Result<Self, String> {
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
            processor,
            version: text(package.get("version"), "version")?,
            homepage: text(package.get("homepage"), "homepage")?,
            repository: text(package.get("repository"), "repository")?,
            maintainer: text(maintainer, "authors")?,
            extensions: RefCell::default(),
        })
    }

    /// The folder of finished files.
    pub(super) fn output(&self, name: &str) -> PathBuf {
        self.root.join("target/dist").join(name)
    }

    /// The folder of intermediate files.
    pub(super) fn work(&self, name: &str) -> PathBuf {
        self.root.join("target/dist/work").join(name)
    }

    /// Builds the command that needs no libraries of its system. The command contains all of them, so it is made as
    /// small as possible.
    pub(super) fn static_program(&self) -> Result<PathBuf, String> {
        let folder = self.work("static");
        let mut cargo = self.cargo(&folder, "thruway-cli");
        // With a target, the flags apply to its programs alone, and not to build scripts.
        cargo.args(["--profile", "small", "--target", self.processor.target()]);
        let flags = [&["-Ctarget-feature=+crt-static"], self.processor.size_flags()].concat();
        self.with_flags(&mut cargo, &flags);
        crate::command::succeed(&mut cargo)?;
        Ok(folder.join(self.processor.target()).join("small/thruway"))
    }

    /// Builds the command as Debian wants it, linked with the system's libraries.
    pub(super) fn system_program(&self, ruby: &Ruby) -> Result<PathBuf, String> {
        self.extension(ruby)?;
        Ok(self.release_folder().join("release/thruway"))
    }

    /// Builds the extension for a Ruby, once per run.
    pub(super) fn extension(&self, ruby: &Ruby) -> Result<PathBuf, String> {
        let name = format!("{}-{}.so", self.processor.platform(), ruby.version);
        let kept = self.work("extensions").join(name);
        if self.extensions.borrow_mut().insert(ruby.version.clone()) {
            self.release(ruby)?;
            let built = self.release_folder().join("release/libthruway_ext.so");
            files::copy(&built, &kept, 0o755)?;
        }
        Ok(kept)
    }

    /// Builds the command and the extension together: their common dependencies, shared with the extensions for other
    /// Rubies, are compiled once.
    fn release(&self, ruby: &Ruby) -> Result<(), String> {
        let folder = self.release_target();
        let mut cargo = self.cargo(&folder, "thruway-cli");
        cargo.args(["--package", "thruway-gem-ext", "--release"]).env("RUBY", &ruby.program);
        if self.processor.is_foreign() {
            cargo.args(["--target", self.processor.target()]);
        }
        self.with_flags(&mut cargo, &[]);
        let settings =
            [("CARGO_PROFILE_RELEASE_STRIP", "symbols"), ("CARGO_PROFILE_RELEASE_DEBUG", "false")];
        crate::command::succeed(cargo.envs(settings))
    }

    /// cargo's target folder: each processor has its own, since programs for this machine's processor have other paths
    /// in it.
    fn release_target(&self) -> PathBuf {
        self.work(if self.processor.is_foreign() { "foreign-release" } else { "release" })
    }

    fn release_folder(&self) -> PathBuf {
        let folder = self.release_target();
        if self.processor.is_foreign() { folder.join(self.processor.target()) } else { folder }
    }

    fn cargo(&self, folder: &Path, package: &str) -> Command {
        let name = folder.file_name().unwrap_or_default().display();
        println!("dist: cargo build {package} for {} ({name})", self.processor.platform());
        let mut cargo = self.processor.cargo(&self.root, "build");
        cargo.args(["--locked", "--package", package]).env("CARGO_TARGET_DIR", folder);
        cargo
    }

    fn with_flags(&self, cargo: &mut Command, flags: &[&str]) {
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        // The flags are joined by unit separators, since a path may contain spaces.
        let flags = [flags, self.without_paths()].concat().join("\u{1f}");
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags);
    }

    /// Options that keep the folders of the machine out of programs, so that two machines build the same bytes.
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
