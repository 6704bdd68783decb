//! `cargo x dist`: builds what users install, into `target/dist`.
//!
//! Start with [`Dist::run`]; a module a kind of thing. [`build`] compiles, once for each kind of program.

mod archive;
mod bill;
mod build;
mod crates;
mod debian;
mod files;
mod gems;
mod manual;
mod ruby;
mod stage;
mod trial;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use build::Builder;
use ruby::Ruby;

/// Build what users install, into target/dist
#[derive(Debug, Args)]
pub(crate) struct Dist {
    /// What to build [default: all]
    #[arg(value_enum)]
    only: Vec<Kind>,
    /// A Ruby to build the extension for: may be repeated [default: the one on PATH]
    #[arg(long, value_name = "PROGRAM")]
    ruby: Vec<PathBuf>,
    /// The root folder of another Debian whose Ruby to build the extension for: may be repeated
    #[arg(long, value_name = "DIR")]
    ruby_root: Vec<PathBuf>,
    /// Then try each way to install in a fresh root of Debian 12 and of 13; needs root and debootstrap
    #[arg(long)]
    test: bool,
}

/// One kind of thing that users install.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The gem that compiles when it is installed
    Gem,
    /// The gem with programs for this platform
    PlatformGem,
    /// Packages for Debian: thruway, ruby-thruway, thruway-doc
    Deb,
    /// An archive for Linux on x86-64, with a command that needs no library
    Tar,
    /// An archive for Windows
    Windows,
}

impl Dist {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let builder = Builder::new(root)?;
        let made = self.build(&builder)?;
        for file in made {
            println!("{}", files::describe(root, &file));
        }
        if self.test { trial::run(&builder) } else { Ok(()) }
    }

    fn build(&self, builder: &Builder) -> Result<Vec<PathBuf>, String> {
        let mut made = Vec::new();
        if self.wants(Kind::Gem) {
            made.push(gems::source(builder)?);
        }
        if self.wants(Kind::PlatformGem) {
            made.push(gems::platform(builder, &self.rubies(builder)?)?);
        }
        if self.wants(Kind::Deb) {
            made.extend(debian::packages(builder, &self.rubies(builder)?)?);
        }
        if self.wants(Kind::Tar) {
            made.push(archive::linux(builder, &self.rubies(builder)?)?);
        }
        if self.wants(Kind::Windows) {
            made.extend(archive::windows(builder)?);
        }
        made.push(archive::checksums(builder)?);
        Ok(made)
    }

    fn wants(&self, kind: Kind) -> bool {
        self.only.is_empty() || self.only.contains(&kind)
    }

    /// Those that are named, one a version.
    fn rubies(&self, builder: &Builder) -> Result<Vec<Ruby>, String> {
        let mut rubies = Vec::new();
        for program in &self.ruby {
            rubies.push(Ruby::of_program(program)?);
        }
        for root in &self.ruby_root {
            rubies.push(Ruby::of_root(root, &builder.work("rubies"))?);
        }
        if self.ruby.is_empty() {
            rubies.push(Ruby::of_program(Path::new("ruby"))?);
        }
        rubies.sort_by(|a, b| a.version.cmp(&b.version));
        rubies.dedup_by(|a, b| a.version == b.version);
        Ok(rubies)
    }
}
