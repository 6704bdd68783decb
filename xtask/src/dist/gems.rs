//! The gem in two forms: compiled during its installation, or with programs for the platform.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::Builder;
use super::files::{self, copy, write};
use super::ruby::Ruby;
use super::{output, stage};

/// The script that picks the extension for the running Ruby, where there are several.
const CHOICE: &str = include_str!("choice.rb");

/// Builds the gem that compiles during its installation.
pub(super) fn source(builder: &Builder) -> Result<PathBuf, String> {
    let folder = builder.work("gem");
    stage::sources(builder, &folder)?;
    build(builder, &folder, &format!("thruway-{}.gem", builder.version), &[])
}

/// Builds the gem with programs for the platform: the command, and an extension for each of the
/// Rubies.
pub(super) fn platform(builder: &Builder, rubies: &[Ruby]) -> Result<PathBuf, String> {
    let folder = builder.work("platform-gem");
    files::empty(&folder)?;
    stage::library(builder, &folder)?;
    let library = folder.join("gem/lib");
    copy(&builder.static_program()?, &library.join("thruway/bin/thruway"), 0o755)?;
    extensions(builder, &library, rubies)?;
    let versions: Vec<_> = rubies.iter().map(|ruby| ruby.version.as_str()).collect();
    let platform = builder.processor.platform();
    let name = format!("thruway-{}-{platform}.gem", builder.version);
    let versions = versions.join(" ");
    let wanted = [("THRUWAY_PLATFORM", platform), ("THRUWAY_RUBIES", versions.as_str())];
    build(builder, &folder, &name, &wanted)
}

/// Copies the extension for each Ruby to where the gem's library finds it.
pub(super) fn extensions(builder: &Builder, library: &Path, rubies: &[Ruby]) -> Result<(), String> {
    for ruby in rubies {
        let place = library.join("thruway").join(&ruby.version).join("thruway.so");
        copy(&builder.extension(ruby)?, &place, 0o755)?;
    }
    write(&library.join("thruway/thruway.rb"), CHOICE)
}

fn build(
    builder: &Builder,
    folder: &Path,
    name: &str,
    environment: &[(&str, &str)],
) -> Result<PathBuf, String> {
    output::finish(builder, name, |path| {
        let mut gem = Command::new("gem");
        gem.current_dir(folder).args(["build", "--silent", "thruway.gemspec", "-o"]).arg(path);
        gem.envs(environment.iter().copied());
        gem
    })
}
