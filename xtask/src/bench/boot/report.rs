//! What boots took, contender by contender.

use super::contender::{Contender, Way};
use crate::bench::measure::Series;

/// One boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report {
    pub(super) wall_ms: f64,
    /// Processor time in the program, until its last line has run.
    pub(super) user_ms: f64,
    /// Processor time in the kernel, as long.
    pub(super) system_ms: f64,
    /// Memory that is in use when the last line has run, shared pages included.
    pub(super) resident_mb: f64,
}

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

impl Report {
    /// `benches/boot/report.rb` writes seconds, seconds and KiB.
    pub(super) fn read(wall_ms: f64, text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|word| word.parse::<f64>().ok());
        let (user, system, resident) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some(Self {
            wall_ms,
            user_ms: user * 1000.0,
            system_ms: system * 1000.0,
            resident_mb: resident * 1024.0 / 1e6,
        })
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_ruby_writes_it() {
        let report = Report::read(5.0, "0.25 0.5 1000\n").unwrap();
        assert_eq!((report.wall_ms, report.user_ms, report.system_ms), (5.0, 250.0, 500.0));
        assert!((report.resident_mb - 1.024).abs() < 1e-9);
        assert!(Report::read(5.0, "0.25 0.5").is_none());
    }
}
