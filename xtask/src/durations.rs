//! The durations of steps and of test files at their last success in this checkout.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Seconds by name. Only people read them: a file that cannot be read or written does no harm.
pub(crate) struct Durations {
    file: PathBuf,
    seconds: BTreeMap<String, u64>,
}

impl Durations {
    pub(crate) fn read(file: PathBuf) -> Self {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let row = |line: &str| {
            let (name, seconds) = line.split_once('\t')?;
            Some((name.to_owned(), seconds.parse().ok()?))
        };
        Self { seconds: text.lines().filter_map(row).collect(), file }
    }

    pub(crate) fn of(&self, name: &str) -> Option<u64> {
        self.seconds.get(name).copied()
    }

    pub(crate) fn keep(&mut self, name: &str, seconds: u64) {
        self.seconds.insert(name.to_owned(), seconds);
        let rows = self.seconds.iter().map(|(name, seconds)| format!("{name}\t{seconds}\n"));
        let _ = std::fs::write(&self.file, rows.collect::<String>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_expected_to_take_as_long_as_the_last_time() {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join("target/durations.tsv");
        let mut durations = Durations::read(file.clone());
        assert_eq!(durations.of("gem tests"), None);
        std::fs::create_dir(root.path().join("target")).expect("made");
        durations.keep("gem tests", 600);
        durations.keep("lints", 7);
        durations.keep("gem tests", 620);
        let again = Durations::read(file);
        assert_eq!((again.of("gem tests"), again.of("lints")), (Some(620), Some(7)));
    }
}
