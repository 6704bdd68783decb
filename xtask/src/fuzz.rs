//! `cargo x fuzz`: random names, compared with the answers of the systems themselves; random requests and frames;
//! forged packs.

use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::wine::{Wine, missing};

/// Compare the expansion of random names with the standard library, Ruby and Windows. Hold random
/// heads, frames, handshakes and responses to their rules, and read forged packs
#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// Number of cases for each test
    #[arg(long, default_value_t = 1_000_000)]
    cases: u64,
    /// Seed of the cases
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// The gem's comparison with `File.expand_path`.
const RUBY: [&str; 5] =
    ["-Itarget/release/gem", "-Igem/lib", "gem/test/expand_path_test.rb", "--name", "/random/"];

impl Fuzz {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let heads = ["test", "--release", "--package", "thruway-http1", "--test", "head"];
        self.succeed(Command::new(crate::command::cargo()).current_dir(root).args(heads))?;
        let oracle = ["--release", "--package", "thruway-resolve", "--test", "oracle"];
        let proxy = ["test", "--release", "--package", "thruway-http1", "--test", "proxy"];
        self.succeed(Command::new(crate::command::cargo()).current_dir(root).args(proxy))?;
        for package in ["thruway-websocket", "thruway-http2"] {
            let frames = ["test", "--release", "--package", package, "--test", "frames"];
            self.succeed(Command::new(crate::command::cargo()).current_dir(root).args(frames))?;
        }
        let handshakes = ["test", "--release", "--package", "thruway-tls", "--test", "handshakes"];
        self.succeed(Command::new(crate::command::cargo()).current_dir(root).args(handshakes))?;
        let load = ["test", "--release", "--package", "thruway-load", "--lib", "random_bytes"];
        self.succeed(Command::new(crate::command::cargo()).current_dir(root).args(load))?;
        let mut posix = Command::new(crate::command::cargo());
        posix.current_dir(root).arg("test").args(oracle);
        self.succeed(posix.args(["--", "names_on_posix"]))?;
        let reader = ["test", "--release", "--package", "thruway-pack", "--test", "reader"];
        let mut packs = Command::new(crate::command::cargo());
        self.succeed(packs.current_dir(root).args(reader))?;
        let mut gem = Command::new(crate::command::cargo());
        self.succeed(gem.current_dir(root).args(["x", "gem", "--release"]))?;
        self.succeed(Command::new("ruby").current_dir(root).args(RUBY))?;
        if let Some(missing) = missing() {
            println!("fuzz: not compared with Windows, because this machine lacks {missing}");
            return Ok(());
        }
        let wine = Wine::start(root)?;
        let mut windows =
            wine.cargo(["test"].into_iter().chain(oracle).chain(["--", "--nocapture"]))?;
        self.succeed(&mut windows)
    }

    fn succeed(&self, command: &mut Command) -> Result<(), String> {
        command.env("THRUWAY_CASES", self.cases.to_string());
        command.env("THRUWAY_SEED", self.seed.to_string());
        crate::command::succeed(command)
    }
}
