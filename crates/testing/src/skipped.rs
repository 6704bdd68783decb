//! What a test leaves out on this machine: one line for each reason. It goes past the test runner, which
//! does not show what a passing test prints. `cargo x check` repeats the lines at its end.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Mutex;

/// Says why something is left out, unless this process has said so.
pub fn skipped(reason: impl Display) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("skipped: {reason}\n");
    if SAID.lock().is_ok_and(|mut said| said.insert(line.clone())) {
        let _ = io::stdout().write_all(line.as_bytes());
    }
}
