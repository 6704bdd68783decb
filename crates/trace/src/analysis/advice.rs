//! What would fix it: each with what it saves, and the exact command or setting.

use serde::Serialize;

use super::kind::SearchKind;
use super::names::Name;
use super::report::{Report, SearchPath, text};
use super::{Analysis, HashMap};

/// Something that would save look-ups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What is to be done, in a few words.
    pub title: String,
    /// How many look-ups it saves, at most.
    pub saves: u64,
    /// The command or the setting.
    pub how: String,
    /// The title of the advice that saves these as well.
    pub part_of: Option<String>,
}

/// Advice that saves less is not worth a line.
const SAVES_MIN: u64 = 10;

/// Everything that applies, the most saved first.
pub(super) fn all(analysis: &Analysis, report: &Report) -> Vec<Advice> {
    let pieces: [fn(&Analysis, &Report) -> Option<Advice>; 12] = [
        load_path,
        real_paths,
        unused_gems,
        command_path,
        include_options,
        missing_commands,
        locale_name,
        translations,
        python_path,
        library_path,
        time_zone,
        checks,
    ];
    let mut all: Vec<_> = pieces.iter().filter_map(|piece| piece(analysis, report)).collect();
    all.retain(|advice| advice.saves >= SAVES_MIN);
    all.sort_by_key(|advice| std::cmp::Reverse(advice.saves));
    all
}

fn search(report: &Report, kind: SearchKind) -> Option<&SearchPath> {
    report.searches.iter().find(|search| search.kind == kind)
}

const LOAD_PATH: &str = "an index of the load path";

fn load_path(_: &Analysis, report: &Report) -> Option<Advice> {
    let search = search(report, SearchKind::Ruby)?;
    Some(Advice {
        title: LOAD_PATH.to_owned(),
        saves: search.missed,
        how: format!("thruway run -- {}", shell_line(&report.totals.command)),
        part_of: None,
    })
}

fn real_paths(_: &Analysis, report: &Report) -> Option<Advice> {
    let totals = &report.totals;
    let is_ruby = search(report, SearchKind::Ruby).is_some();
    let how = if is_ruby {
        format!("thruway run -- {}", shell_line(&totals.command))
    } else {
        "in the program: keep the answer of realpath for every folder".to_owned()
    };
    Some(Advice {
        title: "remember the real paths of folders".to_owned(),
        saves: totals.unlinked.saturating_sub(totals.link_names),
        how,
        part_of: None,
    })
}

fn unused_gems(_: &Analysis, report: &Report) -> Option<Advice> {
    let search = search(report, SearchKind::Ruby)?;
    let gems = search.folders.iter().filter_map(|folder| Some((gem(&folder.path)?, folder)));
    let unused: Vec<_> = gems.filter(|(_, folder)| !folder.is_used).collect();
    let names: Vec<_> = unused.iter().take(3).map(|(name, _)| *name).collect();
    (!unused.is_empty()).then(|| Advice {
        title: format!("fewer gems: {} folders gave nothing", unused.len()),
        saves: unused.iter().map(|(_, folder)| folder.missed).sum(),
        how: format!("leave out of the Gemfile what is not needed, such as {}", names.join(", ")),
        part_of: Some(LOAD_PATH.to_owned()),
    })
}

/// The name of the gem that a folder belongs to.
fn gem(folder: &str) -> Option<&str> {
    let (_, gem) = folder.rsplit_once("/gems/").or_else(|| folder.rsplit_once("/extensions/"))?;
    let is_name = |component: &&str| component.contains('-') && !component.contains("linux");
    gem.split('/').find(is_name)
}

/// The folders of PATH that gave nothing go to its end. The others keep their order, and nothing
/// that was found is behind a folder that was not asked for it, so the same commands are found.
fn command_path(analysis: &Analysis, report: &Report) -> Option<Advice> {
    let search = search(report, SearchKind::Commands)?;
    let path = analysis.header.variable("PATH")?;
    let is_used = |folder: &&str| {
        let folder = folder.trim_end_matches('/');
        search.folders.iter().any(|known| known.path == folder && known.is_used)
    };
    let (used, unused): (Vec<_>, Vec<_>) = path.split(':').partition(is_used);
    let saves = misses_before(analysis, &unused, &used);
    let mut order: Vec<&str> = Vec::new();
    for folder in used.into_iter().chain(unused) {
        // The second of two equal folders gives nothing that the first has not.
        if !order.contains(&folder) {
            order.push(folder);
        }
    }
    let order = order.join(":");
    (order != path).then(|| Advice {
        title: "folders of PATH in the order of their use".to_owned(),
        saves,
        how: format!("export PATH={}", quoted(&order)),
        part_of: None,
    })
}

