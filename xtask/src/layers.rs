//! Compares the import table in ARCHITECTURE.md with every Cargo.toml.
//!
//! Two tables are read: *Layers* (a crate, and the siblings that it may import) and *Held crates*
//! (an external crate, and the crates that may import it). Development dependencies are free.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use toml::Table;

/// The siblings that each crate may import, by the crate's name.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns every breach, one per line; none is `Ok`.
pub(crate) fn check(root: &Path) -> Result<(), Vec<String>> {
    let architecture = read(&root.join("ARCHITECTURE.md"))?;
    let layers = rows(&architecture, "## Layers");
    let held = rows(&architecture, "## Held crates");
    if layers.is_empty() || held.is_empty() {
        return Err(vec!["ARCHITECTURE.md has no table below Layers or Held crates".into()]);
    }
    let mut breaches = Vec::new();
    for manifest in manifests(root) {
        let text = read(&manifest)?;
        breaches.extend(breaches_of(&text, &layers, &held));
        breaches.extend(forbids_unsafe(&manifest, &text));
    }
    if breaches.is_empty() { Ok(()) } else { Err(breaches) }
}

fn read(path: &Path) -> Result<String, Vec<String>> {
    fs::read_to_string(path)
        .map_err(|error| vec![format!("cannot read {}: {error}", path.display())])
}

/// The manifests of all members, whose folders hold a Cargo.toml.
fn manifests(root: &Path) -> Vec<std::path::PathBuf> {
    let mut found = ["benches", "xtask", "gem/ext/thruway"]
        .map(|member| root.join(member).join("Cargo.toml"))
        .to_vec();
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    found.extend(crates.map(|entry| entry.path().join("Cargo.toml")));
    found.retain(|manifest| manifest.is_file());
    found.sort();
    found
}

/// The table below `heading`: the code spans of the first column, each with those of the second.
fn rows(architecture: &str, heading: &str) -> Imports {
    let below = architecture.lines().skip_while(|line| *line != heading).skip(1);
    let section = below.take_while(|line| !line.starts_with("## "));
    let mut imports = Imports::new();
    for line in section.filter(|line| line.starts_with("| `")) {
        let mut cells = line.trim_matches('|').split('|');
        let (Some(subject), Some(allowed)) = (cells.next(), cells.next()) else {
            continue;
        };
        for name in spans(subject) {
            imports.entry(name).or_default().extend(spans(allowed));
        }
    }
    imports
}

fn spans(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn breaches_of(manifest: &str, layers: &Imports, held: &Imports) -> Vec<String> {
    let Ok(manifest) = manifest.parse::<Table>() else {
        return vec!["a Cargo.toml is not valid TOML".into()];
    };
    let package = manifest["package"]["name"].as_str().unwrap_or_default();
    let own = package.trim_start_matches("thruway-");
    let Some(allowed) = layers.get(own) else {
        return vec![format!("{own} has no row in ARCHITECTURE.md's Layers")];
    };
    let mut breaches = Vec::new();
    for dependency in dependencies(&manifest) {
        let sibling = dependency.strip_prefix("thruway-").unwrap_or(&dependency);
        let is_sibling = sibling != dependency || layers.contains_key(sibling);
        if is_sibling && !allowed.contains(sibling) {
            breaches.push(format!("{own} imports its sibling {sibling}"));
        }
        if held.get(&dependency).is_some_and(|holders| !holders.contains(own)) {
            breaches.push(format!("{own} imports {dependency}, which is held by others"));
        }
    }
    breaches
}

/// The names of normal and build dependencies for every target.
fn dependencies(manifest: &Table) -> BTreeSet<String> {
    let targets = manifest.get("target").and_then(|target| target.as_table());
    let targets =
        targets.into_iter().flat_map(Table::values).filter_map(|target| target.as_table());
    let tables = targets.chain([manifest]);
    let kinds = ["dependencies", "build-dependencies"];
    tables
        .flat_map(|table| kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()))
        .flat_map(Table::keys)
        .cloned()
        .collect()
}

/// Only the crates that ARCHITECTURE.md names may do without `#![forbid(unsafe_code)]`.
fn forbids_unsafe(manifest: &Path, text: &str) -> Option<String> {
    const MAY: [&str; 2] = ["name = \"thruway-sys\"", "name = \"thruway-gem-ext\""];
    if MAY.iter().any(|name| text.contains(name)) {
        return None;
    }
    let source = manifest.with_file_name("src");
    let root =
        ["lib.rs", "main.rs"].iter().find_map(|file| fs::read_to_string(source.join(file)).ok());
    let forbids = root.is_some_and(|code| code.contains("#![forbid(unsafe_code)]"));
    (!forbids).then(|| format!("{} does not forbid unsafe code", source.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "\
## Layers
| crate | may import |
| --- | --- |
| `sys` | nothing |
| `serve` | `resolve`, `sys` |
## Held crates
| crate | only |
| --- | --- |
| `fuser` | `mount` |
";

    fn breaches(manifest: &str) -> Vec<String> {
        breaches_of(manifest, &rows(TABLES, "## Layers"), &rows(TABLES, "## Held crates"))
    }

    #[test]
    fn every_manifest_keeps_to_the_table() {
        assert_eq!(check(&crate::root()), Ok(()));
    }

    #[test]
    fn a_planted_breach_is_found() {
        let manifest = "[package]\nname = \"thruway-serve\"\n[dependencies]\nthruway-boot = \"0\"";
        assert_eq!(breaches(manifest), ["serve imports its sibling boot"]);
        let manifest = "[package]\nname = \"thruway-sys\"\n\
             [target.'cfg(unix)'.dependencies]\nfuser = \"0\"\n[build-dependencies]\nthruway-serve = \"0\"";
        let expected =
            ["sys imports fuser, which is held by others", "sys imports its sibling serve"];
        assert_eq!(breaches(manifest), expected);
    }

    #[test]
    fn a_sibling_without_the_prefix_is_one_too() {
        let manifest = "[package]\nname = \"thruway-sys\"\n[dependencies]\nserve = { path = \"\" }";
        assert_eq!(breaches(manifest), ["sys imports its sibling serve"]);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        let manifest = "[package]\nname = \"thruway-fly\"";
        assert_eq!(breaches(manifest), ["fly has no row in ARCHITECTURE.md's Layers"]);
    }

    #[test]
    fn allowed_and_development_imports_pass() {
        let manifest = "[package]\nname = \"thruway-serve\"\n[dependencies]\nthruway-sys = \"0\"\n\
             [dev-dependencies]\nfuser = \"0\"";
        assert!(breaches(manifest).is_empty());
    }
}
