//! Commands that are in no folder of `PATH`, for which all folders are searched.

use super::context::{Context, SAVES_MIN, search};
use crate::analysis::kind::SearchKind;
use crate::analysis::maps::HashMap;
use crate::analysis::report::AbsentCommand;
use crate::analysis::text::text;

/// The look-ups for a name in the folders of `PATH`.
#[derive(Default)]
struct SearchedCommand {
    missed: u64,
    is_found: bool,
    /// Whether a shell or another program searched for the name in order to run it.
    is_command: bool,
}

/// Returns the absent commands, those with the most look-ups first; none if they took few look-ups together.
pub(super) fn all(context: &Context<'_>) -> Vec<AbsentCommand> {
    if search(context.report, SearchKind::Commands).is_none() {
        return Vec::new();
    }
    let path = context.analysis.header.variable("PATH").unwrap_or_default();
    let folders: Vec<_> = path.split(':').map(|folder| folder.trim_end_matches('/')).collect();
    // A search that ended early or used a cache does not tell which commands exist.
    let is_on_disk = |command: &[u8]| {
        let in_folder = |folder: &&str| [folder.as_bytes(), b"/", command].concat();
        folders.iter().any(|folder| context.disk.has(&in_folder(folder)))
    };
    let searched = searched(context, &folders).into_iter();
    let absent = searched.filter(|(command, searched)| {
        searched.is_command && !searched.is_found && !is_on_disk(command)
    });
    let mut absent: Vec<_> = absent
        .map(|(command, searched)| AbsentCommand {
            command: text(command),
            missed: searched.missed,
        })
        .collect();
    absent.sort_by(|one, other| (other.missed, &one.command).cmp(&(one.missed, &other.command)));
    if absent.iter().map(|one| one.missed).sum::<u64>() < SAVES_MIN { Vec::new() } else { absent }
}

fn searched<'a>(context: &Context<'a>, folders: &[&str]) -> HashMap<&'a [u8], SearchedCommand> {
    let names = &context.analysis.names;
    let is_folder = names.marks(folders.iter().filter_map(|folder| names.find(folder.as_bytes())));
    let mut commands: HashMap<&[u8], SearchedCommand> = HashMap::default();
    for name in names.all().filter(|name| is_folder[names.parent(*name).index()]) {
        let counts = names.counts(name);
        let command = commands.entry(names.component(name)).or_default();
        command.missed += u64::from(counts.missed);
        command.is_found |= counts.asked > counts.missed;
        command.is_command |= context.analysis.commands_missed.contains(&name);
    }
    commands
}
