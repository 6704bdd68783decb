//! Advice on lists of folders in variables, in options or in a program's `RUNPATH`. Unused folders are
//! removed, so that every name that was found is still found as the same file.

use super::super::disk::Listing;
use super::super::names::Name;
use super::context::{Context, SAVES_MIN, search};
use crate::analysis::kind::SearchKind;
use crate::analysis::maps::HashMap;
use crate::analysis::options;
use crate::analysis::report::{Advice, AdviceForm, below};
use crate::analysis::tally::ProgramTally;
use crate::analysis::text::{base_name, quoted, shell_line, text};

/// A folder of a list.
struct ListedFolder<'a> {
    given: &'a str,
    /// The look-ups saved by removing the folder; `None` if it is used or its use is unknown.
    saves: Option<u64>,
    name: Option<Name>,
}

/// Returns the folders of a list with the saving of each. A folder is used if any process found anything
/// below it.
fn folders<'a>(
    context: &Context<'_>,
    has_moved: bool,
    given: impl IntoIterator<Item = &'a str>,
) -> Vec<ListedFolder<'a>> {
    let names = &context.analysis.names;
    let find = |folder: &str| names.find(&context.absolute(folder, has_moved)?);
    let given: Vec<_> = given.into_iter().map(|folder| (folder, find(folder))).collect();
    let known = || given.iter().filter_map(|(_, name)| *name).filter(|name| *name != Name::ROOT);
    let below = below(names, known());
    let mut is_used: HashMap<Name, bool> = HashMap::default();
    for name in known() {
        if below.get(&name).is_some_and(|sum| sum.found + sum.opened > 0) {
            // The content of a folder is below its parents, too.
            is_used.insert(name, true);
            is_used.extend(names.folders(name).map(|above| (above, true)));
        }
    }
    let saves = |name: Name| {
        let own = u64::from(names.counts(name).asked);
        let is_useless = name != Name::ROOT && !is_used.contains_key(&name);
        is_useless.then(|| own + below.get(&name).map_or(0, |sum| sum.asked))
    };
    let folder = |(given, name): (&'a str, Option<Name>)| ListedFolder {
        given,
        saves: name.and_then(saves),
        name,
    };
    given.into_iter().map(folder).collect()
}

/// Returns the saving of removing all unused folders, counting each folder once.
fn saves(folders: &[ListedFolder<'_>]) -> u64 {
    let once: HashMap<_, _> =
        folders.iter().filter_map(|folder| Some((folder.name, folder.saves?))).collect();
    once.into_values().sum()
}

fn split<'a>(folders: &[ListedFolder<'a>]) -> (Vec<&'a str>, Vec<&'a str>) {
    let part = |is_kept: bool| {
        let part = folders.iter().filter(move |folder| folder.saves.is_none() == is_kept);
        part.map(|folder| folder.given).collect::<Vec<_>>()
    };
    (part(true), part(false))
}

pub(super) fn python_path(context: &Context<'_>) -> Option<Advice> {
    without_unused(context, SearchKind::Python, "PYTHONPATH")
}

pub(super) fn library_path(context: &Context<'_>) -> Option<Advice> {
    without_unused(context, SearchKind::Libraries, "LD_LIBRARY_PATH")
}

/// Advises to run this command with a variable that lacks the unused folders. Other commands may need them.
fn without_unused(context: &Context<'_>, kind: SearchKind, variable: &str) -> Option<Advice> {
    let is_asked = |kind| context.analysis.programs.iter().any(|one| one.searches == kind);
    if search(context.report, kind).is_none() && !is_asked(kind) {
        return None;
    }
    let path = context.analysis.header.variable(variable)?;
    // The loader also accepts semicolons as separators.
    if path.contains(';') {
        return None;
    }
    let folders = folders(context, context.has_moved, path.split(':'));
    let (kept, unused) = split(&folders);
    let command = shell_line(&context.report.totals.command);
    let how = match kept.as_slice() {
        // An empty variable means no folders, as if it was unset; `env -u` would be one more program that searches. A
        // single empty folder means the working directory.
        [] => format!("{variable}= {command}"),
        [""] => format!("{variable}=. {command}"),
        kept => format!("{variable}={} {command}", quoted(&kept.join(":"))),
    };
    (!unused.is_empty()).then(|| Advice {
        note: Some(format!("{} of {} folders gave nothing", unused.len(), folders.len())),
        ..Advice::new(
            AdviceForm::Command,
            format!("{variable} without the folders that gave nothing"),
            saves(&folders),
            how,
        )
    })
}

