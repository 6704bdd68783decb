//! Ruby, and the gem for it.

use std::path::Path;
use std::process::{Command, Stdio};

use super::checks::Check;
use crate::gem::Gem;
use crate::verbs::run::{NO_PACK, keeps_no_pack};

const RUBY: &str = "ruby";
const GEM: &str = "gem";
const BOOT: &str = "boot";
const PACK: &str = "pack";

const OLDEST: (u32, u32) = (3, 1);
const INSTALL_RUBY: &str =
    "install Ruby 3.1 or later (Debian: apt install ruby), and put it on PATH";
// Not by its name: it is not released, and another gem may have that.
const INSTALL_GEM: &str =
    "make build in a checkout, or gem install of the .gem file of this version";

/// Checks Ruby, the gem and the boot. A check is left out if one that it depends on has failed.
pub(super) fn checks() -> Vec<Check> {
    let Some((version, description)) = version() else {
        return vec![Check::limited(
            RUBY,
            "not on PATH; thruway run needs it, and so does thruway serve for applications",
            INSTALL_RUBY,
        )];
    };
    if number(&version) < OLDEST {
        return vec![Check::broken(RUBY, format!("{description}: too old"), INSTALL_RUBY)];
    }
    let ruby = Check::works(RUBY, description);
    let Some(gem) = Gem::find() else {
        return vec![
            ruby,
            Check::limited(GEM, "not found; Ruby boots without a pack", INSTALL_GEM),
        ];
    };
    let library = gem.library().display().to_string();
    let Some(extension) = gem.extension(&version) else {
        let told = format!("{library} has no extension for Ruby {version}");
        return vec![ruby, Check::broken(GEM, told, INSTALL_GEM)];
    };
    let mut checks = vec![ruby, Check::works(GEM, library), boot(&extension)];
    if keeps_no_pack() {
        checks.push(Check::limited(
            PACK,
            NO_PACK,
            "set HOME to a folder that you can write to, or give --pack FILE",
        ));
    }
    checks
}

/// `3.1`, and what Ruby says of itself.
fn version() -> Option<(String, String)> {
    let script = "puts RUBY_VERSION[/\\A\\d+\\.\\d+/], RUBY_DESCRIPTION";
    let mut ruby = Command::new("ruby");
    let output = ruby.args(["--disable=gems", "-e", script]).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (version, description) = text.trim_end().split_once('\n')?;
    // On Windows, Ruby ends its lines by CR and LF.
    Some((version.trim_end().to_owned(), description.to_owned()))
}

fn number(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Loads the extension.
fn boot(extension: &Path) -> Check {
    let mut ruby = Command::new("ruby");
    ruby.args(["--disable=gems", "-e", "require ARGV[0]; Thruway::Boot"]).arg(extension);
    match ruby.output() {
        Ok(output) if output.status.success() => Check::works(BOOT, "the extension loads"),
        Ok(output) => {
            let reason = first_line(&output.stderr);
            Check::broken(BOOT, format!("the extension does not load: {reason}"), INSTALL_GEM)
        }
        Err(error) => Check::broken(BOOT, format!("cannot start ruby: {error}"), INSTALL_RUBY),
    }
}

/// The first line of what a program wrote to its error output.
pub(super) fn first_line(said: &[u8]) -> String {
    String::from_utf8_lossy(said).lines().next().unwrap_or("no error message").to_owned()
}
