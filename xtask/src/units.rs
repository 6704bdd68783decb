//! `cargo x units`: the number of crates that each step of the check compiles, compared with a budget.
//!
//! cargo prints its plan without compiling (`--unit-graph`). A unit counts for the first step that needs it, as later
//! steps find it compiled. Examples in documentation count. Runs of build scripts do not count, nor do the crates of
//! the standard library, whose number depends on the toolchain.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use clap::Args;
use serde_json::Value;

use crate::debian;

/// Count the units that each step of the check compiles, and compare them with the budget
#[derive(Debug, Args)]
pub(crate) struct Units {
    /// Write a new budget
    #[arg(long)]
    write: bool,
}

/// The file of the budget.
const BUDGET: &str = "tests/budgets/units.tsv";

/// A step that compiles: its title in the check, and cargo's arguments that decide about units.
struct Compilation {
    title: &'static str,
    arguments: Vec<&'static str>,
    /// Whether Debian's cargo compiles, into a folder of its own.
    is_debians: bool,
    /// Whether clippy's driver compiles the crates of the workspace, apart from those of a plain build.
    lints: bool,
}

impl Units {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        if std::env::consts::ARCH != "x86_64" {
            println!("units: skipped, because {BUDGET} is for x86-64");
            return Ok(());
        }
        let mut compiled = HashSet::new();
        let mut counts = Vec::new();
        for compilation in compilations() {
            let missing = debian::missing(&debian::LIBRARY_SOURCES);
            if let Some(missing) = missing.filter(|_| compilation.is_debians) {
                println!(
                    "units: {}: skipped, because this machine lacks {missing}",
                    compilation.title
                );
                continue;
            }
            let before = compiled.len();
            compiled.extend(compilation.units(root)?);
            counts.push((compilation.title, compiled.len() - before));
        }
        let file = root.join(BUDGET);
        if self.write {
            let rows = counts.iter().map(|(title, count)| format!("{title}\t{count}\n"));
            return std::fs::write(&file, rows.collect::<String>())
                .map_err(|error| format!("cannot write {BUDGET}: {error}"));
        }
        let budget = std::fs::read_to_string(&file)
            .map_err(|error| format!("cannot read {BUDGET}: {error}"))?;
        compare(&counts, &budget)
    }
}

/// Shows each count. Any difference from the budget is an error: a lower count means that the budget can be lowered.
fn compare(counts: &[(&str, usize)], budget: &str) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (title, count) in counts {
        let row = budget.lines().filter_map(|line| line.split_once('\t'));
        let expected = row.clone().find(|(name, _)| name == title).map(|(_, number)| number);
        println!("{title}: {count} units (budget {})", expected.unwrap_or("none"));
        if expected != Some(&count.to_string()) {
            let expected = expected.unwrap_or("no number");
            wrong.push(format!("{title}: {count} units, and {expected} in {BUDGET}"));
        }
    }
    println!("together: {} units", counts.iter().map(|(_, count)| count).sum::<usize>());
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\n\nhint: cargo x units --write, with the reason in the commit",
        wrong.join("\n")
    ))
}

fn compilations() -> Vec<Compilation> {
    let own = |title, arguments: &[&'static str], lints| Compilation {
        title,
        arguments: arguments.to_vec(),
        is_debians: false,
        lints,
    };
    let other = |title, arguments| Compilation { title, arguments, is_debians: true, lints: true };
    vec![
        own("cargo x", &["build", "--package", "xtask"], false),
        own("build and lints", &crate::gem::WITH_TESTS, true),
        own("tests", &["test", "--workspace"], true),
        own("instructions", &crate::instructions::BUILD, false),
        other("windows", crate::windows::plan()),
        other("aarch64", crate::aarch64::plan()),
        other("portable", crate::portable::plan()),
    ]
}

impl Compilation {
    /// Returns a name for each unit that cargo would compile in an empty folder.
    fn units(&self, root: &Path) -> Result<Vec<String>, String> {
        let mut cargo = if self.is_debians {
            debian::cargo(root)
        } else {
            let mut cargo = Command::new(crate::command::cargo());
            cargo.current_dir(root).env("RUSTC_BOOTSTRAP", "1");
            cargo
        };
        cargo.args(&self.arguments).args(["-Zunstable-options", "--unit-graph"]);
        let output = cargo.output().map_err(|error| format!("cannot start cargo: {error}"))?;
        let plan: Value = serde_json::from_slice(&output.stdout).map_err(|_| {
            format!("{cargo:?} failed:\n{}", String::from_utf8_lossy(&output.stderr))
        })?;
        let units = plan["units"].as_array().into_iter().flatten();
        let is_counted =
            |unit: &&Value| unit["mode"] != "run-custom-build" && unit["is_std"] != true;
        let units = units.filter(is_counted);
        Ok(units.map(|unit| self.name(unit)).collect())
    }

    /// Names everything that makes cargo compile a crate again. The profiles of builds and of tests share a folder.
    fn name(&self, unit: &Value) -> String {
        let parts = ["pkg_id", "target", "profile", "platform", "mode", "features"];
        let is_own = unit["pkg_id"].as_str().is_some_and(|id| id.starts_with("path+file:"));
        let parts = parts.map(|part| unit[part].to_string()).join(" ");
        format!(
            "{} {} {}",
            self.is_debians,
            self.lints && is_own,
            parts.replace(r#""name":"test""#, r#""name":"dev""#)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_other_than_the_budget_is_told() {
        let budget = "lints\t170\ngem\t110\n";
        assert_eq!(compare(&[("lints", 170), ("gem", 110)], budget), Ok(()));
        let message = compare(&[("lints", 171), ("gem", 109), ("new", 1)], budget).unwrap_err();
        let told: Vec<_> = message.lines().take(3).collect();
        assert_eq!(
            told,
            [
                "lints: 171 units, and 170 in tests/budgets/units.tsv",
                "gem: 109 units, and 110 in tests/budgets/units.tsv",
                "new: 1 units, and no number in tests/budgets/units.tsv",
            ]
        );
    }
}
