//! What all advice is drawn from.

use crate::analysis::disk::Disk;
use crate::analysis::kind::SearchKind;
use crate::analysis::report::{Report, SearchPath};
use crate::analysis::tally::Analysis;

/// What advice is drawn from.
pub(super) struct Context<'a> {
    pub(super) analysis: &'a Analysis,
    pub(super) report: &'a Report,
    pub(super) disk: &'a dyn Disk,
    /// Whether the command, or something that it started, went to another folder: relative names
    /// in options may then be relative to any.
    pub(super) has_moved: bool,
}

/// Advice that saves less is not worth a line.
pub(super) const SAVES_MIN: u64 = 10;

impl Context<'_> {
    /// A folder as names are kept: absolute, `..` left as it is, since what is before it may be a
    /// link. `None`: what it is relative to is unknown.
    pub(super) fn absolute(&self, folder: &str, has_moved: bool) -> Option<Vec<u8>> {
        let base = if folder.starts_with('/') {
            ""
        } else if has_moved {
            return None;
        } else {
            &self.analysis.header.folder
        };
        let components = base.split('/').chain(folder.split('/'));
        let components = components.filter(|component| !matches!(*component, "" | "."));
        Some(components.flat_map(|component| ["/", component]).collect::<String>().into_bytes())
    }
}

pub(super) fn search(report: &Report, kind: SearchKind) -> Option<&SearchPath> {
    report.searches.iter().find(|search| search.kind == kind)
}
