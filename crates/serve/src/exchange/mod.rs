//! A request and its response, from the first byte read to the last byte sent.
//!
//! Reading order:
//!
//! 1. `reading`: a turn reads a head or a piece of a body, and hands a complete request to its handler.
//! 2. `handler`: the `Handler` trait and the `Exchange` through which a handler responds. `response` writes responses.
//! 3. `handshake`, `proxy_head`: the bytes before a connection's first request.
//! 4. `fairness`, `admission`, `request_start`: whether a complete request is served now, waits, or is refused.
//! 5. `closing`: the end of a connection whose deadline has expired or whose client has broken a rule.
//! 6. `http2`, `upgraded`: reading and writing for streams of HTTP/2, and for WebSockets and server-sent events.
//! 7. `secure_site`: challenges of an ACME authority, and redirects to HTTPS.
//! 8. `cached`: responses from the cache, and into the cache.
//! 9. `counting`: counts requests. `observer`: the responses on listeners for metrics.

pub(crate) mod admission;
pub(crate) mod cached;
pub(crate) mod closing;
pub(crate) mod counting;
pub(crate) mod fairness;
pub(crate) mod handler;
pub(crate) mod handshake;
pub(crate) mod http2;
pub(crate) mod observer;
pub(crate) mod own_response;
pub(crate) mod proxy_head;
pub(crate) mod reading;
pub(crate) mod request_start;
pub(crate) mod response;
pub(crate) mod secure_site;
pub(crate) mod upgraded;
