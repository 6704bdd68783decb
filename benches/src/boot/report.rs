//! The cost of one boot.

/// The measurements of one boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report {
    pub(super) wall_ms: f64,
    /// None if the program leaves no report.
    pub(super) usage: Option<Usage>,
}

/// The resources used by a program until the end of its last line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// Processor time in the program.
    pub(super) user_ms: f64,
    /// Processor time in the kernel.
    pub(super) system_ms: f64,
    /// Memory including shared pages.
    pub(super) resident_mb: f64,
}

impl Usage {
    /// Processor time in all.
    pub(super) fn processor_ms(&self) -> f64 {
        self.user_ms + self.system_ms
    }

    /// Parses the output of `benches/boot/report.rb`: seconds, seconds and KiB.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|word| word.parse::<f64>().ok());
        let (user, system, resident) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some(Self {
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
        let usage = Usage::read("0.25 0.5 1000\n").unwrap();
        assert_eq!((usage.user_ms, usage.system_ms), (250.0, 500.0));
        assert!((usage.resident_mb - 1.024).abs() < 1e-9);
        assert!(Usage::read("0.25 0.5").is_none());
    }
}