/// Advises to remove folders from `sys.path` that come from elsewhere. Python queries each of them at every
/// import.
pub(super) fn python_folders(context: &Context<'_>) -> Option<Advice> {
    const ASKED_MIN: u32 = 10;
    let names = &context.analysis.names;
    let python = |program: &&ProgramTally| program.searches == SearchKind::Python;
    context.analysis.programs.iter().find(python)?;
    let library = names
        .all()
        .find(|name| names.component(*name) == b"encodings" && names.counts(*name).found() > 0);
    let library = names.parent(library?);
    // The library's folder is on `sys.path` from the start; others may have been added later.
    let often = (names.counts(library).checked / 4).max(ASKED_MIN);
    let variable = context.analysis.header.variable("PYTHONPATH").unwrap_or_default();
    let own: Vec<_> =
        variable.split(':').filter_map(|folder| context.absolute(folder, false)).collect();
    let is_standard = |path: &[u8]| {
        let last = base_name(path);
        matches!(last, b"site-packages" | b"dist-packages" | b"bin")
            || path == context.analysis.header.folder.as_bytes()
    };
    // A folder of `sys.path` is listed once, unlike a program that is started often.
    let is_listed = |name: &Name| {
        let counts = names.counts(*name);
        counts.found() > counts.checked + counts.opened && !context.analysis.executed.contains(name)
    };
    let asked = names.all().filter(|name| names.counts(*name).checked >= often);
    let asked = asked.filter(is_listed);
    let others = asked.filter(|name| *name != library && !names.is_below(*name, library));
    let paths: Vec<_> = others
        .map(|name| names.path(name))
        .filter(|path| !own.contains(path) && !is_standard(path))
        .filter_map(|path| String::from_utf8(path).ok())
        .collect();
    let folders = folders(context, true, paths.iter().map(String::as_str));
    let (_, unused) = split(&folders);
    // Fewer folders may be queried often for another reason.
    (unused.len() >= 3).then(|| Advice {
        note: Some("python3 -m site lists sys.path".to_owned()),
        ..Advice::new(
            AdviceForm::Edit,
            format!("sys.path without {} folders that gave nothing", unused.len()),
            saves(&folders),
            format!("leave out of the program's sys.path, or of *.pth: {}", unused.join(" ")),
        )
    })
}

pub(super) fn include_options(context: &Context<'_>) -> Option<Advice> {
    search(context.report, SearchKind::Includes)?;
    let programs = &context.analysis.programs;
    let options = programs.iter().flat_map(|program| &program.options);
    let advice =
        fewer_options(context, options.filter(|one| one.kind == options::ListKind::Include))?;
    Some(Advice { title: format!("{} include folders fewer", advice.0), ..advice.1 })
}

/// Advises to drop unused folders of `-L`, in each of which a linker looks up every library.
pub(super) fn link_options(context: &Context<'_>) -> Option<Advice> {
    let programs = &context.analysis.programs;
    let options = |kind| {
        let options = programs.iter().flat_map(|program| &program.options);
        options.filter(move |one| one.kind == kind)
    };
    // A compiler passes its options on and adds folders of its own, so the compiler's options are the ones to
    // change.
    let told = if options(options::ListKind::Link).next().is_some() {
        options::ListKind::Link
    } else {
        options::ListKind::Linker
    };
    let advice = fewer_options(context, options(told))?;
    Some(Advice { title: format!("{} library folders fewer", advice.0), ..advice.1 })
}

/// Advises to drop options whose folders are unused, and returns their number. The order of the others stays
/// the same.
fn fewer_options<'a>(
    context: &Context<'_>,
    options: impl Iterator<Item = &'a options::FolderOption>,
) -> Option<(usize, Advice)> {
    let mut given: Vec<&options::FolderOption> = Vec::new();
    for option in options {
        if !given.iter().any(|known| known.option == option.option && known.folder == option.folder)
        {
            given.push(option);
        }
    }
    let has_moved = given.iter().any(|option| option.has_moved);
    let folders = folders(context, has_moved, given.iter().map(|option| option.folder.as_str()));
    let word = |(option, _): (&&options::FolderOption, _)| option.word();
    let part = |is_kept: bool| {
        let all = given.iter().zip(&folders);
        let part = all.filter(|(_, folder)| folder.saves.is_none() == is_kept);
        part.map(word).collect::<Vec<_>>()
    };
    let (kept, unused) = (part(true), part(false));
    let (count, all, form) = (unused.len(), given.len(), &given.first()?.option);
    let how = if kept.is_empty() {
        format!("drop all {all} options {form}")
    } else if kept.len() < count {
        format!("drop {count} of {all} options {form}, all but {}", kept.join(" "))
    } else {
        format!("drop {count} of {all} options {form}: {}", unused.join(" "))
    };
    let note = Some("they gave nothing here; other sources may need them".to_owned());
    Some((
        count,
        Advice { note, ..Advice::new(AdviceForm::Edit, String::new(), saves(&folders), how) },
    ))
}

