//! The reasons of failures, as the system or the peer gives them.

use std::collections::BTreeMap;

use crate::tally::FailureKind;

/// The most different reasons that are counted. A server can invent any number of them.
const REASONS_MAX: usize = 64;

/// How often each reason was given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failures {
    counts: BTreeMap<(&'static str, String), u64>,
    /// The last reason why no connection was made, and the last failure of TLS.
    connect: Option<String>,
    tls: Option<String>,
}

impl Failures {
    /// Counts a failure.
    pub(crate) fn count(&mut self, failure: FailureKind, reason: String) {
        match failure {
            FailureKind::Connect => self.connect = Some(reason.clone()),
            FailureKind::Tls => self.tls = Some(reason.clone()),
            _ => {}
        }
        self.add((failure.name(), reason), 1);
    }

    fn add(&mut self, reason: (&'static str, String), count: u64) {
        if self.counts.len() < REASONS_MAX || self.counts.contains_key(&reason) {
            *self.counts.entry(reason).or_default() += count;
        }
    }

    /// Adds the failures of another thread.
    pub(crate) fn merge(&mut self, other: Self) {
        other.counts.into_iter().for_each(|(reason, count)| self.add(reason, count));
        self.connect = self.connect.take().or(other.connect);
        self.tls = self.tls.take().or(other.tls);
    }

    /// Returns each reason: the name of the kind of failure, the reason and its count.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &str, u64)> {
        self.counts.iter().map(|((name, reason), count)| (*name, reason.as_str(), *count))
    }

    pub(crate) fn connect(&self) -> Option<&str> {
        self.connect.as_deref()
    }

    pub(crate) fn tls(&self) -> Option<&str> {
        self.tls.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_up_to_a_limit() {
        let mut failures = Failures::default();
        failures.count(FailureKind::Reset, "gone".to_owned());
        (0..100).for_each(|number| failures.count(FailureKind::Tls, number.to_string()));
        let mut both = failures.clone();
        both.merge(failures);
        assert_eq!(both.iter().count(), REASONS_MAX);
        assert!(both.iter().any(|reason| reason == ("reset", "gone", 2)));
        assert_eq!((both.connect(), both.tls()), (None, Some("99")));
    }
}
