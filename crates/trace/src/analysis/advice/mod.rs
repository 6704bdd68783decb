//! Advice: changes that avoid wasted look-ups, each with its saving and the exact command or setting.

mod context;
mod folder_lists;
mod language;
mod order;
#[cfg(test)]
mod safety;

use super::disk::Disk;
use super::kind::SearchKind;
use super::maps::HashMap;
use super::report::{Advice, Report};
use super::tally::Analysis;
use super::text::{quoted, shell_line, text};
use crate::Outcome;
use context::{Context, SAVES_MIN, search};

impl Analysis {
    /// Returns the report of the events so far, for a recording with this outcome. Advice consults the disk
    /// where the recording leaves a gap.
    #[must_use]
    pub fn report(&mut self, outcome: &Outcome, disk: &dyn Disk) -> Report {
        let mut report = self.findings(outcome, disk);
        report.advice = all(self, &report, disk);
        report
    }
}

type AdviceFn = fn(&Context<'_>) -> Option<Advice>;

/// Returns all applicable advice; largest saving first.
fn all(analysis: &Analysis, report: &Report, disk: &dyn Disk) -> Vec<Advice> {
    const PIECES: [AdviceFn; 19] = [
        load_path,
        real_paths,
        unused_gems,
        order::command_path,
        folder_lists::include_options,
        folder_lists::link_options,
        folder_lists::class_path,
        folder_lists::python_path,
        folder_lists::python_folders,
        folder_lists::library_path,
        folder_lists::run_path,
        missing_commands,
        node_packages,
        language::locale_name,
        language::missing_locale,
        language::translations,
        language::terminal,
        time_zone,
        checks,
    ];
    let has_moved = analysis.has_moved();
    let context = Context { analysis, report, disk, has_moved };
    let mut all: Vec<_> = PIECES.iter().filter_map(|piece| piece(&context)).collect();
    all.retain(|advice| advice.saves >= SAVES_MIN);
    all.sort_by_key(|advice| std::cmp::Reverse(advice.saves));
    all
}

const LOAD_PATH: &str = "an index of the load path";

fn load_path(context: &Context<'_>) -> Option<Advice> {
    let search = search(context.report, SearchKind::Ruby)?;
    let how = format!("thruway run -- {}", shell_line(&context.report.totals.command));
    Some(Advice::new(LOAD_PATH, search.missed, how))
}

fn real_paths(context: &Context<'_>) -> Option<Advice> {
    let totals = &context.report.totals;
    let how = if search(context.report, SearchKind::Ruby).is_some() {
        format!("thruway run -- {}", shell_line(&totals.command))
    } else if is_of_another(context) {
        return None;
    } else {
        "in the program: keep the answer of realpath for every folder".to_owned()
    };
    let saves = totals.unlinked.saturating_sub(totals.link_names);
    Some(Advice::new("remember the real paths of folders", saves, how))
}

fn unused_gems(context: &Context<'_>) -> Option<Advice> {
    let search = search(context.report, SearchKind::Ruby)?;
    let gems = search.folders.iter().filter_map(|folder| Some((gem(&folder.path)?, folder)));
    let unused: Vec<_> = gems.filter(|(_, folder)| !folder.is_used).collect();
    let names: Vec<_> = unused.iter().take(3).map(|(name, _)| *name).collect();
    (!unused.is_empty()).then(|| Advice {
        part_of: Some(LOAD_PATH.to_owned()),
        ..Advice::new(
            format!("fewer gems: {} folders gave nothing", unused.len()),
            unused.iter().map(|(_, folder)| folder.missed).sum(),
            format!("leave out of the Gemfile what is not needed, such as {}", names.join(", ")),
        )
    })
}

/// Returns the name of the gem that a folder belongs to.
fn gem(folder: &str) -> Option<&str> {
    let (_, gem) = folder.rsplit_once("/gems/").or_else(|| folder.rsplit_once("/extensions/"))?;
    let is_name = |component: &&str| component.contains('-') && !component.contains("linux");
    gem.split('/').find(is_name)
}

/// Advises on commands that are in no folder of `PATH`, for which all of them are searched.
fn missing_commands(context: &Context<'_>) -> Option<Advice> {
    search(context.report, SearchKind::Commands)?;
    let names = &context.analysis.names;
    let path = context.analysis.header.variable("PATH").unwrap_or_default();
    let folders: Vec<_> = path.split(':').map(|folder| folder.trim_end_matches('/')).collect();
    let is_folder = names.marks(folders.iter().filter_map(|folder| names.find(folder.as_bytes())));
    // A search that ended early or used a cache does not tell which commands exist.
    let is_on_disk = |command: &[u8]| {
        let in_folder = |folder: &&str| [folder.as_bytes(), b"/", command].concat();
        folders.iter().any(|folder| context.disk.has(&in_folder(folder)))
    };
    let mut commands: HashMap<&[u8], (u64, bool, bool)> = HashMap::default();
    for name in names.all().filter(|name| is_folder[names.parent(*name).index()]) {
        let counts = names.counts(name);
        let command = commands.entry(names.component(name)).or_default();
        command.0 += u64::from(counts.missed);
        command.1 |= counts.asked > counts.missed;
        command.2 |= context.analysis.commands_missed.contains(&name);
    }
    let is_missing = |(command, (_, is_there, is_command)): &(&[u8], (u64, bool, bool))| {
        !is_there && *is_command && !is_on_disk(command)
    };
    let mut missing: Vec<_> = commands.into_iter().filter(is_missing).collect();
    missing.sort_by(|(one, (more, ..)), (other, (less, ..))| (less, one).cmp(&(more, other)));
    let (most, _) = missing.first()?;
    let most = text(most);
    let title = match missing.len() {
        1 => "a command that is nowhere in PATH".to_owned(),
        count => format!("{count} commands that are nowhere in PATH"),
    };
    let saves = missing.iter().map(|(_, (missed, ..))| missed).sum();
    let how = format!("install {most}, or ask for it once: command -v {}", quoted(&most));
    Some(Advice::new(title, saves, how))
}

/// Advises to bundle packages. Node looks up a package in every `node_modules` between the file and the
/// folder that has it, with each suffix.
fn node_packages(context: &Context<'_>) -> Option<Advice> {
    let search = search(context.report, SearchKind::Node)?;
    Some(Advice {
        note: Some("what is required by computed names stays outside: try it".to_owned()),
        ..Advice::new(
            "one file in the place of many in node_modules",
            search.missed,
            bundling(context),
        )
    })
}

/// Returns the command that bundles a script and its packages, if a bundler is installed.
fn bundling(context: &Context<'_>) -> String {
    let mut words = context.report.totals.command.iter();
    let is_script =
        |word: &&String| [".js", ".mjs", ".cjs", ".ts"].iter().any(|suffix| word.ends_with(suffix));
    let folder = &context.analysis.header.folder;
    let path = context.analysis.header.variable("PATH").unwrap_or_default();
    let own = format!("{folder}/node_modules/.bin/esbuild");
    let in_path = || {
        let has = |folder: &str| context.disk.has(format!("{folder}/esbuild").as_bytes());
        path.split(':').any(has).then_some("esbuild")
    };
    let bundler = match context.disk.has(own.as_bytes()) {
        true => Some("node_modules/.bin/esbuild"),
        false => in_path(),
    };
    match (words.find(is_script), bundler) {
        (Some(script), Some(bundler)) => {
            let script = quoted(script);
            format!("{bundler} {script} --bundle --platform=node --outfile=bundle.js")
        }
        (Some(script), None) => {
            format!("make one file of {} with a bundler, such as esbuild", quoted(script))
        }
        (None, _) => "make one file of the program with a bundler, such as esbuild".to_owned(),
    }
}

/// Advises to set `TZ`. Without it, the C library checks the time zone's file again and again.
fn time_zone(context: &Context<'_>) -> Option<Advice> {
    let repeated = &context.report.repeated;
    let asked = repeated.iter().find(|repeated| repeated.name == "/etc/localtime")?;
    context.analysis.header.variable("TZ").is_none().then(|| {
        let how = "export TZ=:/etc/localtime".to_owned();
        Advice::new("a time zone that is looked up once", asked.asked - 1, how)
    })
}

fn checks(context: &Context<'_>) -> Option<Advice> {
    let saves = context.report.totals.checked_then_opened;
    let how = "in the program: let the open be the check".to_owned();
    (!is_of_another(context)).then(|| Advice::new("open at once what is checked first", saves, how))
}

/// Whether most look-ups were made by an interpreter, a compiler or another system program, which users do
/// not change.
fn is_of_another(context: &Context<'_>) -> bool {
    const SYSTEM: [&str; 5] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"];
    let programs = context.analysis.programs.iter();
    let Some(most) = programs.max_by_key(|program| program.lookups) else { return false };
    let in_folder = |folder: &str| [folder.as_bytes(), b"/", &most.name].concat();
    let is_installed = || SYSTEM.iter().any(|folder| context.disk.has(&in_folder(folder)));
    most.searches != SearchKind::Other || !most.name.is_empty() && is_installed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gem_is_named_by_its_folder() {
        assert_eq!(gem("/var/lib/gems/3.1.0/gems/builder-3.2.4/lib"), Some("builder-3.2.4"));
        let extension = "/var/lib/gems/3.1.0/extensions/x86_64-linux/3.1.0/json-2.6";
        assert_eq!(gem(extension), Some("json-2.6"));
        assert_eq!(gem("/usr/lib/ruby/vendor_ruby"), None);
    }
}
