//! Stands in for the checks of Linux's features on other systems.

use super::checks::Check;

pub(super) fn checks() -> Vec<Check> {
    let told =
        "run, pack, which and expand work; serve, mount, trace, load and --preload are Linux's";
    vec![
        Check::works("system", told),
        Check::works("boot mode", "portable: Ruby asks the disk itself"),
    ]
}
