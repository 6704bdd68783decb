//! The report on a name's certificate, which an ACME agent writes for the workers of its servers.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use crate::AcmeFolder;

/// The size of a report in bytes. A file keeps its blocks when it is overwritten, so that a full disk does not keep an
/// agent from reporting that the disk is full.
const REPORT_BYTES: usize = 4096;

/// The maximum length of an error in a report, in bytes.
const ERROR_BYTES_MAX: usize = 2048;

/// Nobody but the user of the agent and of the workers may read a report.
const FILE_MODE: u32 = 0o600;

/// The error in place of a report that is missing.
const MISSING: &str = "the agent for certificates has written no report";

/// The state of a name's certificate, as known to the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateReport {
    /// The name.
    pub name: String,
    /// The end of the certificate's validity in seconds since 1970, if there is a certificate.
    pub not_after_s: Option<u64>,
    /// The time of the renewal or of the next attempt, in seconds since 1970; 0 if it is due at once.
    pub due_s: u64,
    /// The number of failures since the last success.
    pub failures: u32,
    /// The last failure, if nothing has succeeded since.
    pub last_error: Option<String>,
}

impl CertificateReport {
    /// Formats the report: a line for each figure behind a line with their checksum, and spaces up to the fixed size.
    fn to_text(&self) -> String {
        let not_after = self.not_after_s.map_or_else(|| "none".to_owned(), |time| time.to_string());
        let mut body = format!("{not_after}\n{}\n{}\n", self.due_s, self.failures);
        if let Some(error) = &self.last_error {
            let end = error.floor_char_boundary(ERROR_BYTES_MAX);
            body.extend(error[..end].chars().map(|c| if c.is_control() { ' ' } else { c }));
        }
        let mut text = format!("{:016x} {}\n{body}", checksum(body.as_bytes()), body.len());
        let padding = REPORT_BYTES.saturating_sub(text.len());
        // To write into a String cannot fail.
        let _ = write!(text, "{:padding$}", "");
        text
    }

    /// Parses a report. Returns `None` if the text is not a report, or was read while the agent overwrote it.
    fn from_text(name: &str, text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('\n')?;
        let (sum, length) = first.split_once(' ')?;
        let body = rest.get(..length.parse().ok()?)?;
        (u64::from_str_radix(sum, 16).ok()? == checksum(body.as_bytes())).then_some(())?;
        let mut lines = body.splitn(4, '\n');
        let not_after_s = match lines.next()? {
            "none" => None,
            time => Some(time.parse().ok()?),
        };
        let (due_s, failures) = (lines.next()?.parse().ok()?, lines.next()?.parse().ok()?);
        let last_error = lines.next().filter(|error| !error.is_empty()).map(str::to_owned);
        Some(Self { name: name.to_owned(), not_after_s, due_s, failures, last_error })
    }
}

impl AcmeFolder {
    /// Returns the report on a name. If there is none, the report says so as its error.
    #[must_use]
    pub fn report(&self, name: &str) -> CertificateReport {
        let read = || {
            let file = File::open(self.report_path(name)).ok()?;
            let mut text = String::new();
            file.take(REPORT_BYTES as u64).read_to_string(&mut text).ok()?;
            CertificateReport::from_text(name, &text)
        };
        // The first attempt may have read the file while the agent overwrote it.
        read().or_else(read).unwrap_or_else(|| CertificateReport {
            name: name.to_owned(),
            last_error: Some(MISSING.to_owned()),
            ..CertificateReport::default()
        })
    }

    /// Writes a report, in place of the name's previous report if there is one.
    ///
    /// # Errors
    /// The file cannot be made, or cannot be written to.
    pub fn write_report(&self, report: &CertificateReport) -> io::Result<()> {
        let path = self.report_path(&report.name);
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false).mode(FILE_MODE);
        options.open(path)?.write_all(report.to_text().as_bytes())
    }
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_and_never_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let folder = AcmeFolder::new(folder.path().to_owned());
        std::fs::create_dir(folder.reports()).unwrap();
        let missing = folder.report("a.example");
        assert_eq!((missing.last_error.as_deref(), missing.not_after_s), (Some(MISSING), None));
        let long = "é".repeat(ERROR_BYTES_MAX);
        for (not_after_s, last_error) in
            [(Some(7), Some("it failed")), (None, None), (Some(u64::MAX), Some(&*long))]
        {
            let report = CertificateReport {
                name: "a.example".to_owned(),
                not_after_s,
                due_s: 5,
                failures: 3,
                last_error: last_error.map(str::to_owned),
            };
            folder.write_report(&report).unwrap();
            let read = folder.report("a.example");
            assert_eq!((read.not_after_s, read.due_s, read.failures), (not_after_s, 5, 3));
            let shown = last_error.map(|error| &error[..error.len().min(ERROR_BYTES_MAX)]);
            assert_eq!(read.last_error.as_deref(), shown);
            let text = report.to_text();
            assert_eq!(text.len(), REPORT_BYTES);
            let torn = format!("{}{}", &text[..20], "9".repeat(REPORT_BYTES - 20));
            assert_eq!(CertificateReport::from_text("a.example", &torn), None);
        }
        let lines = CertificateReport {
            last_error: Some("one\ntwo".to_owned()),
            ..CertificateReport::default()
        };
        let read = CertificateReport::from_text("", &lines.to_text()).unwrap();
        assert_eq!(read.last_error.as_deref(), Some("one two"));
    }
}
