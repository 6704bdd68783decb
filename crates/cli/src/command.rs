//! Commands that users give as words.

use std::ffi::OsString;

use thruway_spawn::Command;

/// The command as it was given.
pub(crate) fn of_words(words: &[OsString]) -> Command {
    let (name, arguments) =
        words.split_first().map_or((OsString::new(), &[][..]), |(name, rest)| (name.clone(), rest));
    Command::new(name).args(arguments)
}
