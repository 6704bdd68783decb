//! Analyses a recording: which look-ups there were, which were wasted, and why. Events are counted as they
//! arrive, so memory grows only with the number of different names.
//!
//! Reading order:
//!
//! 1. [`names`]: counts the look-ups of each name.
//! 2. `search` and `kind`: detect which folders were searched, and by which programs.
//! 3. [`report`]: the results.
//! 4. `advice`: the changes that would avoid wasted look-ups.

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
mod stacks;
mod tally;
mod text;
mod timeline;

pub use comparison::{Comparison, CountChange};
pub use disk::{Disk, Listing, LocalDisk};
pub use kind::SearchKind;
pub use names::{Counts, Name, Names};
pub use report::{
    AbsentCommand, Advice, AdviceForm, CallCount, Cut, Folder, Program, RepeatedName, Report,
    SearchPath, SearchedFolder, Suffix, Totals,
};
pub use selection::Selection;
pub use stacks::StackCount;
pub use tally::Analysis;
pub use text::shell_line;
pub use timeline::Bucket;
