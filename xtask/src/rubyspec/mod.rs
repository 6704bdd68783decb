//! `cargo x rubyspec`: the public specs of `require` and related methods, with every fixture in the pack. The specs of
//! processes also run as forks of a template.

mod preloaded;
mod suite;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use suite::Suite;

/// Run ruby/spec's require, load and autoload with every fixture in the pack
///
/// The specs of processes, signals, variables and streams run as well: plain, with a pack, and as forks of a template.
/// Their results must agree.
#[derive(Debug, Args)]
pub(crate) struct RubySpec {
    /// Checkout of ruby/spec that matches the Ruby
    #[arg(long, value_name = "DIR")]
    spec: PathBuf,
    /// Checkout of ruby/mspec of about the same date
    #[arg(long, value_name = "DIR")]
    mspec: PathBuf,
    /// Ruby to test with; the extension is built for it
    #[arg(long, value_name = "PATH", default_value = "ruby")]
    ruby: PathBuf,
}

impl RubySpec {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        crate::gem::build(root, self.ruby.as_os_str(), "dev")?;
        let suite = self.suite(root)?;
        suite.judge("plain", &suite.specs(None)?)?;
        let fixtures = suite.learn()?;
        println!("{:13} {} fixtures in the pack", "", fixtures.len());
        for options in [&[][..], &["--digest"], &["--trust-image"]] {
            let output = suite.specs(Some(options))?;
            suite.judge(if options.is_empty() { "validated" } else { options[0] }, &output)?;
            suite.all_came_from_the_pack(&fixtures, &output)?;
        }
        preloaded::compare(&suite)
    }

    fn suite(&self, root: &Path) -> Result<Suite, String> {
        let found = |path: &Path| {
            std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let folder = root.join("target/rubyspec");
        // A pack of an earlier run would prove nothing about the current one.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Suite {
            program: root.join("target/debug/thruway"),
            learn: root.join("xtask/src/rubyspec/learn.rb"),
            library: found(&self.mspec)?.join("lib"),
            runner: found(&self.mspec)?.join("bin/mspec-run"),
            spec: found(&self.spec)?,
            ruby: self.ruby.clone(),
            folder,
        })
    }
}
