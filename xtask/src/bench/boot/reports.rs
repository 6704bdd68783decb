//! What boots took, contender by contender.

use super::contender::{Contender, Way};
use super::report::Report;
use crate::bench::measure::Series;

/// All boots of one contender.
#[derive(Debug)]
pub(super) struct Reported {
    contender: Contender,
    reports: Vec<Report>,
    /// How many calls of one boot name a file.
    pub(super) calls: u64,
}

/// All contenders of one table.
#[derive(Debug, Default)]
pub(super) struct Reports(Vec<Reported>);

impl Reported {
    pub(super) fn name(&self) -> &'static str {
        self.contender.name
    }

    pub(super) fn series(&self, of: impl Fn(&Report) -> f64) -> Series {
        Series::new(self.name(), self.reports.iter().map(of).collect())
    }
}

impl Reports {
    pub(super) fn push(&mut self, contender: Contender, reports: Vec<Report>, calls: u64) {
        self.0.push(Reported { contender, reports, calls });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Reported> {
        self.0.iter()
    }

    /// The median of one way, if it was measured.
    pub(super) fn median(&self, way: Way, of: impl Fn(&Report) -> f64) -> Option<f64> {
        self.of(way).map(|reported| reported.series(of).median())
    }

    /// One way's median as a share of another's.
    pub(super) fn ratio(&self, one: Way, other: Way, of: fn(&Report) -> f64) -> Option<f64> {
        Some(self.median(one, of)? / self.median(other, of)?)
    }

    pub(super) fn calls(&self, way: Way) -> Option<f64> {
        self.of(way).map(|reported| reported.calls as f64)
    }

    fn of(&self, way: Way) -> Option<&Reported> {
        self.iter().find(|reported| reported.contender.way == way)
    }
}
