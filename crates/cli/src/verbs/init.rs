//! `thruway init`: adds the two lines that an application needs, and removes them again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use thruway_sys::printable;

use crate::gem::Gem;
use crate::output::{Answer, Failure, print_report};
use crate::replacement::Replacement;

/// Set an application up to boot from a pack, or undo that
///
/// Adds a line to the Gemfile and one to config/boot.rb. Where bootsnap is set up there, its line becomes a
/// comment, because both supply compiled code. --undo restores each file.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The application's folder
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Remove the lines again
    #[arg(long)]
    undo: bool,
}

/// The Gemfile's line for an installed gem.
const GEM: &str = "gem \"thruway\", require: false";
/// The beginning of the line for a checkout; the end is the same as in [`GEM`].
const GEM_OF_FOLDER: &str = "gem \"thruway\", path: ";
const NO_REQUIRE: &str = ", require: false";
const BOOT: &str = "require \"thruway/boot\"";
/// The prefix of a line that is commented out while Thruway boots the application.
const REST: &str = "# thruway init: ";

/// A file to edit, and the functions that make and undo the edit.
struct Edit {
    file: &'static str,
    done: fn(&str) -> Result<String, Failure>,
    undone: fn(&str) -> String,
}

const EDITS: [Edit; 2] = [
    Edit { file: "Gemfile", done: with_gem_found, undone: without_gem },
    Edit { file: "config/boot.rb", done: |text| Ok(with_boot(text)), undone: without_boot },
];

impl Init {
    pub(crate) fn run(self) -> Answer {
        // All files are read before the first one is written.
        let texts = EDITS.iter().map(|edit| read(&self.folder.join(edit.file)));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let (mut told, mut replacements) = (String::new(), Vec::new());
        for (edit, text) in EDITS.iter().zip(texts) {
            let edited = if self.undo { (edit.undone)(&text) } else { (edit.done)(&text)? };
            let path = self.folder.join(edit.file);
            let change =
                if edited == text { "nothing to do".to_owned() } else { changes(&text, &edited) };
            if edited != text {
                replacements.push(replacement(&path, &edited)?);
            }
            told.push_str(&format!("{}: {change}\n", edit.file));
        }
        // A full disk is reported above, before any file has changed.
        for replacement in replacements {
            replacement.take_place().map_err(Failure::new)?;
        }
        if !self.undo {
            told.push_str("\nnext: bundle install --local; then start the application as always\n");
        }
        print_report(&told)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| {
        let failure = Failure::new(format_args!("cannot read {}: {error}", printable::path(&path)));
        failure.hint(
            "an application has a Gemfile and config/boot.rb, as Rails makes them; others put \
             require \"thruway/boot\" before their first require",
        )
    })
}

fn replacement(path: &Path, text: &str) -> Result<Replacement, Failure> {
    Replacement::write(path, text).map_err(|error| {
        Failure::new(format_args!("cannot write {}: {error}", printable::path(&path)))
    })
}

/// Returns the lines that differ.
fn changes(before: &str, after: &str) -> String {
    let has = |text: &str, line: &str| text.lines().any(|own| own == line);
    let added = after.lines().filter(|line| !has(before, line)).map(|line| format!("+ {line}"));
    let removed = before.lines().filter(|line| !has(after, line)).map(|line| format!("- {line}"));
    removed.chain(added).collect::<Vec<_>>().join("  ")
}

/// Adds a line for the checkout to which this program belongs, or for the installed gem. The bare name would not do for
/// a gem that is not installed: the gem is not released, and Bundler would install whatever gem others release under
/// this name.
fn with_gem_found(text: &str) -> Result<String, Failure> {
    if names_gem(text) {
        return Ok(text.to_owned());
    }
    if let Some(checkout) = Gem::checkout() {
        return Ok(with_gem(&line_of_folder(&checkout), text));
    }
    if is_installed() {
        return Ok(with_gem(GEM, text));
    }
    let version = env!("CARGO_PKG_VERSION");
    let failure = Failure::new(format_args!("the gem thruway {version} is not installed"));
    Err(failure.hint(
        "the gem is not released: install the .gem file of this version, or use the thruway of a checkout",
    ))
}

fn line_of_folder(folder: &Path) -> String {
    let path = folder.display().to_string().replace('\\', "\\\\");
    let path = path.replace('"', "\\\"").replace('#', "\\#");
    format!("{GEM_OF_FOLDER}\"{path}\"{NO_REQUIRE}")
}

