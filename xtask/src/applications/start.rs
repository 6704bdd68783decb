//! Starts a command until it boots in the wanted way.

use std::thread::sleep;
use std::time::Duration;

use super::application::{Application, CommandOutcome};
use super::way::Way;

/// The number of starts, a second apart, after which no fork is expected any more.
const STARTS_MAX: u32 = 90;

/// The outcome of the last start.
pub(super) struct Start {
    /// The kind of boot, with the reason if another one was wanted.
    pub(super) how: String,
    /// Whether the boot was of the wanted kind.
    pub(super) is_right_kind: bool,
}

/// Starts a command in one way, as often as the pack or the template needs to be made. `look` gets the result of each
/// start.
pub(super) fn start(
    way: Way,
    application: &Application,
    environment: &str,
    words: &[String],
    mut look: impl FnMut(&CommandOutcome) -> Result<(), String>,
) -> Result<Start, String> {
    let mut last = None;
    for _ in 0..starts_max(way) {
        application.restore()?;
        let ended = application.run(way, environment, words)?;
        look(&ended)?;
        let (how, is_right_kind, is_final) = way.kind(&ended.errors);
        last = Some(Start { how, is_right_kind });
        if is_right_kind || is_final {
            break;
        }
        sleep(Duration::from_secs(1));
    }
    last.ok_or_else(|| "no start".to_owned())
}

fn starts_max(way: Way) -> u32 {
    match way {
        Way::Plain => 1,
        Way::Packed | Way::Frozen => 3,
        Way::Preloaded => STARTS_MAX,
    }
}
