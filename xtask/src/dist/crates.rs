//! The crates of the programs, from cargo's metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::build::Builder;
use super::files::read;

/// The packages that users install. Others count as far as these depend on them.
const PROGRAMS: [&str; 2] = ["thruway-cli", "thruway-gem-ext"];

/// A crate.
#[derive(Debug)]
pub(super) struct Crate {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) licence: String,
    pub(super) repository: String,
    pub(super) folder: PathBuf,
    /// Whether the crate comes from a registry rather than from the workspace.
    pub(super) is_foreign: bool,
    /// The SHA-256 of the package, from Cargo.lock.
    pub(super) checksum: Option<String>,
    /// The identities of the crates that it depends on.
    pub(super) needs: Vec<String>,
}

/// Returns every crate of the programs for the platform, sorted by name.
pub(super) fn of_programs(builder: &Builder) -> Result<Vec<Crate>, String> {
    let metadata = metadata(builder)?;
    let needs = needs(&metadata["resolve"]["nodes"]);
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let by_id: BTreeMap<_, _> =
        packages.iter().map(|package| (text(&package["id"]), package)).collect();
    let roots =
        by_id.iter().filter(|(_, package)| PROGRAMS.contains(&text(&package["name"]).as_str()));
    let mut wanted: Vec<String> = roots.map(|(id, _)| id.clone()).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = wanted.pop() {
        if found.insert(id.clone()) {
            wanted.extend(needs.get(&id).into_iter().flatten().cloned());
        }
    }
    let checksums = checksums(builder)?;
    let made = found.iter().filter_map(|id| Some((id, by_id.get(id)?)));
    let mut crates: Vec<_> = made
        .map(|(id, package)| {
            let of_crate = needs.get(id).cloned().unwrap_or_default();
            described(id, package, of_crate, &checksums)
        })
        .collect();
    crates.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(crates)
}

fn metadata(builder: &Builder) -> Result<Value, String> {
    let mut cargo = Command::new(crate::command::cargo());
    cargo.current_dir(&builder.root).args(["metadata", "--locked", "--format-version", "1"]);
    let output = cargo.args(["--filter-platform", builder.processor.target()]).output();
    let output = output.map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// Returns the dependencies of each crate, without those of its tests.
fn needs(nodes: &Value) -> BTreeMap<String, Vec<String>> {
    let is_built_with = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.into_iter().flatten().any(|kind| kind["kind"] != "dev")
    };
    let nodes = nodes.as_array().into_iter().flatten();
    let needs = nodes.map(|node| {
        let dependencies = node["deps"].as_array().into_iter().flatten();
        let built_with = dependencies.filter(is_built_with).map(|needed| text(&needed["pkg"]));
        (text(&node["id"]), built_with.collect())
    });
    needs.collect()
}

fn described(
    id: &str,
    package: &Value,
    needs: Vec<String>,
    checksums: &BTreeMap<(String, String), String>,
) -> Crate {
    let manifest = PathBuf::from(text(&package["manifest_path"]));
    let (name, version) = (text(&package["name"]), text(&package["version"]));
    Crate {
        id: id.to_owned(),
        licence: text(&package["license"]).replace('/', " OR "),
        repository: text(&package["repository"]),
        folder: manifest.parent().map(PathBuf::from).unwrap_or_default(),
        is_foreign: !package["source"].is_null(),
        checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
        name,
        version,
        needs,
    }
}

/// The checksums of Cargo.lock, by name and version.
fn checksums(builder: &Builder) -> Result<BTreeMap<(String, String), String>, String> {
    let lock: toml::Table = read(&builder.root.join("Cargo.lock"))?
        .parse()
        .map_err(|error| format!("Cargo.lock: {error}"))?;
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let text = |package: &toml::Value, key: &str| {
        package.get(key).and_then(toml::Value::as_str).map(str::to_owned)
    };
    let known = packages.filter_map(|package| {
        Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?))
    });
    Ok(known.collect())
}

/// The text of a value; empty for any other kind of value.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