/// Advises to shorten Java's class path, in each folder of which Java looks up every class.
pub(super) fn class_path(context: &Context<'_>) -> Option<Advice> {
    let programs = &context.analysis.programs;
    let java = programs.iter().find(|program| program.searches == SearchKind::Java)?;
    let given = java.options.iter().filter(|one| one.kind == options::ListKind::Classes);
    let given: Vec<_> = given.collect();
    let (option, path, has_moved) = match given.as_slice() {
        [] => ("CLASSPATH", context.analysis.header.variable("CLASSPATH")?, context.has_moved),
        [only] => (only.option.as_str(), only.folder.as_str(), only.has_moved),
        // The origin of each folder is ambiguous.
        _ => return None,
    };
    let folders = folders(context, has_moved, path.split(':'));
    let (kept, unused) = split(&folders);
    let kept = match kept.as_slice() {
        // Without any class path, Java would use the working directory.
        [] => quoted(path.rsplit(':').next().unwrap_or(path)),
        [""] => ".".to_owned(),
        kept => quoted(&kept.join(":")),
    };
    let command = &context.report.totals.command;
    let place = command.iter().position(|word| word == path);
    let (form, how) = if option == "CLASSPATH" {
        (AdviceForm::Command, format!("CLASSPATH={kept} {}", shell_line(command)))
    } else if let Some(place) = place {
        let around = [shell_line(&command[..place]), kept, shell_line(&command[place + 1..])];
        (AdviceForm::Command, around.join(" "))
    } else {
        (
            AdviceForm::Edit,
            format!(
                "drop {} of {} folders of {option}, all but {kept}",
                unused.len(),
                folders.len()
            ),
        )
    };
    (!unused.is_empty()).then(|| {
        Advice::new(
            form,
            format!("a class path without {} folders that gave nothing", unused.len()),
            saves(&folders),
            how,
        )
    })
}

/// Advises to shorten a program's `RUNPATH`, in each folder of which the loader looks up every library.
pub(super) fn run_path(context: &Context<'_>) -> Option<Advice> {
    let search = search(context.report, SearchKind::Libraries)?;
    if search.unused_missed < SAVES_MIN {
        return None;
    }
    let names = &context.analysis.names;
    let programs = context.analysis.executed.iter().map(|name| names.path(*name));
    let of_program = |program: Vec<u8>| {
        let path = text(&context.disk.run_path(&program)?);
        let program = text(&program);
        let (origin, _) = program.rsplit_once('/')?;
        let whole = |folder: &str| folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin);
        let wholes: Vec<_> = path.split(':').map(whole).collect();
        let mut folders = folders(context, true, wholes.iter().map(String::as_str));
        // Another start of the program may need what this one has found elsewhere.
        for folder in folders
            .iter_mut()
            .filter(|one| one.saves.is_some() && has_libraries(context, one.given))
        {
            folder.saves = None;
        }
        let kept = path.split(':').zip(&folders).filter(|(_, folder)| folder.saves.is_none());
        let kept = kept.map(|(given, _)| given).collect::<Vec<_>>();
        let program_word = quoted(&program);
        let (how, linked) = if kept.is_empty() {
            (format!("patchelf --remove-rpath {program_word}"), "without -rpath".to_owned())
        } else {
            // An empty folder means the working directory.
            let kept = if kept == [""] { ".".to_owned() } else { quoted(&kept.join(":")) };
            (format!("patchelf --set-rpath {kept} {program_word}"), format!("with -rpath {kept}"))
        };
        let count = folders.iter().filter(|folder| folder.saves.is_some()).count();
        Some(Advice {
            note: Some(format!(
                "or link {linked}; what the program loads on other occasions may be in the others"
            )),
            ..Advice::new(
                AdviceForm::Setting,
                format!(
                    "RUNPATH of {} without {count} folders",
                    text(base_name(program.as_bytes()))
                ),
                saves(&folders),
                how,
            )
        })
    };
    programs.filter_map(of_program).max_by_key(|advice| advice.saves)
}

/// Whether the disk has libraries in a folder, or does not say.
fn has_libraries(context: &Context<'_>, folder: &str) -> bool {
    let is_library = |name: &Vec<u8>| name.windows(3).any(|three| three == b".so");
    match context.disk.list(folder.as_bytes()) {
        Listing::Missing => false,
        Listing::Unknown => true,
        Listing::Names(names) => names.iter().any(is_library),
    }
}
