//! The reasons why commands of a key booted instead of being forked, for reports.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::template_folder::{KeyFile, TemplateFolder};
use crate::wire;

/// The number of reasons kept for a key; older ones are dropped.
pub const REASONS_MAX: usize = 5;

/// The commands of a key that booted instead of being forked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// The words of the command.
    pub command: String,
    /// The working directory of the command.
    pub folder: String,
    /// The number of commands that booted.
    pub count: u64,
    /// The latest [`REASONS_MAX`] reasons, oldest first.
    pub misses: Vec<Miss>,
}

/// A command that booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// The time, in seconds since 1970.
    pub at: u64,
    /// The reason, as a clause.
    pub reason: String,
}

impl Miss {
    /// Creates a miss at the current time.
    #[must_use]
    pub fn now(reason: &str) -> Self {
        Self { at: seconds_now(), reason: reason.to_owned() }
    }

    /// Returns the time since the miss.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::from_secs(seconds_now().saturating_sub(self.at))
    }
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl History {
    /// Reads the history of a key; `None` if every command was forked.
    #[must_use]
    pub fn of(place: &TemplateFolder, key: u128) -> Option<Self> {
        Self::decoded(&place.read(key, KeyFile::History)?)
    }

    /// Adds a miss and writes the history. Of two processes that do so at the same time one may overwrite the
    /// other's miss, which a report can afford.
    pub fn add(mut self, place: &TemplateFolder, key: u128, miss: Miss) {
        self.count += 1;
        self.misses.push(miss);
        let surplus = self.misses.len().saturating_sub(REASONS_MAX);
        self.misses.drain(..surplus);
        // A failed write costs only a line of a report.
        let _ = place.write(key, KeyFile::History, &self.encoded());
    }

    fn encoded(&self) -> Vec<u8> {
        let head = [self.command.clone(), self.folder.clone(), self.count.to_string()];
        let misses = self.misses.iter().flat_map(|one| [one.at.to_string(), one.reason.clone()]);
        wire::encoded(&head.into_iter().chain(misses).map(String::into_bytes).collect::<Vec<_>>())
    }

    fn decoded(bytes: &[u8]) -> Option<Self> {
        let fields = wire::decoded(bytes)?.into_iter().map(String::from_utf8);
        let fields: Vec<_> = fields.collect::<Result<_, _>>().ok()?;
        let [command, folder, count, misses @ ..] = &fields[..] else { return None };
        let miss = |pair: &[String]| {
            Some(Miss { at: pair[0].parse().ok()?, reason: pair.get(1)?.clone() })
        };
        Some(Self {
            command: command.clone(),
            folder: folder.clone(),
            count: count.parse().ok()?,
            misses: misses.chunks(2).map(miss).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reasons_are_kept_and_all_are_counted() {
        let above = tempfile::tempdir().unwrap();
        let place = TemplateFolder::at(&above.path().join("a/b")).unwrap();
        assert_eq!(History::of(&place, 1), None);
        for number in 0..7 {
            let history = History::of(&place, 1).unwrap_or_else(|| History {
                command: "rake".to_owned(),
                folder: "/app".to_owned(),
                ..History::default()
            });
            history.add(&place, 1, Miss::now(&number.to_string()));
        }
        let history = History::of(&place, 1).unwrap();
        assert_eq!((history.command.as_str(), history.count), ("rake", 7));
        let reasons: Vec<_> = history.misses.iter().map(|miss| miss.reason.as_str()).collect();
        assert_eq!(reasons, ["2", "3", "4", "5", "6"]);
        place.write(1, KeyFile::History, b"1").unwrap();
        assert_eq!(History::of(&place, 1), None);
    }
}
