//! The settings of a server, with the defaults and their reasons.
//!
//! Reading order: this file, then `client_source` (where a client's address is read) and `fair_by` (whose turns are
//! counted).

pub(crate) mod client_source;
pub(crate) mod fair_by;

use thruway_http1::{Limits, Request};
use thruway_websocket as websocket;

use crate::listen::listener::Peer;
use crate::listen::trust::Trust;
use crate::settings::client_source::ClientSource;
use crate::settings::fair_by::FairBy;

/// How long the engine waits for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// From the connection to the end of its handshake, where TLS is spoken.
    pub handshake_ms: u64,
    /// From the connection, or its handshake, to its first byte.
    pub first_byte_ms: u64,
    /// From a head's first byte to its last, however many bytes come in between.
    pub head_ms: u64,
    /// Between two pieces of a body.
    pub body_ms: u64,
    /// From a response to the next request's first byte.
    pub keep_alive_ms: u64,
    /// Within which a client takes some of a response.
    pub write_ms: u64,
    /// From a whole request to its response; none waits for ever.
    pub request_ms: Option<u64>,
}

impl Default for Timeouts {
    /// Puma's first byte and head; nginx's body, keep-alive and write. A handshake takes two round trips.
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
    /// Limits of one request.
    pub limits: Limits,
    /// How long the engine waits for a client.
    pub timeouts: Timeouts,
    /// Open connections; the next ones wait in the listener's queue.
    pub connections_max: usize,
    /// Handshakes that wait for their clients; for the next one, the oldest ends.
    pub handshakes_max: usize,
    /// Up to so many bytes a request's body stays in memory; beyond, it goes to a file.
    pub body_memory_bytes_max: usize,
    /// Up to so many bytes of a response that is written piece by piece wait in memory; beyond, they go to a file.
    pub response_memory_bytes_max: usize,
    /// The same for all responses together.
    pub worker_memory_bytes_max: usize,
    /// Up to so many bytes of a response wait in a file; beyond, the writer waits. Zero: no files.
    pub response_file_bytes_max: u64,
    /// A client that takes fewer bytes of a response a second, on average over `write_ms`, is cut off.
    pub write_bytes_per_second_min: u64,
    /// Limits of a message that comes in on a WebSocket.
    pub socket_limits: websocket::Limits,
    /// After so long without a byte from the client of a WebSocket it is pinged, and after as long again cut off.
    /// Streams of events get a comment as often. Zero: never.
    pub socket_ping_ms: u64,
    /// The unit that takes turns as a client.
    pub fair_by: FairBy,
    /// Where a request's client is learned from.
    pub client_source: ClientSource,
    /// Which addresses are believed as proxies.
    pub trust: Trust,
    /// A request that has waited for longer gets 503.
    pub queue_ms: Option<u64>,
    /// A path at which the server itself tells whether it responds.
    pub health_path: Option<Vec<u8>>,
    /// Whether clients may speak HTTP/2: by ALPN where TLS is spoken, elsewhere if they begin with it.
    pub has_http2: bool,
    /// Whether they may open WebSockets as streams of it (RFC 8441): an owner that wants the socket itself gets none.
    pub has_http2_sockets: bool,
    /// The limits of one connection of HTTP/2.
    pub http2_limits: thruway_http2::Limits,
    /// Whether requests are counted for metrics.
    pub counts: bool,
    /// The first listener that is for metrics, as all after it.
    pub metrics_listener: Option<usize>,
    /// Whether there is a live page for people beside the metrics.
    pub has_status_page: bool,
    /// The limits of a cache of responses that this engine has for itself. Workers of a group have that of the group.
    pub cache: Option<thruway_cache::Limits>,
}

impl Default for Settings {
    /// Puma's size for a body in memory, and nginx's for a response in a file; connections as the system's
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

/// Each handshake may hold 64 KiB of what its client has sent.
const HANDSHAKES_MAX: usize = 1024;

/// Descriptors for what is not open yet at least: files that are being sent, and the application's.
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

    /// Half of the descriptors stay for the files that are being sent: each connection may have one.
    #[must_use]
    pub fn for_files(mut self) -> Self {
        self.connections_max = (self.connections_max / 2).max(1);
        self
    }
}

/// Most of the descriptors that this process may open, as long as it has some for all else.
fn connections_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let descriptors = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(1 << 20);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    connections_among(descriptors, open)
}

/// How many of so many descriptors are for connections, where so many are `open` already, such as listeners and
/// mailboxes. Siblings may send some more than that.
fn connections_among(descriptors: usize, open: usize) -> usize {
    descriptors.saturating_sub((descriptors / 4).max(open + OTHER_DESCRIPTORS_MIN)).max(1)
}

/// Raises this process's limit on open descriptors as far as the system lets it.
pub fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    // Where it is refused, the lower limit stands, and connections_max follows it.
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
