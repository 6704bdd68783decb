//! Why commands of a key were no forks: for reports.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::place::{Part, Place};
use crate::wire;

/// The last reasons are kept.
pub const REASONS_MAX: usize = 5;

/// What is known of a key's commands that were booted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// The command's words.
    pub command: String,
    /// The folder that it was run in.
    pub folder: String,
    /// How many were booted.
    pub count: u64,
    /// The last reasons, the last one last.
    pub misses: Vec<Miss>,
}

/// One command that was booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// In seconds since 1970.
    pub at: u64,
    /// Why.
    pub reason: String,
}

impl Miss {
    /// Now, for that reason.
    #[must_use]
    pub fn now(reason: &str) -> Self {
        Self { at: seconds_now(), reason: reason.to_owned() }
    }

    /// How long ago it was.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::from_secs(seconds_now().saturating_sub(self.at))
    }
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl History {
    /// Of a key; `None` if all its commands were forks.
    #[must_use]
    pub fn of(place: &Place, key: u128) -> Option<Self> {
        Self::decoded(&place.read(key, Part::History)?)
    }

    /// With one more. Of two at once one may be lost: it is a report.
    pub fn add(mut self, place: &Place, key: u128, miss: Miss) {
        self.count += 1;
        self.misses.push(miss);
        let surplus = self.misses.len().saturating_sub(REASONS_MAX);
        self.misses.drain(..surplus);
        // Without it a report says less, and nothing else.
        let _ = place.write(key, Part::History, &self.encoded());
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
        let place = Place::at(&above.path().join("a/b")).unwrap();
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
        place.write(1, Part::History, b"1").unwrap();
        assert_eq!(History::of(&place, 1), None);
    }
}
