//! What was asked, what of it was wasted, and why. It is counted as events come, so a recording of
//! any length takes as much memory as it has different names.
//!
//! Reading order:
//!
//! 1. [`names`]: what was asked of each name.
//! 2. `search` and `kind`: which folders were searched, and by which programs.
//! 3. [`report`]: what all that comes to.
//! 4. `advice`: what would fix it.

mod advice;
mod comparison;
mod disk;
mod elf;
mod kind;
mod maps;
mod names;
mod options;
mod report;
mod search;
mod selection;
mod tally;
mod text;
mod timeline;

pub use comparison::{Change, Comparison};
pub use disk::{Disk, Listing, LocalDisk};
pub use kind::SearchKind;
pub use names::{Counts, Name, Names};
pub use report::{
    Advice, CallCount, Cut, Folder, Program, Repeated, Report, SearchPath, SearchedFolder, Suffix,
    Totals,
};
pub use selection::Selection;
pub use tally::Analysis;
pub use text::shell_line;
pub use timeline::Bucket;
