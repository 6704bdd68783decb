//! `cargo x packages`: builds every public crate from its package, outside the workspace, as a
//! program that depends on it does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;

/// What stays here: tasks, and the gem's extension, which the gem brings.
const PRIVATE: [&str; 2] = ["xtask", "thruway-gem-ext"];

/// Build every public crate from its package
#[derive(Debug, Args)]
pub(crate) struct Packages {
    /// Then do all of a publication but the upload, and build a program that finds them in a registry of this machine
    #[arg(long)]
    publish: bool,
}

impl Packages {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let target = root.join("target/packages");
        forget_earlier_packages(&target).map_err(|error| {
            format!("cannot remove what cargo keeps of earlier packages: {error}")
        })?;
        // Both compile each package; the former asks the registry as well whether it would take it.
        let how: &[&str] = if self.publish { &["publish", "--dry-run"] } else { &["package"] };
        let mut cargo = Command::new(crate::command::cargo());
        cargo.current_dir(root).env("CARGO_TARGET_DIR", &target).args(how);
        // What is not committed yet is packaged, too.
        cargo.args(["--quiet", "--allow-dirty", "--workspace"]);
        cargo.args(PRIVATE.iter().flat_map(|package| ["--exclude", package]));
        crate::command::succeed(&mut cargo)?;
        if self.publish { use_them(root, &target) } else { Ok(()) }
    }
}

/// Builds a program outside of the workspace. All that it depends on, ours included, comes from a folder that stands
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
    let names = libraries(root)?;
    for (name, version) in &names {
        let package = target.join(format!("package/{name}-{version}.crate"));
        let mut tar = Command::new("tar");
        crate::command::succeed(tar.arg("-xzf").arg(package).arg("-C").arg(&registry))?;
        // cargo takes an unpacked package with the checksums of its files; none are compared with none.
        let checksums = registry.join(format!("{name}-{version}/.cargo-checksum.json"));
        fs::write(checksums, "{\"files\":{}}").map_err(failed)?;
    }
    fs::write(folder.join("Cargo.toml"), manifest(&names)).map_err(failed)?;
    fs::write(folder.join("src/main.rs"), program(&names)).map_err(failed)?;
    let mut cargo = Command::new(crate::command::cargo());
    cargo.current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target"));
    cargo.args(["run", "--quiet", "--offline", "--config"]);
    cargo.arg("source.crates-io.replace-with=\"here\"").arg("--config");
    cargo.arg(format!("source.here.directory={:?}", registry.display().to_string()));
    crate::command::succeed(&mut cargo)?;
    println!("packages: a program is built from {} packages of this machine", names.len());
    fs::remove_dir_all(&folder).map_err(failed)
}

/// The names and versions of the public libraries.
fn libraries(root: &Path) -> Result<Vec<(String, String)>, String> {
    let mut cargo = Command::new(crate::command::cargo());
    cargo.current_dir(root).args(["metadata", "--no-deps", "--locked", "--format-version", "1"]);
    let output = cargo.output().map_err(|error| format!("cannot start cargo: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let is_public = |package: &&Value| {
        let is_library = |target: &Value| target["kind"][0] == "lib";
        package["publish"].is_null()
            && package["targets"].as_array().into_iter().flatten().any(is_library)
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named = |package: &Value| (text(&package["name"]), text(&package["version"]));
    Ok(packages.filter(is_public).map(named).collect())
}

fn manifest(names: &[(String, String)]) -> String {
    let head =
        "[package]\nname = \"program\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n";
    let lines = names.iter().map(|(name, version)| format!("{name} = \"{version}\"\n"));
    format!("{head}[dependencies]\n{}", lines.collect::<String>())
}

/// It names each of them, so that all are linked.
fn program(names: &[(String, String)]) -> String {
    let lines = names.iter().map(|(name, _)| format!("use {} as _;\n", name.replace('-', "_")));
    format!("{}\nfn main() {{}}\n", lines.collect::<String>())
}

/// cargo unpacks and compiles a package once for each version. Ours change without a new version, and the next
/// crate would be built against the first ones for ever.
fn forget_earlier_packages(target: &Path) -> io::Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    // A registry without a host is a folder of this machine.
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

/// What a folder holds; nothing, if it is not there.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