/// Misses in folders for names that one of the others has.
fn misses_before(analysis: &Analysis, folders: &[&str], others: &[&str]) -> u64 {
    let names = &analysis.names;
    let find = |folder: &&str| names.find(folder.as_bytes());
    let is_folder = names.marks(folders.iter().filter_map(find));
    let others: Vec<_> = others.iter().filter_map(find).collect();
    let is_there = |component: &[u8]| {
        let found = others.iter().filter_map(|other| names.find_in(*other, component));
        found.map(|name| names.counts(name)).any(|counts| counts.asked > counts.missed)
    };
    let missed = names.all().filter(|name| names.counts(*name).missed > 0);
    let inside =
        missed.filter(|name| *name != Name::ROOT && is_folder[names.parent(*name).index()]);
    let saved = inside.filter(|name| is_there(names.component(*name)));
    saved.map(|name| u64::from(names.counts(name).missed)).sum()
}

fn include_options(analysis: &Analysis, report: &Report) -> Option<Advice> {
    let search = search(report, SearchKind::Includes)?;
    let mut options: Vec<_> =
        analysis.programs.iter().flat_map(|program| &program.include_options).collect();
    options.sort_unstable();
    options.dedup();
    let base = analysis.header.folder.as_bytes();
    let searched: HashMap<_, _> =
        search.folders.iter().map(|folder| (folder.path.as_bytes(), folder)).collect();
    let folder = |option: &[u8]| {
        searched
            .get(thruway_resolve::expand(thruway_resolve::Flavour::Posix, option, base).as_slice())
    };
    let known = options.iter().filter_map(|option| Some((option, *folder(option)?)));
    let (kept, unused): (Vec<_>, Vec<_>) = known.partition(|(_, folder)| folder.is_used);
    let (count, saves) = (unused.len(), unused.iter().map(|(_, folder)| folder.missed).sum());
    let kept: Vec<_> = kept.iter().map(|(option, _)| format!("-I{}", text(option))).collect();
    let keep = if kept.is_empty() { String::new() } else { format!(", keep {}", kept.join(" ")) };
    Some(Advice {
        title: format!("{count} include folders fewer"),
        saves,
        how: format!("drop {count} of {} options -I{keep}", options.len()),
        part_of: None,
    })
}

/// Commands that are in no folder of PATH, and yet are searched for in all of them.
fn missing_commands(analysis: &Analysis, report: &Report) -> Option<Advice> {
    let search = search(report, SearchKind::Commands)?;
    let names = &analysis.names;
    let folders = search.folders.iter().filter_map(|folder| names.find(folder.path.as_bytes()));
    let is_folder = names.marks(folders);
    let mut commands: HashMap<&[u8], (u64, bool)> = HashMap::default();
    for name in names.all().filter(|name| is_folder[names.parent(*name).index()]) {
        let counts = names.counts(name);
        let command = commands.entry(names.component(name)).or_default();
        command.0 += u64::from(counts.missed);
        command.1 |= counts.asked > counts.missed;
    }
    let mut missing: Vec<_> = commands.into_iter().filter(|(_, (_, is_there))| !is_there).collect();
    missing.sort_by(|(one, (more, _)), (other, (less, _))| (less, one).cmp(&(more, other)));
    let (most, _) = missing.first()?;
    let most = text(most);
    Some(Advice {
        title: match missing.len() {
            1 => "a command that is nowhere in PATH".to_owned(),
            count => format!("{count} commands that are nowhere in PATH"),
        },
        saves: missing.iter().map(|(_, (missed, _))| missed).sum(),
        how: format!("install {most}, or ask for it once: command -v {}", quoted(&most)),
        part_of: None,
    })
}

