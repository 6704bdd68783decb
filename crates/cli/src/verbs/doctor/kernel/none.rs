//! Stands in for the checks of Linux's features on other systems.

use super::checks::Check;

const BOOT_MODE: &str = if cfg!(windows) {
    "full: Ruby's look-ups are answered, and what the program changes is seen"
} else {
    "portable: Ruby makes its own system calls"
};

pub(super) fn checks() -> Vec<Check> {
    let told =
        "run, pack, which and expand work; serve, mount, trace, load and --preload need Linux";
    vec![Check::works("system", told), Check::works("boot mode", BOOT_MODE)]
}
