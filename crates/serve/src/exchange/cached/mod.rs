//! Responses from the cache, and responses on their way into the cache.
//!
//! Reading order:
//!
//! 1. `lookup`: a request whose head is complete gets a stored response, without a handler.
//! 2. `departure`: a request on its way to a handler leads, waits for another request, or validates a stored response.
//! 3. `capture`: a handler's response on its way to the client is stored, or is replaced by a stored response.
//! 4. `reply`: the head and the body of a stored response for a single client. `request`: the properties of a request
//!    that concern the cache.

pub(crate) mod capture;
pub(crate) mod departure;
pub(crate) mod lookup;
pub(crate) mod reply;
pub(crate) mod request;
