//! The role of a request for the response cache while its handler works.

use thruway_cache::flights::Flight;
use thruway_cache::policy::{Freshness, RequestFacts};
use thruway_cache::store::Moment;
use thruway_cache::{Key, StoredResponse};
use thruway_http1::response::ResponseConstraints;

/// The role of a request for the response cache.
#[derive(Debug)]
pub(crate) enum CacheRole {
    /// The response may be stored.
    Fill(Box<Fill>),
    /// The request may change the resource: the stored responses are invalidated unless the response is an error.
    Change(Box<Key>),
    /// The request renews a stored response while clients use the stale one. Other requests wait for the flight.
    Reserved(Box<Flight>),
}

/// A response that may be stored.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) key: Key,
    pub(crate) facts: RequestFacts,
    /// The fields of the request, for `Vary` and for conditions.
    pub(crate) lines: Vec<u8>,
    /// Why the request goes to the application (RFC 9211, section 2.2).
    pub(crate) forwarded_for: &'static str,
    pub(crate) constraints: ResponseConstraints,
    pub(crate) moment: Moment,
    pub(crate) tag: u64,
    /// Whether any other client could have sent the request: it asks for a whole response and has no conditions.
    pub(crate) is_plain: bool,
    /// The flight that other requests wait for, until the guard is dropped.
    #[expect(dead_code, reason = "it is a guard: its end is its use")]
    pub(crate) flight: Option<Flight>,
    /// The stored response that the request validates, and whether it may be used after an error.
    pub(crate) stale: Option<Stale>,
    /// The response, once its head is known and while its body comes in pieces.
    pub(crate) gathered: Option<PartialResponse>,
}

/// A stored response that may not be used before the application has validated it.
#[derive(Debug)]
pub(crate) struct Stale {
    pub(crate) response: StoredResponse,
    pub(crate) stale_if_error: bool,
}

/// A response whose body arrives in pieces.
#[derive(Debug)]
pub(crate) struct PartialResponse {
    pub(crate) status: u16,
    pub(crate) lines: Vec<u8>,
    pub(crate) freshness: Freshness,
    pub(crate) body: Vec<u8>,
}
