//! `cargo x prove`: the boot's random tests at length. CI runs a few cases of each.

use std::path::Path;
use std::process::Command;

use clap::{Args, ValueEnum};

/// Run the boot's random tests at length
#[derive(Debug, Args)]
pub(crate) struct Prove {
    /// What is to be proved
    #[arg(value_enum)]
    what: Proof,
    /// How many cases: programs, boots, damaged packs or documents
    #[arg(long, default_value_t = 500)]
    cases: u64,
    /// Which cases
    #[arg(long, default_value_t = 1000)]
    seed: u64,
    /// The Ruby; the extension is built for it
    #[arg(long, value_name = "PATH", default_value = "ruby")]
    ruby: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Proof {
    /// Random programs that are edited between runs say the same with the pack and without
    Trees,
    /// Boots that run while others rewrite the pack are all right
    Storm,
    /// A pack with a flipped byte changes nothing
    Damage,
    /// Random YAML and JSON files give the same objects
    Documents,
}

impl Prove {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        build(root, self.ruby.as_ref())?;
        let name = self.what.to_possible_value().map(|value| value.get_name().to_owned());
        let test = format!("gem/test/boot/{}_test.rb", name.unwrap_or_default());
        let mut ruby = Command::new(&self.ruby);
        ruby.current_dir(root).args(["-Igem/test", &test]).env("RUBY", &self.ruby);
        ruby.env("THRUWAY_CASES", self.cases.to_string());
        ruby.env("THRUWAY_SEED", self.seed.to_string());
        crate::command::succeed(&mut ruby)
    }
}

/// The binary, and the extension for that Ruby.
pub(crate) fn build(root: &Path, ruby: &Path) -> Result<(), String> {
    let mut gem = Command::new(crate::command::cargo());
    crate::command::succeed(gem.current_dir(root).args(["x", "gem"]).env("RUBY", ruby))?;
    let mut program = Command::new(crate::command::cargo());
    crate::command::succeed(program.current_dir(root).args([
        "build",
        "--quiet",
        "--package",
        "thruway-cli",
    ]))
}
