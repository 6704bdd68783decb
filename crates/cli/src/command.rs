//! Commands that users give as words.

use std::ffi::OsString;

use thruway_spawn::Command;

/// Returns the command whose name is the first word and whose arguments are the other words.
pub(crate) fn of_words(words: &[OsString]) -> Command {
    let (name, arguments) =
        words.split_first().map_or((OsString::new(), &[][..]), |(name, rest)| (name.clone(), rest));
    Command::new(name).args(arguments)
}
