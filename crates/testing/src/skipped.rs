//! Reports tests that this machine cannot run, one line for each reason. The lines bypass the test runner, which hides
//! the output of passing tests. `cargo x check` repeats them at its end.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Mutex;

/// Prints why a test is skipped, once per process and reason.
pub fn skipped(reason: impl Display) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("skipped: {reason}\n");
    if SAID.lock().is_ok_and(|mut said| said.insert(line.clone())) {
        let _ = io::stdout().write_all(line.as_bytes());
    }
}
