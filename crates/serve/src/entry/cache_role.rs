//! The role that a request has for the cache of responses while its handler works on it.

use thruway_cache::flights::Flight;
use thruway_cache::policy::{Freshness, RequestFacts};
use thruway_cache::store::Moment;
use thruway_cache::{Key, StoredResponse};
use thruway_http1::response::ResponseConstraints;

/// The role of a request.
#[derive(Debug)]
pub(crate) enum CacheRole {
    /// Its response may be stored.
    Fill(Box<Fill>),
    /// It may change the page, which is invalidated unless the response is an error.
    Change(Box<Key>),
    /// It goes on for a request that has its response already, and others wait for it.
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
    /// Whether the request asks for a whole response and has no conditions of its own, as every other one could.
    pub(crate) is_plain: bool,
    /// Others wait for the response until this is dropped.
    #[expect(dead_code, reason = "it is a guard: its end is its use")]
    pub(crate) flight: Option<Flight>,
    /// The stored response that the request validates, and whether it may be used after an error.
    pub(crate) stale: Option<Stale>,
    /// The response, once its head is known and while its body comes in pieces.
    pub(crate) gathered: Option<PartialResponse>,
}

/// A stored response that is not used without the application's word.
#[derive(Debug)]
pub(crate) struct Stale {
    pub(crate) response: StoredResponse,
    pub(crate) stale_if_error: bool,
}

/// A response whose body comes in pieces.
#[derive(Debug)]
pub(crate) struct PartialResponse {
    pub(crate) status: u16,
    pub(crate) lines: Vec<u8>,
    pub(crate) freshness: Freshness,
    pub(crate) body: Vec<u8>,
}
