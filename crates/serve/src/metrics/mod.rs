//! Counters for a server's operators, and the formats of their output.
//!
//! Each worker has a row in memory that all workers share, so any worker can respond for all. A row outlives its
//! worker: the worker that replaces a dead one continues its counts.
//!
//! Reading order: `table` (the rows), `histogram`, `clients` and `slowest` (parts of a row), `adding` (their growth).
//! Then `snapshot` (all rows at one moment), `prometheus` and `json` (the output).

mod adding;
mod clients;
mod histogram;
mod json;
pub(crate) mod observed;
mod prometheus;
mod slowest;
mod snapshot;
mod table;

pub(crate) use prometheus::MEDIA_TYPE;
pub(crate) use slowest::TARGET_BYTES;
pub(crate) use snapshot::{CurrentLoad, Snapshot};
pub(crate) use table::{EndedRequest, MetricsTable};
pub use table::{Time, WorkerMetrics};
