//! What one boot took.

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
