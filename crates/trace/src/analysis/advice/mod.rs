//! Advice: changes that avoid wasted look-ups, each with its saving and the exact command, setting or words.
//!
//! A change that cannot be made as it is printed is no advice. `cargo x prove trace-advice` follows the advice on
//! many commands, and compares the results.

mod absent_commands;
mod context;
mod folder_lists;
mod language;
mod order;
#[cfg(test)]
mod safety;

use super::disk::Disk;
use super::kind::SearchKind;
use super::report::{Advice, AdviceForm, Report};
use super::tally::{Analysis, TIME_ZONE};
use super::text::{quoted, shell_line};
use crate::Outcome;
use context::{Context, SAVES_MIN, search};

impl Analysis {
    /// Returns the report of the events so far, for a recording with this outcome. Advice consults the disk
    /// where the recording leaves a gap.
    #[must_use]
    pub fn report(&mut self, outcome: &Outcome, disk: &dyn Disk) -> Report {
        let mut report = self.findings(outcome, disk);
        report.absent_commands = absent_commands::all(&self.context(&report, disk));
        report.is_elsewhere = order::is_elsewhere(&self.context(&report, disk));
        report.advice = all(&self.context(&report, disk));
        report
    }

    fn context<'a>(&'a self, report: &'a Report, disk: &'a dyn Disk) -> Context<'a> {
        Context { analysis: self, report, disk, has_moved: self.has_moved() }
    }
}

type AdviceFn = fn(&Context<'_>) -> Option<Advice>;

/// Returns all applicable advice; largest saving first.
fn all(context: &Context<'_>) -> Vec<Advice> {
    const PIECES: [AdviceFn; 15] = [
        load_path,
        order::command_path,
        folder_lists::include_options,
        folder_lists::link_options,
        folder_lists::class_path,
        folder_lists::python_path,
        folder_lists::python_folders,
        folder_lists::library_path,
        folder_lists::run_path,
        node_packages,
        language::locale_name,
        language::missing_locale,
        language::translations,
        language::terminal,
        time_zone,
    ];
    let mut all: Vec<_> = PIECES.iter().filter_map(|piece| piece(context)).collect();
    all.retain(|advice| advice.saves >= SAVES_MIN);
    all.sort_by_key(|advice| std::cmp::Reverse(advice.saves));
    all
}

/// The calls that `thruway run` and its pack make for themselves, rounded up: 201 were counted for a Ruby without gems.
const BOOT_CALLS: u64 = 250;

/// Advises to boot Ruby with an index of its load path, which also knows the real paths of folders.
fn load_path(context: &Context<'_>) -> Option<Advice> {
    let search = search(context.report, SearchKind::Ruby)?;
    let names = &context.analysis.names;
    let is_extension =
        |name| names.component(name) == b"thruway.so" && names.counts(name).found() > 0;
    if names.all().any(is_extension) {
        return None;
    }
    let totals = &context.report.totals;
    let walks = totals.unlinked.saturating_sub(totals.link_names);
    Some(Advice::new(
        AdviceForm::Command,
        "an index of the load path",
        (search.missed + walks).saturating_sub(BOOT_CALLS),
        format!("thruway run -- {}", shell_line(&totals.command)),
    ))
}

/// Advises to bundle a script with its packages, if a bundler is installed. Node looks up a package in every
/// `node_modules` between the file and the folder that has it, with each suffix.
fn node_packages(context: &Context<'_>) -> Option<Advice> {
    let search = search(context.report, SearchKind::Node)?;
    let bundling = bundling(context)?;
    Some(Advice {
        note: Some("what is required by computed names stays outside: try it".to_owned()),
        ..Advice::new(
            AdviceForm::Command,
            "one file in the place of many in node_modules",
            search.missed,
            bundling,
        )
    })
}

/// Returns the command that bundles a script and its packages, and starts the bundle in the script's place.
fn bundling(context: &Context<'_>) -> Option<String> {
    let words = &context.report.totals.command;
    let is_script =
        |word: &String| [".js", ".mjs", ".cjs", ".ts"].iter().any(|suffix| word.ends_with(suffix));
    let place = words.iter().position(is_script)?;
    let folder = &context.analysis.header.folder;
    let path = context.analysis.header.variable("PATH").unwrap_or_default();
    let own = format!("{folder}/node_modules/.bin/esbuild");
    let in_path = || {
        let has = |folder: &str| context.disk.has(format!("{folder}/esbuild").as_bytes());
        path.split(':').any(has).then_some("esbuild")
    };
    let bundler = match context.disk.has(own.as_bytes()) {
        true => "node_modules/.bin/esbuild",
        false => in_path()?,
    };
    let mut bundled = words.clone();
    "bundle.js".clone_into(&mut bundled[place]);
    Some(format!(
        "{bundler} {} --bundle --platform=node --outfile=bundle.js && {}",
        quoted(&words[place]),
        shell_line(&bundled)
    ))
}

/// Advises to set `TZ`. Without it, a process looks up the time zone's file for each time that it converts; with it,
/// once.
fn time_zone(context: &Context<'_>) -> Option<Advice> {
    let names = &context.analysis.names;
    let asked = u64::from(names.counts(names.find(TIME_ZONE)?).asked);
    let saves = asked.saturating_sub(context.analysis.time_zone_readers.len() as u64);
    context.analysis.header.variable("TZ").is_none().then(|| {
        let how = "export TZ=:/etc/localtime".to_owned();
        Advice::new(AdviceForm::Setting, "a time zone that is looked up once", saves, how)
    })
}
