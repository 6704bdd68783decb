//! The one boot of this process.

use std::sync::OnceLock;

use thruway_boot::Boot;

use crate::ruby::Gvl;
use crate::ruby::ractor;

/// The boot, and the process that it belongs to: a forked child goes on using it, but what is written at exit is
/// written once.
static BOOT: OnceLock<(Boot, u32)> = OnceLock::new();

/// This process boots in that way. Answers whether it is the first time.
pub(super) fn begin(boot: Boot) -> bool {
    BOOT.set((boot, std::process::id())).is_ok()
}

/// The boot, once it has started.
pub(crate) fn boot() -> Option<&'static Boot> {
    BOOT.get().map(|(boot, _)| boot)
}

/// The boot, if it was this process that started it.
pub(super) fn own() -> Option<&'static Boot> {
    BOOT.get().filter(|(_, process)| *process == std::process::id()).map(|(boot, _)| boot)
}

/// The boot, for Ruby code that it serves. Other Ractors than the main one share nothing with it, and
/// run at the same time: they are left to Ruby.
pub(super) fn serving(gvl: Gvl) -> Option<&'static Boot> {
    boot().filter(|_| ractor::is_main(gvl))
}
