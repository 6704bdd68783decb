//! The times of boots, by contender.

use super::contender::{Contender, Way};
use super::report::{Report, Usage};
use crate::measure::Series;

/// All boots of one contender.
#[derive(Debug)]
pub(super) struct ContenderReports {
    contender: Contender,
    reports: Vec<Report>,
    /// The number of calls in one boot that name a file, if known.
    pub(super) calls: Option<u64>,
}

/// All contenders of one table.
#[derive(Debug, Default)]
pub(super) struct Reports(Vec<ContenderReports>);

impl ContenderReports {
    pub(super) fn name(&self) -> &'static str {
        self.contender.name
    }

    pub(super) fn way(&self) -> Way {
        self.contender.way
    }

    pub(super) fn wall_ms(&self) -> Series {
        Series::new(self.name(), self.reports.iter().map(|report| report.wall_ms).collect())
    }

    /// The median of a resource over all boots; none if the boots left no reports.
    pub(super) fn usage(&self, of: fn(&Usage) -> f64) -> Option<f64> {
        let used: Option<Vec<_>> =
            self.reports.iter().map(|report| report.usage.as_ref().map(of)).collect();
        Some(Series::new(self.name(), used?).median())
    }
}

impl Reports {
    pub(super) fn push(&mut self, contender: Contender, reports: Vec<Report>, calls: Option<u64>) {
        self.0.push(ContenderReports { contender, reports, calls });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ContenderReports> {
        self.0.iter()
    }

    /// The ratio of the median wall times of two ways, if both were measured.
    pub(super) fn wall_ratio(&self, one: Way, other: Way) -> Option<f64> {
        Some(self.of(one)?.wall_ms().median() / self.of(other)?.wall_ms().median())
    }

    /// The ratio of the median uses of a resource by two ways, if both were measured.
    pub(super) fn usage_ratio(&self, one: Way, other: Way, of: fn(&Usage) -> f64) -> Option<f64> {
        Some(self.of(one)?.usage(of)? / self.of(other)?.usage(of)?)
    }

    pub(super) fn calls(&self, way: Way) -> Option<f64> {
        Some(self.of(way)?.calls? as f64)
    }

    fn of(&self, way: Way) -> Option<&ContenderReports> {
        self.iter().find(|reported| reported.contender.way == way)
    }
}
