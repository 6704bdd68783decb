//! Stands in for the checks of Linux's features on other systems.

use super::checks::Check;

const BOOT_MODE: &str = if cfg!(windows) {
    "portable: Ruby asks the disk itself, but not about a file that the boot has examined"
} else {
    "portable: Ruby asks the disk itself"
};

pub(super) fn checks() -> Vec<Check> {
    let told =
        "run, pack, which and expand work; serve, mount, trace, load and --preload are Linux's";
    vec![Check::works("system", told), Check::works("boot mode", BOOT_MODE)]
}
