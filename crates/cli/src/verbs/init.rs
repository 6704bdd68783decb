//! `thruway init`: the two lines that an application needs, and the way back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use thruway_sys::printable;

use crate::output::{Answer, Failure, print_report};
use crate::replacement::Replacement;

/// Let an application boot from a pack, or undo that
///
/// Adds a line to the Gemfile and one to config/boot.rb. Where bootsnap is set up there, its line becomes a
/// comment: both supply compiled code. With --undo, each file is as it was.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The application's folder
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Take the lines out again
    #[arg(long)]
    undo: bool,
}

const GEM: &str = "gem \"thruway\", require: false";
const BOOT: &str = "require \"thruway/boot\"";
/// Stands before a line that rests while the boot is ours.
const REST: &str = "# thruway init: ";

/// A file that is edited, and how.
struct Edit {
    file: &'static str,
    done: fn(&str) -> String,
    undone: fn(&str) -> String,
}

const EDITS: [Edit; 2] = [
    Edit { file: "Gemfile", done: with_gem, undone: |text| without(GEM, text) },
    Edit { file: "config/boot.rb", done: with_boot, undone: without_boot },
];

impl Init {
    pub(crate) fn run(self) -> Answer {
        // All are read before one is written.
        let texts = EDITS.iter().map(|edit| read(&self.folder.join(edit.file)));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let (mut told, mut replacements) = (String::new(), Vec::new());
        for (edit, text) in EDITS.iter().zip(texts) {
            let edited = if self.undo { (edit.undone)(&text) } else { (edit.done)(&text) };
            let path = self.folder.join(edit.file);
            let change =
                if edited == text { "nothing to do".to_owned() } else { changes(&text, &edited) };
            if edited != text {
                replacements.push(replacement(&path, &edited)?);
            }
            told.push_str(&format!("{}: {change}\n", edit.file));
        }
        // A full disk is met above, while both files are as they were.
        for replacement in replacements {
            replacement.take_place().map_err(Failure::new)?;
        }
        if !self.undo {
            told.push_str("\nnext: bundle install; then start the application as always\n");
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

/// The lines that differ.
fn changes(before: &str, after: &str) -> String {
    let has = |text: &str, line: &str| text.lines().any(|own| own == line);
    let added = after.lines().filter(|line| !has(before, line)).map(|line| format!("+ {line}"));
    let removed = before.lines().filter(|line| !has(after, line)).map(|line| format!("- {line}"));
    removed.chain(added).collect::<Vec<_>>().join("  ")
}

fn with_gem(text: &str) -> String {
    let names_it = |line: &str| {
        let line = line.trim_start();
        line.starts_with("gem \"thruway\"") || line.starts_with("gem 'thruway'")
    };
    if text.lines().any(names_it) {
        return text.to_owned();
    }
    before_first(GEM, text, |line| line.starts_with("gem "))
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

/// The text with a line more, before the first that `is_first` finds; otherwise after what stands first: comments,
/// empty lines, and where gems come from.
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
            assert!(with_gem(text).lines().any(|line| line == GEM), "{text:?}");
            assert_eq!(without(GEM, &with_gem(text)), text);
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
