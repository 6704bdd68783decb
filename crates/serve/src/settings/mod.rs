//! The settings of a server, with the defaults and their reasons.
//!
//! Reading order: this file, then `client_source` (the source of a client's address) and `fair_by` (the unit that takes
//! turns).

pub(crate) mod client_source;
pub(crate) mod fair_by;

use thruway_http1::{Limits, Request};
use thruway_websocket as websocket;

use crate::listen::listener::Peer;
use crate::listen::trust::Trust;
use crate::settings::client_source::ClientSource;
use crate::settings::fair_by::FairBy;

/// The times that the engine waits for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// From the connection to the end of its TLS handshake.
    pub handshake_ms: u64,
    /// From the connection, or its handshake, to the first byte.
    pub first_byte_ms: u64,
    /// From a head's first byte to its last, however many bytes arrive in between.
    pub head_ms: u64,
    /// Between two pieces of a body.
    pub body_ms: u64,
    /// From a response to the next request's first byte.
    pub keep_alive_ms: u64,
    /// The time within which a client has to take some of a response.
    pub write_ms: u64,
    /// From a whole request to its response; none is no limit.
    pub request_ms: Option<u64>,
}

impl Default for Timeouts {
    /// The limits of the first byte and the head are Puma's defaults; those of the body, keep-alive and write are
    /// nginx's. A handshake takes two round trips, so 10 s are ample.
    fn default() -> Self {
        Self {
            handshake_ms: 10_000,
            first_byte_ms: 30_000,
            head_ms: 30_000,
            body_ms: 60_000,
            keep_alive_ms: 75_000,
            write_ms: 60_000,
            request_ms: None,
        }
    }
}

/// The settings of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The limits of one request.
    pub limits: Limits,
    /// The times that the engine waits for a client.
    pub timeouts: Timeouts,
    /// The maximum number of open connections; further ones wait in the listener's queue.
    pub connections_max: usize,
    /// The maximum number of handshakes that wait for their clients; a further one ends the oldest.
    pub handshakes_max: usize,
    /// The maximum number of bytes of a request's body in memory; a longer body goes to a file.
    pub body_memory_bytes_max: usize,
    /// The maximum number of bytes in memory that wait to be sent, for a response that is written in pieces; more go to
    /// a file.
    pub response_memory_bytes_max: usize,
    /// The maximum number of such bytes for all responses together.
    pub worker_memory_bytes_max: usize,
    /// The maximum number of bytes of a response that wait in a file; beyond that, the writer waits. Zero: no files.
    pub response_file_bytes_max: u64,
    /// The minimum rate of a client, on average over `write_ms`; a slower client is cut off.
    pub write_bytes_per_second_min: u64,
    /// The limits of an incoming WebSocket message.
    pub socket_limits: websocket::Limits,
    /// The time without a byte from the client of a WebSocket after which the server sends a ping; after twice the time
    /// the client is cut off. Event streams get a comment at the same interval. Zero: never.
    pub socket_ping_ms: u64,
    /// The unit that takes turns as a client.
    pub fair_by: FairBy,
    /// The source of a client's address.
    pub client_source: ClientSource,
    /// The addresses that are trusted as proxies.
    pub trust: Trust,
    /// The wait after which a request gets 503.
    pub queue_ms: Option<u64>,
    /// A path at which the server itself reports whether it responds.
    pub health_path: Option<Vec<u8>>,
    /// Whether clients may speak HTTP/2: by ALPN over TLS, otherwise by its preface.
    pub has_http2: bool,
    /// Whether clients may open WebSockets as HTTP/2 streams (RFC 8441). Such a stream has no socket that an owner
    /// could take.
    pub has_http2_sockets: bool,
    /// The limits of one HTTP/2 connection.
    pub http2_limits: thruway_http2::Limits,
    /// Whether requests are counted for metrics.
    pub counts: bool,
    /// The index of the first listener for metrics; all later ones are for metrics, too.
    pub metrics_listener: Option<usize>,
    /// Whether there is a live page for people beside the metrics.
    pub has_status_page: bool,
    /// The limits of an engine's own response cache. Workers of a group share the group's cache.
    pub cache: Option<thruway_cache::Limits>,
}

impl Default for Settings {
    /// Puma's size for a body in memory, and nginx's for a response in a file; as many connections as the system's
    /// limit on descriptors allows.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            connections_max: connections_max(),
            handshakes_max: HANDSHAKES_MAX,
            body_memory_bytes_max: 112 << 10,
            response_memory_bytes_max: 4 << 20,
            worker_memory_bytes_max: 64 << 20,
            response_file_bytes_max: 1 << 30,
            write_bytes_per_second_min: 256,
            socket_limits: websocket::Limits::default(),
            socket_ping_ms: 30_000,
            fair_by: FairBy::default(),
            client_source: ClientSource::default(),
            trust: Trust::default(),
            queue_ms: None,
            health_path: None,
            has_http2: true,
            has_http2_sockets: false,
            http2_limits: thruway_http2::Limits::default(),
            counts: false,
            metrics_listener: None,
            has_status_page: false,
            cache: None,
        }
    }
}

/// Each handshake may hold 64 KiB of input.
const HANDSHAKES_MAX: usize = 1024;

/// The minimum number of descriptors kept for files that are being sent, and for the application.
const OTHER_DESCRIPTORS_MIN: usize = 32;

impl Settings {
    /// The client of a request.
    pub(crate) fn client_of(&self, request: &Request<'_>, peer: Peer, is_trusted: bool) -> Peer {
        if is_trusted { self.client_source.client(request, peer, &self.trust) } else { peer }
    }

    /// Whether a listener is for metrics.
    pub(crate) fn is_for_metrics(&self, listener: usize) -> bool {
        self.metrics_listener.is_some_and(|first| listener >= first)
    }

    /// Keeps half of the descriptors for files that are being sent: each connection may have one.
    #[must_use]
    pub fn for_files(mut self) -> Self {
        self.connections_max = (self.connections_max / 2).max(1);
        self
    }
}

/// Most of the descriptors that the process may open, as long as enough are left for other uses.
fn connections_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let descriptors = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(1 << 20);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    connections_among(descriptors, open)
}

/// Returns how many of the process's `descriptors` connections may use. A quarter is left for other uses, or more if
/// the `open` descriptors, such as those of listeners and mailboxes, need more. Siblings may send somewhat more
/// connections.
fn connections_among(descriptors: usize, open: usize) -> usize {
    descriptors.saturating_sub((descriptors / 4).max(open + OTHER_DESCRIPTORS_MIN)).max(1)
}

/// Raises the process's limit on open descriptors to the system's maximum.
pub fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    // If the system refuses, the lower limit stands, and `connections_max` follows it.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_leaves_descriptors_for_all_else() {
        for (descriptors, open, most) in
            [(1024, 40, 768), (256, 40, 184), (128, 40, 56), (64, 40, 1), (8, 6, 1)]
        {
            assert_eq!(connections_among(descriptors, open), most, "{descriptors}, {open}");
        }
    }
}
