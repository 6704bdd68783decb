//! Shows errors of a mount on the terminal.

use thruway_mount::Error;

use crate::output::Failure;

/// Converts an error to a failure with its hint.
pub(super) fn failure(error: Error) -> Failure {
    let failure = Failure::new(&error);
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
