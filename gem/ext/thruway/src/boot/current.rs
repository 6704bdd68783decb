//! The boot of this process. A process has at most one.

use std::sync::OnceLock;

use thruway_boot::Boot;

use crate::ruby::Gvl;
use crate::ruby::ractor;

/// The boot, and the id of the process that started the boot. A forked child goes on using the boot, but only the
/// process that started it writes at exit.
static BOOT: OnceLock<(Boot, u32)> = OnceLock::new();

/// Sets the boot of this process. Returns whether the process had none before.
pub(super) fn begin(boot: Boot) -> bool {
    BOOT.set((boot, std::process::id())).is_ok()
}

/// The boot, once it has started.
pub(crate) fn boot() -> Option<&'static Boot> {
    BOOT.get().map(|(boot, _)| boot)
}

/// The boot, if this process started it rather than a parent.
pub(super) fn own() -> Option<&'static Boot> {
    BOOT.get().filter(|(_, process)| *process == std::process::id()).map(|(boot, _)| boot)
}

/// The boot, if the calling Ractor may use it. Other Ractors than the main one share no objects with the boot, and
/// run in parallel; they are served by Ruby alone.
pub(super) fn serving(gvl: Gvl) -> Option<&'static Boot> {
    boot().filter(|_| ractor::is_main(gvl))
}
