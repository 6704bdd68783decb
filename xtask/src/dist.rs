//! `cargo x dist`: builds the packages for users, into `target/dist`.
//!
//! Start with [`Dist::run`]; each kind of package has a module. [`build`] compiles, once for each kind of program.

mod archive;
mod bill;
mod build;
mod crates;
mod debian;
mod files;
mod gems;
mod manual;
mod output;
mod platform;
mod ruby;
mod stage;
mod trial;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use build::Builder;
use platform::Processor;
use ruby::Ruby;

/// Build the packages for users, into target/dist
#[derive(Debug, Args)]
pub(crate) struct Dist {
    /// Kinds of packages to build [default: all]
    #[arg(value_enum)]
    only: Vec<Kind>,
    /// Ruby to build the extension for; may be repeated [default: the one on PATH]
    #[arg(long, value_name = "PROGRAM")]
    ruby: Vec<PathBuf>,
    /// Root folder of another Debian whose Ruby to build the extension for; may be repeated
    #[arg(long, value_name = "DIR")]
    ruby_root: Vec<PathBuf>,
    /// Processor to build for
    #[arg(long, value_enum, default_value_t = Processor::X86_64)]
    processor: Processor,
    /// Then try each way to install in fresh roots of Debian 12 and 13; needs root and debootstrap
    #[arg(long)]
    test: bool,
}

/// A kind of package for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The gem that compiles during its installation
    Gem,
    /// The gem with programs for this platform
    PlatformGem,
    /// Packages for Debian: thruway, ruby-thruway, thruway-doc
    Deb,
    /// An archive for Linux on x86-64, with a command that needs no libraries
    Tar,
    /// An archive for Windows
    Windows,
}

impl Dist {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        if let Some(missing) = self.processor.missing() {
            return Err(format!("this machine lacks {missing}\n\nhint: apt-get install {missing}"));
        }
        let builder = Builder::new(root, self.processor)?;
        let _alone = output::lock(&builder)?;
        if output::is_changed(&builder)? {
            println!("dist: built of changes, too, that are not committed");
        }
        let made = self.build(&builder)?;
        for file in made {
            println!("{}", files::describe(root, &file));
        }
        if self.test { trial::run(&builder, &self.ruby_roots(&builder)?) } else { Ok(()) }
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

    /// The named roots. For another processor a root is created, since no Ruby of this machine fits.
    fn ruby_roots(&self, builder: &Builder) -> Result<Vec<PathBuf>, String> {
        if self.processor.is_foreign() && self.ruby_root.is_empty() {
            return Ok(vec![trial::foreign_root(builder)?]);
        }
        Ok(self.ruby_root.clone())
    }

    /// The named Rubies, one per version.
    fn rubies(&self, builder: &Builder) -> Result<Vec<Ruby>, String> {
        let mut rubies = Vec::new();
        for program in &self.ruby {
            rubies.push(Ruby::of_program(program)?);
        }
        for root in &self.ruby_roots(builder)? {
            let stand_ins = if self.processor.is_foreign() { "foreign-rubies" } else { "rubies" };
            rubies.push(Ruby::of_root(root, &builder.work(stand_ins))?);
        }
        if self.ruby.is_empty() && !self.processor.is_foreign() {
            rubies.push(Ruby::of_program(Path::new("ruby"))?);
        }
        rubies.sort_by(|a, b| a.version.cmp(&b.version));
        rubies.dedup_by(|a, b| a.version == b.version);
        Ok(rubies)
    }
}