/// The C library tries a locale's name as it is given before the form that it is installed under.
fn locale_name(analysis: &Analysis, report: &Report) -> Option<Advice> {
    let search = search(report, SearchKind::Locale)?;
    let data: Vec<_> =
        search.folders.iter().filter(|folder| !is_translation(&folder.path)).collect();
    let installed = data.iter().find(|folder| folder.is_used);
    let installed = installed.map_or("C", |folder| text_of_base_name(&folder.path));
    let unused = data.iter().filter(|folder| !folder.is_used);
    let named =
        |value: &&str| unused.clone().any(|folder| text_of_base_name(&folder.path) == *value);
    let variables = ["LC_ALL", "LC_CTYPE", "LANG"];
    let variable =
        variables.iter().find(|name| analysis.header.variable(name).as_ref().is_some_and(named));
    Some(Advice {
        title: "the locale by the name that it is installed under".to_owned(),
        saves: unused.map(|folder| folder.missed).sum(),
        how: format!("export {}={installed}", variable.unwrap_or(&"LC_ALL")),
        part_of: None,
    })
}

fn translations(analysis: &Analysis, report: &Report) -> Option<Advice> {
    let search = search(report, SearchKind::Locale)?;
    let folders = search.folders.iter().filter(|folder| is_translation(&folder.path));
    let is_overruled = analysis.header.variable("LC_ALL").is_some_and(|value| !value.is_empty());
    let how =
        if is_overruled { "unset LC_ALL; export LC_MESSAGES=C" } else { "export LC_MESSAGES=C" };
    Some(Advice {
        title: "a language that needs no translations".to_owned(),
        saves: folders.map(|folder| folder.missed).sum(),
        how: how.to_owned(),
        part_of: None,
    })
}

fn is_translation(folder: &str) -> bool {
    folder.ends_with("/LC_MESSAGES")
}

fn text_of_base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn python_path(analysis: &Analysis, report: &Report) -> Option<Advice> {
    without_unused(analysis, report, SearchKind::Python, "PYTHONPATH")
}

fn library_path(analysis: &Analysis, report: &Report) -> Option<Advice> {
    without_unused(analysis, report, SearchKind::Libraries, "LD_LIBRARY_PATH")
}

/// A variable without the folders that gave nothing.
fn without_unused(
    analysis: &Analysis,
    report: &Report,
    kind: SearchKind,
    variable: &str,
) -> Option<Advice> {
    let search = search(report, kind)?;
    let path = analysis.header.variable(variable)?;
    let unused = |folder: &str| {
        let folder = folder.trim_end_matches('/');
        search.folders.iter().find(|known| known.path == folder && !known.is_used)
    };
    let kept: Vec<_> = path.split(':').filter(|folder| unused(folder).is_none()).collect();
    let how = if kept.is_empty() {
        format!("unset {variable}")
    } else {
        format!("export {variable}={}", quoted(&kept.join(":")))
    };
    Some(Advice {
        title: format!("{variable} without the folders that gave nothing"),
        saves: path.split(':').filter_map(unused).map(|folder| folder.missed).sum(),
        how,
        part_of: None,
    })
}

/// The C library looks at the time zone's file again and again, unless the variable names it.
fn time_zone(analysis: &Analysis, report: &Report) -> Option<Advice> {
    let asked = report.repeated.iter().find(|repeated| repeated.name == "/etc/localtime")?;
    analysis.header.variable("TZ").is_none().then(|| Advice {
        title: "a time zone that is looked up once".to_owned(),
        saves: asked.asked - 1,
        how: "export TZ=:/etc/localtime".to_owned(),
        part_of: None,
    })
}

fn checks(_: &Analysis, report: &Report) -> Option<Advice> {
    Some(Advice {
        title: "open at once what is checked first".to_owned(),
        saves: report.totals.checked_then_opened,
        how: "in the program: let the open be the check".to_owned(),
        part_of: None,
    })
}

/// Words as a shell takes them, on one line.
#[must_use]
pub fn shell_line(words: &[String]) -> String {
    let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    line.replace(['\n', '\t'], " ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain =
        |character: char| character.is_alphanumeric() || "-_./:=,+@%~".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_a_shell_needs_it() {
        let words = ["ruby", "-e", "puts 'x'"].map(str::to_owned);
        assert_eq!(shell_line(&words), r"ruby -e 'puts '\''x'\'''");
    }

    #[test]
    fn a_gem_is_named_by_its_folder() {
        assert_eq!(gem("/var/lib/gems/3.1.0/gems/builder-3.2.4/lib"), Some("builder-3.2.4"));
        let extension = "/var/lib/gems/3.1.0/extensions/x86_64-linux/3.1.0/json-2.6";
        assert_eq!(gem(extension), Some("json-2.6"));
        assert_eq!(gem("/usr/lib/ruby/vendor_ruby"), None);
    }
}
