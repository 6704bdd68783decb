//! `thruway mount` against the folder itself, overlayfs, mergerfs and libfuse's passthrough_hp.
//!
//! All of them show folders of one ext4 that lies in memory, so that what is measured is the way to
//! the data and not a disk.

pub(super) mod calls;
pub(super) mod data;
mod ground;
pub(super) mod memory;
pub(super) mod tree;
pub(super) mod union;
mod view;

use super::measure::Series;

/// A median with its spread.
fn cell(series: &Series) -> String {
    let (median, spread) = (series.median(), series.spread() * 100.0);
    let digits = if median < 10.0 { 2 } else { usize::from(median < 100.0) };
    format!("{median:.digits$} ± {spread:.0} %")
}
