//! `cargo x packages`: compiles every public crate from its package, outside the workspace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;

/// The packages that are not published: the benchmarks, the tasks, and the gem's extension, which is part of the gem.
const PRIVATE: [&str; 3] = ["benches", "xtask", "thruway-gem-ext"];

/// Compile every public crate from its package
#[derive(Debug, Args)]
pub(crate) struct Packages {
    /// Build each package alone, do everything of a publication except the upload, and build a program with the
    /// packages from a registry on this machine
    #[arg(long)]
    publish: bool,
}

impl Packages {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let target = root.join("target/packages");
        if !self.publish {
            succeed(root, &target, &["package", "--no-verify"])?;
            return check_them(root, &target);
        }
        forget_earlier_packages(&target).map_err(|error| {
            format!("cannot remove what cargo keeps of earlier packages: {error}")
        })?;
        succeed(root, &target, &["package"])?;
        // A dry run checks whether the registry would accept the packages, which are already compiled.
        succeed(root, &target, &["publish", "--dry-run", "--no-verify"])?;
        use_them(root, &target)
    }
}

/// Compiles all packages as one workspace, without generating code. Libraries come from the lints: the same versions,
/// with the same profile, in the same folder.
fn check_them(root: &Path, target: &Path) -> Result<(), String> {
    let folder = target.join("workspace");
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    if folder.is_dir() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    let packages = public_packages(root)?;
    for Package { name, version, .. } in &packages {
        unpack(target, name, version, &folder)?;
    }
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).map_err(failed)?;
    fs::write(folder.join("Cargo.toml"), workspace(root, &packages)?).map_err(failed)?;
    let mut cargo = Command::new(crate::command::cargo());
    cargo.current_dir(&folder).env("CARGO_TARGET_DIR", root.join("target"));
    crate::command::succeed(cargo.args(["check", "--workspace"]))?;
    println!("packages: {} compile from what they contain", packages.len());
    fs::remove_dir_all(&folder).map_err(failed)
}

/// Unpacks a package into a folder with its name and version.
fn unpack(target: &Path, name: &str, version: &str, folder: &Path) -> Result<(), String> {
    let package = target.join(format!("package/{name}-{version}.crate"));
    let mut tar = Command::new("tar");
    crate::command::succeed(tar.arg("-xzf").arg(package).arg("-C").arg(folder))
}

/// The manifest of a workspace of unpacked packages, with our development profile.
fn workspace(root: &Path, packages: &[Package]) -> Result<String, String> {
    let ours = root.join("Cargo.toml");
    let text = fs::read_to_string(&ours).map_err(|error| format!("{}: {error}", ours.display()))?;
    let text: toml::Table = text.parse().map_err(|error| format!("{}: {error}", ours.display()))?;
    let paths = packages.iter().map(|Package { name, version, .. }| {
        format!("{name} = {{ path = \"{name}-{version}\" }}\n")
    });
    let mut profile = toml::Table::new();
    profile.insert("dev".to_owned(), text["profile"]["dev"].clone());
    let mut profiles = toml::Table::new();
    profiles.insert("profile".to_owned(), toml::Value::Table(profile));
    Ok(format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\"*-*\"]\n\n[patch.crates-io]\n{}\n{profiles}",
        paths.collect::<String>()
    ))
}

/// Runs cargo for all public crates in their order, including uncommitted changes.
fn succeed(root: &Path, target: &Path, how: &[&str]) -> Result<(), String> {
    let mut cargo = Command::new(crate::command::cargo());
    cargo.current_dir(root).env("CARGO_TARGET_DIR", target).args(how);
    cargo.args(["--allow-dirty", "--workspace"]);
    cargo.args(PRIVATE.iter().flat_map(|package| ["--exclude", package]));
    crate::command::succeed(&mut cargo)
}

/// Builds a program outside the workspace. All of its dependencies, including ours, come from a folder that stands in
/// for the registry.
fn use_them(root: &Path, target: &Path) -> Result<(), String> {
    let folder = target.join("program");
    let registry = folder.join("registry");
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    if folder.is_dir() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(folder.join("src")).map_err(failed)?;
    let mut vendor = Command::new(crate::command::cargo());
    vendor.current_dir(root).args(["vendor", "--quiet", "--locked"]).arg(&registry);
    crate::command::succeed(vendor.stdout(std::process::Stdio::null()))?;
    let mut names = public_packages(root)?;
    names.retain(|package| package.is_library);
    for Package { name, version, .. } in &names {
        unpack(target, name, version, &registry)?;
        // cargo accepts an unpacked package with the checksums of its files; an empty list skips the comparison.
        let checksums = registry.join(format!("{name}-{version}/.cargo-checksum.json"));
        fs::write(checksums, "{\"files\":{}}").map_err(failed)?;
    }
    fs::write(folder.join("Cargo.toml"), manifest(&names)).map_err(failed)?;
    fs::write(folder.join("src/main.rs"), program(&names)).map_err(failed)?;
    let mut cargo = Command::new(crate::command::cargo());
    cargo.current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target"));
    cargo.args(["run", "--offline", "--config"]);
    cargo.arg("source.crates-io.replace-with=\"here\"").arg("--config");
    cargo.arg(format!("source.here.directory={:?}", registry.display().to_string()));
    crate::command::succeed(&mut cargo)?;
    println!("packages: a program is built from {} packages of this machine", names.len());
    fs::remove_dir_all(&folder).map_err(failed)
}

/// A public package of the workspace.
struct Package {
    name: String,
    version: String,
    is_library: bool,
}

fn public_packages(root: &Path) -> Result<Vec<Package>, String> {
    let mut cargo = Command::new(crate::command::cargo());
    cargo.current_dir(root).args(["metadata", "--no-deps", "--locked", "--format-version", "1"]);
    let output = cargo.output().map_err(|error| format!("cannot start cargo: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_library = |package: &Value| {
        let mut targets = package["targets"].as_array().into_iter().flatten();
        targets.any(|target| target["kind"][0] == "lib")
    };
    let package = |package: &Value| Package {
        name: text(&package["name"]),
        version: text(&package["version"]),
        is_library: is_library(package),
    };
    Ok(packages.filter(|package| package["publish"].is_null()).map(package).collect())
}

fn manifest(names: &[Package]) -> String {
    let head =
        "[package]\nname = \"program\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n";
    let lines =
        names.iter().map(|Package { name, version, .. }| format!("{name} = \"{version}\"\n"));
    format!("{head}[dependencies]\n{}", lines.collect::<String>())
}

/// The program names each package, so that all are linked.
fn program(names: &[Package]) -> String {
    let lines =
        names.iter().map(|Package { name, .. }| format!("use {} as _;\n", name.replace('-', "_")));
    format!("{}\nfn main() {{}}\n", lines.collect::<String>())
}

/// Removes earlier packages of the same versions. cargo unpacks and compiles a package once per version. Ours change
/// without a new version, and a later crate would be built against the first package for ever.
fn forget_earlier_packages(target: &Path) -> io::Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    // The folder of a local registry has no host in its name.
    let is_local = |folder: &PathBuf| {
        folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"-"))
    };
    let sources = home.into_iter().flat_map(|home| entries(&home.join("registry/src")));
    let mut folders: Vec<_> = sources.filter(is_local).collect();
    folders.push(target.join("debug/.fingerprint"));
    for package in folders.iter().flat_map(|folder| entries(folder)) {
        if package.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"thruway-"))
        {
            fs::remove_dir_all(package)?;
        }
    }
    Ok(())
}

/// Returns the entries of a folder; none if the folder is missing.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
