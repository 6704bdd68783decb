//! How long each step of the check took the last time that it passed in this checkout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Seconds by step. They are for people: a file that cannot be read or written does no harm.
pub(super) struct Durations {
    file: PathBuf,
    seconds: BTreeMap<String, u64>,
}

impl Durations {
    pub(super) fn read(root: &Path) -> Self {
        let file = root.join("target/check-durations.tsv");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let row = |line: &str| {
            let (step, seconds) = line.split_once('\t')?;
            Some((step.to_owned(), seconds.parse().ok()?))
        };
        Self { seconds: text.lines().filter_map(row).collect(), file }
    }

    pub(super) fn of(&self, step: &str) -> Option<u64> {
        self.seconds.get(step).copied()
    }

    pub(super) fn keep(&mut self, step: &str, seconds: u64) {
        self.seconds.insert(step.to_owned(), seconds);
        let rows = self.seconds.iter().map(|(step, seconds)| format!("{step}\t{seconds}\n"));
        let _ = std::fs::write(&self.file, rows.collect::<String>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_expected_to_take_as_long_as_the_last_time() {
        let root = tempfile::tempdir().expect("a folder");
        let mut durations = Durations::read(root.path());
        assert_eq!(durations.of("gem tests"), None);
        std::fs::create_dir(root.path().join("target")).expect("made");
        durations.keep("gem tests", 600);
        durations.keep("lints", 7);
        durations.keep("gem tests", 620);
        let again = Durations::read(root.path());
        assert_eq!((again.of("gem tests"), again.of("lints")), (Some(620), Some(7)));
    }
}