/// Whether Ruby finds the gem of this version. Only Ruby knows where RubyGems keeps gems.
fn is_installed() -> bool {
    let mut ruby = Command::new("ruby");
    let script = "exit Gem::Specification.find_all_by_name(\"thruway\", ARGV[0]).any?";
    ruby.args(["-e", script, env!("CARGO_PKG_VERSION")]);
    ruby.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    ruby.status().is_ok_and(|status| status.success())
}

fn names_gem(text: &str) -> bool {
    let names_it = |line: &str| {
        let line = line.trim_start();
        line.starts_with("gem \"thruway\"") || line.starts_with("gem 'thruway'")
    };
    text.lines().any(names_it)
}

fn with_gem(line: &str, text: &str) -> String {
    before_first(line, text, |line| line.starts_with("gem "))
}

fn without_gem(text: &str) -> String {
    let is_own = |line: &str| {
        let line = line.trim_end_matches('\n');
        line == GEM || line.starts_with(GEM_OF_FOLDER) && line.ends_with(NO_REQUIRE)
    };
    text.split_inclusive('\n').filter(|line| !is_own(line)).collect()
}

fn with_boot(text: &str) -> String {
    let is_boot = |line: &str| line.contains("thruway/boot") && !line.trim_start().starts_with('#');
    if text.lines().any(is_boot) {
        return text.to_owned();
    }
    let rested = text.split_inclusive('\n').map(|line| match line.starts_with("require") {
        true if line.contains("bootsnap/setup") => format!("{REST}{line}"),
        _ => line.to_owned(),
    });
    before_first(BOOT, &rested.collect::<String>(), |line| line.contains("require"))
}

fn without_boot(text: &str) -> String {
    let woken = text.split_inclusive('\n').map(|line| line.strip_prefix(REST).unwrap_or(line));
    without(BOOT, &woken.collect::<String>())
}

/// Inserts a line before the first line that `is_first` accepts, or else after the opening lines: comments, empty
/// lines, and the sources of gems.
fn before_first(line: &str, text: &str, is_first: impl Fn(&str) -> bool) -> String {
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let is_code = |line: &&str| !line.starts_with('#') && is_first(line);
    let is_opening =
        |line: &&str| line.starts_with('#') || line.trim().is_empty() || line.starts_with("source");
    let opening = || lines.iter().take_while(|line| is_opening(line)).count();
    let place = lines.iter().position(is_code).unwrap_or_else(opening);
    let (before, after) = lines.split_at(place);
    let mut edited = before.concat();
    if !edited.is_empty() && !edited.ends_with('\n') {
        edited.push('\n');
    }
    format!("{edited}{line}\n{}", after.concat())
}

fn without(line: &str, text: &str) -> String {
    text.split_inclusive('\n').filter(|own| own.trim_end_matches('\n') != line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_as_they_were_once_it_is_undone() {
        let gemfiles = [
            "source \"https://rubygems.org\"\n\n# Rails\ngem \"rails\"\ngem \"puma\"",
            "source 'https://rubygems.org'\n",
            "",
        ];
        for text in gemfiles {
            for line in [GEM.to_owned(), line_of_folder(Path::new("/a \"b\" #{c}"))] {
                let edited = with_gem(&line, text);
                assert!(edited.lines().any(|own| own == line) && names_gem(&edited), "{text:?}");
                assert_eq!(without_gem(&edited), text);
            }
        }
        let boot = "ENV[\"BUNDLE_GEMFILE\"] ||= \"Gemfile\"\n\nrequire \"bundler/setup\"\n\
                    require \"bootsnap/setup\" # Speed up boot.\n";
        assert_eq!(without_boot(&with_boot(boot)), boot);
    }

    #[test]
    fn the_boot_comes_first_and_bootsnap_rests() {
        let boot = "# Says require.\nrequire \"bundler/setup\"\nrequire \"bootsnap/setup\"\n";
        let edited = "# Says require.\nrequire \"thruway/boot\"\nrequire \"bundler/setup\"\n\
                      # thruway init: require \"bootsnap/setup\"\n";
        assert_eq!(with_boot(boot), edited);
        assert_eq!(with_boot(edited), edited);
    }
}
