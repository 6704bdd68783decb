//! A rate-limited log of failures that no response reports.

use std::io;

use crate::Error;

/// The time after a warning during which the same warning is dropped.
const QUIET_MS: u64 = 10_000;

/// Warnings for the log.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    pending: Vec<Error>,
    /// The failed operations, with the time at which each was last logged.
    said: Vec<(&'static str, u64)>,
}

impl Warnings {
    /// Records a failure; `doing` completes "cannot …".
    pub(crate) fn note(&mut self, now_ms: u64, doing: &'static str, source: impl Into<io::Error>) {
        if let Some((_, said_ms)) = self.said.iter_mut().find(|(said, _)| *said == doing) {
            if now_ms < *said_ms + QUIET_MS {
                return;
            }
            *said_ms = now_ms;
        } else {
            self.said.push((doing, now_ms));
        }
        self.pending.push(Error::system(doing, source));
    }

    /// Whether unlogged warnings are left.
    pub(crate) fn has_some(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Removes a warning, and returns the warning.
    pub(crate) fn take(&mut self) -> Option<Error> {
        self.pending.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn the_same_warning_comes_once_in_a_while() {
        let mut warnings = Warnings::default();
        let mut note = |now_ms, doing| {
            warnings.note(now_ms, doing, Errno::NOSPC);
            std::iter::from_fn(|| warnings.take()).map(|error| error.to_string()).collect()
        };
        let said: Vec<String> = note(5, "keep a body");
        assert_eq!(said, ["cannot keep a body: No space left on device (os error 28)"]);
        let said: Vec<String> = note(5 + QUIET_MS - 1, "keep a body");
        assert!(said.is_empty(), "{said:?}");
        assert_eq!(note(6, "accept a connection").len(), 1, "another warning");
        assert_eq!(note(5 + QUIET_MS, "keep a body").len(), 1);
    }
}
