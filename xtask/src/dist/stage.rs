//! The source tree of the gem: the sources of its programs, and nothing else.
//!
//! Tests and tasks are left out, so the installation of the gem need not download their
//! dependencies.

use std::path::Path;
use std::process::Command;

use toml::{Table, Value};

use super::build::Builder;
use super::files::{self, copy, copy_tree, read, write};

/// Crates that no program of the gem uses.
const LEFT_OUT: [&str; 1] = ["testing"];
/// Tables of a manifest that only tests and tasks read.
const TABLES_OF_TESTS: [&str; 4] = ["dev-dependencies", "test", "bench", "example"];

/// Writes the tree into an empty folder.
pub(super) fn sources(builder: &Builder, folder: &Path) -> Result<(), String> {
    files::empty(folder)?;
    let mut members = vec!["gem/ext/thruway".to_owned()];
    for member in files::folders(&builder.root.join("crates")) {
        let name = member.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !LEFT_OUT.contains(&name) {
            members.push(format!("crates/{name}"));
        }
    }
    for member in &members {
        member_sources(&builder.root.join(member), &folder.join(member))?;
    }
    library(builder, folder)?;
    let workspace = workspace_manifest(&read(&builder.root.join("Cargo.toml"))?, &members)?;
    write(&folder.join("Cargo.toml"), workspace)?;
    lock(builder, folder)
}

/// Copies the Ruby files, the command, and their documentation.
pub(super) fn library(builder: &Builder, folder: &Path) -> Result<(), String> {
    let root = &builder.root;
    for part in ["gem/lib", "gem/exe"] {
        copy_tree(&root.join(part), &folder.join(part), &|_| true)?;
    }
    for file in ["README.md", "CHANGELOG.md", "LICENSE", "Cargo.toml", "thruway.gemspec"] {
        copy(&root.join(file), &folder.join(file), 0o644)?;
    }
    copy(&root.join("gem/exe/thruway"), &folder.join("gem/exe/thruway"), 0o755)
}

fn member_sources(from: &Path, to: &Path) -> Result<(), String> {
    copy_tree(&from.join("src"), &to.join("src"), &|inside| !is_test(inside))?;
    for file in ["README.md", "build.rs", "extconf.rb"] {
        if from.join(file).is_file() {
            copy(&from.join(file), &to.join(file), 0o644)?;
        }
    }
    let manifest = without_tests(&read(&from.join("Cargo.toml"))?)?;
    write(&to.join("Cargo.toml"), manifest)
}

/// Whether a file of `src` is compiled for tests alone.
fn is_test(inside: &Path) -> bool {
    inside.iter().any(|part| part == "tests" || part == "tests.rs")
}

fn workspace_manifest(text: &str, members: &[String]) -> Result<String, String> {
    let mut manifest: Table = text.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    let workspace = manifest.get_mut("workspace").and_then(Value::as_table_mut);
    let workspace = workspace.ok_or("Cargo.toml is not a workspace's")?;
    workspace.insert(
        "members".into(),
        Value::Array(members.iter().cloned().map(Value::String).collect()),
    );
    if let Some(profiles) = manifest.get_mut("profile").and_then(Value::as_table_mut) {
        profiles.retain(|name, _| name == "release");
    }
    Ok(manifest.to_string())
}

fn without_tests(text: &str) -> Result<String, String> {
    let mut manifest: Table = text.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    manifest.retain(|table, _| !TABLES_OF_TESTS.contains(&table));
    let targets = manifest.get_mut("target").and_then(Value::as_table_mut);
    for (_, target) in targets.into_iter().flat_map(Table::iter_mut) {
        if let Some(target) = target.as_table_mut() {
            target.remove("dev-dependencies");
        }
    }
    Ok(manifest.to_string())
}

/// Copies Cargo.lock, and removes from the copy the crates that the staged packages do not need. The versions of the
/// others stay those of the checkout.
fn lock(builder: &Builder, folder: &Path) -> Result<(), String> {
    copy(&builder.root.join("Cargo.lock"), &folder.join("Cargo.lock"), 0o644)?;
    let mut cargo = Command::new(crate::command::cargo());
    cargo.current_dir(folder).args(["update", "--quiet", "--workspace", "--offline"]);
    crate::command::succeed(&mut cargo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_keeps_what_a_build_needs() {
        let whole = "[package]\nname = \"a\"\n[dependencies]\nb = \"1\"\n[dev-dependencies]\nc = \"1\"\n\
                     [[test]]\nname = \"it\"\n[target.'cfg(unix)'.dependencies]\nd = \"1\"\n\
                     [target.'cfg(unix)'.dev-dependencies]\ne = \"1\"\n";
        let kept: Table = without_tests(whole).unwrap().parse().unwrap();
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["dependencies", "package", "target"]);
        assert_eq!(kept["target"]["cfg(unix)"].as_table().unwrap().len(), 1);
    }

    #[test]
    fn files_of_tests_stay_behind() {
        for (path, stays) in [("a/tests.rs", true), ("tests/b.rs", true), ("a/contests.rs", false)]
        {
            assert_eq!(is_test(Path::new(path)), stays, "{path}");
        }
    }
}
