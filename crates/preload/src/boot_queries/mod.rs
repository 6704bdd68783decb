//! The file system queries of a boot, and whether the answers would be the same now.
//!
//! A query is logged before the boot makes it, so the logged state is never newer than the answer that the
//! boot received. Queries for existence compare type and permissions, queries for times, sizes or content
//! compare the whole stamp, and queries for a folder's entries compare the names. A lock file of Bundler whose
//! stamp differs still has the same content where the digests are equal.
//!
//! Reading order: `observation` has the state of a path, `query_log` notes the states that a boot meets, and `checks`
//! looks whether they still hold.

mod checks;
mod observation;
mod query_log;
#[cfg(test)]
mod tests;

pub use checks::BootQueries;
pub use query_log::{QueryLog, Question};
