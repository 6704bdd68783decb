//! A shared cache for HTTP responses (RFC 9111).
//!
//! Reading order:
//!
//! 1. [`directives`]: `Cache-Control` of requests and responses. [`policy`]: which responses may be stored, and for how
//!    long each is fresh. [`reuse`]: whether a stored response answers a request. [`conditions`]: `If-None-Match` and
//!    its relatives. All of these are pure.
//! 2. [`key`]: the name under which a response is stored, and `Vary`.
//! 3. [`record`]: a response as bytes. `ring` and `index`: the shared memory of records, and the table that finds them.
//!    [`store`]: both together, with invalidation.
//! 4. [`flights`]: the requests that are asking the application for a response. [`counters`]: the figures for metrics.
#![forbid(unsafe_code)]

pub mod conditions;
pub mod counters;
pub mod directives;
pub mod flights;
mod index;
pub mod key;
pub mod policy;
pub mod record;
pub mod reuse;
mod ring;
pub mod store;

pub use counters::{Counter, Totals};
pub use key::Key;
pub use policy::{Freshness, Refusal};
pub use record::StoredResponse;
pub use store::{Limits, Store};
