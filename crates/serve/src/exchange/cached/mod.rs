//! Responses from the cache, and responses on their way into it.
//!
//! Reading order:
//!
//! 1. `lookup`: a request whose head is whole gets a stored response, without a handler.
//! 2. `departure`: a request that a handler is to have. It leads, waits for another one, or validates what is stored.
//! 3. `capture`: a response of a handler on its way to its client is stored, or is replaced by a stored one.
//! 4. `reply`: the head and the body of a stored response for one client. `request`: a request as the cache sees it.

pub(crate) mod capture;
pub(crate) mod departure;
pub(crate) mod lookup;
pub(crate) mod reply;
pub(crate) mod request;
