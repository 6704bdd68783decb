//! Errors of a mount as the terminal shows them.

use thruway_mount::Error;

use crate::output::Failure;

/// The error with its hint.
pub(super) fn failure(error: Error) -> Failure {
    let failure = Failure::new(&error);
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
