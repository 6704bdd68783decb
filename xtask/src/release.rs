//! `cargo x release VERSION`: one command from a clean tree to a tag, and to the packages for users.
//!
//! The task checks everything first, and changes nothing if a check fails.

use std::fs;
use std::path::Path;
use std::process::Command;

use clap::Args;

/// Make a release: changelog, version, commit, tag, and the packages for users
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Version such as 0.2.0, greater than the current one
    version: String,
    /// Only show the release that would be made
    #[arg(long)]
    dry_run: bool,
    /// Accept a page of benchmarks that is older than the code
    #[arg(long)]
    old_benchmarks: bool,
    /// Stop after the tag
    #[arg(long)]
    no_dist: bool,
}

/// The code that the page of benchmarks measures. Each release changes the version file, which no benchmark measures.
const MEASURED: [&str; 4] =
    ["crates", "gem/lib", "gem/ext", ":(exclude)gem/lib/thruway/version.rb"];
const BENCHMARKS: &str = "docs/benchmarks.md";
const UNRELEASED: &str = "## Unreleased\n";

/// A file that contains the version, and its edit.
type Edit = (&'static str, fn(&str, &str, &str) -> Result<String, String>);
const EDITS: [Edit; 3] = [
    ("Cargo.toml", |text, old, new| {
        replaced(text, &format!("version = {old:?}"), &format!("version = {new:?}"))
    }),
    ("gem/lib/thruway/version.rb", |text, old, new| {
        replaced(text, &format!("VERSION = {old:?}"), &format!("VERSION = {new:?}"))
    }),
    ("CHANGELOG.md", |text, _, new| changelog(text, new, &today()?)),
];

impl Release {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let manifest = read(root, "Cargo.toml")?;
        let current = current_version(&manifest)?;
        check_next(&current, &self.version)?;
        self.look(root)?;
        let mut texts = Vec::new();
        for (file, edit) in EDITS {
            texts.push((file, edit(&read(root, file)?, &current, &self.version)?));
        }
        if self.dry_run {
            println!(
                "release: {current} would become {}, with the tag v{}",
                self.version, self.version
            );
            return Ok(());
        }
        for (file, text) in texts {
            fs::write(root.join(file), text).map_err(|error| format!("{file}: {error}"))?;
        }
        let mut cargo = Command::new(crate::command::cargo());
        cargo.current_dir(root).args(["update", "--quiet", "--workspace", "--offline"]);
        crate::command::succeed(&mut cargo)?;
        let tag = format!("v{}", self.version);
        git(root, &["commit", "--quiet", "--all", "-m", &format!("Thruway {}", self.version)])?;
        git(root, &["tag", "-a", &tag, "-m", &format!("Thruway {}", self.version)])?;
        println!("release: tagged {tag}; git push --follow-tags publishes it");
        if self.no_dist {
            return Ok(());
        }
        crate::command::succeed(
            Command::new(crate::command::cargo()).current_dir(root).args(["x", "dist"]),
        )
    }

    /// Checks whether the tree can be released.
    fn look(&self, root: &Path) -> Result<(), String> {
        let changed = git(root, &["status", "--porcelain"])?;
        if !changed.is_empty() {
            return Err(format!("the tree is not clean:\n{changed}"));
        }
        let tag = format!("v{}", self.version);
        if !git(root, &["tag", "--list", &tag])?.is_empty() {
            return Err(format!("there is a tag {tag} already"));
        }
        let code = last_change(root, &MEASURED)?;
        if !self.old_benchmarks && last_change(root, &[BENCHMARKS])? < code {
            return Err(format!(
                "{BENCHMARKS} is older than the code\n\nhint: cargo x bench --write measures again; \
                 --old-benchmarks leaves the page as it is"
            ));
        }
        Ok(())
    }
}

fn read(root: &Path, file: &str) -> Result<String, String> {
    fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
}

fn current_version(manifest: &str) -> Result<String, String> {
    let manifest: toml::Table = manifest.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    let version = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    let version = version.and_then(|package| package.get("version")).and_then(toml::Value::as_str);
    version.map(str::to_owned).ok_or_else(|| "Cargo.toml has no version".to_owned())
}

/// Checks that the next version has three numbers and is greater than the current one.
fn check_next(current: &str, next: &str) -> Result<(), String> {
    let numbers = |version: &str| {
        let numbers: Option<Vec<u32>> = version.split('.').map(|part| part.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() == 3)
    };
    match numbers(next) {
        None => Err(format!("{next:?} is not a version such as 0.2.0")),
        Some(wanted) if Some(&wanted) <= numbers(current).as_ref() => {
            Err(format!("{next} is not greater than {current}"))
        }
        Some(_) => Ok(()),
    }
}

/// Replaces a word that must be present.
fn replaced(text: &str, old: &str, new: &str) -> Result<String, String> {
    if text.contains(old) { Ok(text.replace(old, new)) } else { Err(format!("{old} is not there")) }
}

/// Turns the section of unreleased changes into that of the new version.
fn changelog(text: &str, version: &str, date: &str) -> Result<String, String> {
    let (before, after) = text.split_once(UNRELEASED).ok_or("CHANGELOG.md has no Unreleased")?;
    let section = after.split("\n## ").next().unwrap_or_default();
    if section.trim().is_empty() {
        return Err("CHANGELOG.md has nothing that is unreleased".into());
    }
    Ok(format!("{before}{UNRELEASED}\n## {version} - {date}\n{after}"))
}

fn today() -> Result<String, String> {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    let date = date.map_err(|error| format!("cannot start date: {error}"))?;
    Ok(String::from_utf8_lossy(&date.stdout).trim().to_owned())
}

/// The time at which the paths were last committed, in seconds; none if they never were.
fn last_change(root: &Path, paths: &[&str]) -> Result<Option<u64>, String> {
    let arguments = [&["log", "-1", "--format=%ct", "--"], paths].concat();
    Ok(git(root, &arguments)?.trim().parse().ok())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(root).args(arguments).output();
    let output = output.map_err(|error| format!("cannot start git: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "git {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests;
