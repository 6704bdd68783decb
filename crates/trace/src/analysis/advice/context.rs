//! The input of all advice.

use crate::analysis::disk::Disk;
use crate::analysis::kind::SearchKind;
use crate::analysis::report::{Report, SearchPath};
use crate::analysis::tally::Analysis;

/// The input of all advice.
pub(super) struct Context<'a> {
    pub(super) analysis: &'a Analysis,
    pub(super) report: &'a Report,
    pub(super) disk: &'a dyn Disk,
    /// Whether a process has changed its working directory, so that relative folders in options are
    /// ambiguous.
    pub(super) has_moved: bool,
}

/// Advice that saves fewer look-ups is left out.
pub(super) const SAVES_MIN: u64 = 10;

impl Context<'_> {
    /// Returns a folder as an absolute path, in the form that names are kept. `..` stays, because the
    /// component before it may be a link. `None` if the base of a relative folder is unknown.
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
