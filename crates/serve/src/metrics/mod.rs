//! Counters for a server's operators, and the formats in which they are written.
//!
//! Each worker has a row in memory that all workers share, so that any of them can respond for all. A row outlives
//! its worker: what replaces a dead worker goes on counting where that stopped.
//!
//! Reading order: `table` (the rows), `histogram`, `clients` and `slowest` (parts of a row), `adding` (how they grow).
//! Then `snapshot` (all rows at one moment), `prometheus` and `json` (how it is written).

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
pub(crate) use snapshot::{Present, Snapshot};
pub(crate) use table::{EndedRequest, MetricsTable};
pub use table::{Time, WorkerMetrics};
