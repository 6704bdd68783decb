//! Responses on the listeners for operators: metrics, health, the live page.
//!
//! Any worker responds for all workers, from shared memory. No Ruby thread is needed, so the standby can respond while
//! Ruby computes.

use std::net::IpAddr;

use thruway_http1::Request;

use crate::events::clock::monotonic_us;
use crate::exchange::{admission, own_response};
use crate::metrics::{CurrentLoad, MEDIA_TYPE, Snapshot};
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// The live page.
const PAGE: &str = include_str!("observer/page.html");

/// The content security policy of the live page, which loads nothing from other sites.
const PAGE_POLICY: &[u8] =
    b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

const TEXT: &[u8] = b"text/plain; charset=utf-8";
const HTML: &[u8] = b"text/html; charset=utf-8";
const JSON: &[u8] = b"application/json";

/// The response to a browser that reached this address through the name of another site.
const FOREIGN: &str =
    "this is asked by its address, by localhost, or by the name that it listens as\n";

/// A response of the server itself.
struct OwnResponse {
    status: u16,
    media_type: &'static [u8],
    body: String,
}

/// Whether a client that addresses the server as `host` may see the requests of all clients. The server listens as
/// `own`.
///
/// A page of another site can point its own name to this address (DNS rebinding), and its browser would let the page
/// read the response. No page can do so with an IP address as its name, unless the address is this server's.
fn may_ask(host: &[u8], own: &str) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if name == own.to_ascii_lowercase() || name == "localhost" || name.ends_with(".localhost") {
        return true;
    }
    let listens_everywhere = own.parse().is_ok_and(|own: IpAddr| own.is_unspecified());
    name.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback() || listens_everywhere)
}

/// Whether a connection came from a listener for metrics.
pub(crate) fn is_observer(entry: &EntryMut<'_>) -> bool {
    entry.store.settings.is_for_metrics(entry.listener.into())
}

/// Responds to a request on such a listener; `rest` is the input behind the head.
pub(crate) fn respond(entry: EntryMut<'_>, request: &Request<'_>, rest: &[u8]) {
    let is_read = matches!(request.method(), b"GET" | b"HEAD") && !request.has_body();
    let is_asked = |name: &Option<String>| {
        name.as_deref().is_none_or(|own| request.host().is_none_or(|host| may_ask(host, own)))
    };
    let listener = usize::from(entry.listener);
    let is_here = entry.store.observed_as.get(listener).is_none_or(is_asked);
    let is_probe = matches!(request.path(), b"/live" | b"/ready");
    let response = if !is_here && !is_probe {
        OwnResponse::text(421, FOREIGN)
    } else if is_read {
        response_to(entry.store, request.path())
    } else {
        OwnResponse::text(405, "only GET and HEAD are for here\n")
    };
    let begun = own_response::begin(entry, request, rest);
    own_response::send(begun, response.status, response.fields(), response.body.as_bytes());
}

fn response_to(store: &mut Store, path: &[u8]) -> OwnResponse {
    let has_page = store.settings.has_status_page;
    match path {
        b"/metrics" => {
            let body = snapshot(store).prometheus();
            OwnResponse { status: 200, media_type: MEDIA_TYPE, body }
        }
        b"/stats" => OwnResponse { status: 200, media_type: JSON, body: snapshot(store).json() },
        b"/live" => OwnResponse::text(200, "alive\n"),
        b"/ready" => {
            let (status, text) = readiness(store);
            OwnResponse::text(status, &format!("{text}\n"))
        }
        b"/" if has_page => OwnResponse { status: 200, media_type: HTML, body: PAGE.to_owned() },
        b"/" => OwnResponse::text(200, "/metrics /stats /live /ready\n"),
        _ => OwnResponse::text(404, "there are /metrics, /stats, /live and /ready\n"),
    }
}

fn readiness(store: &mut Store) -> (u16, &'static str) {
    match admission::health(store) {
        (200, _) if snapshot(store).booted() == 0 => (503, "no worker serves"),
        health => health,
    }
}

/// Returns the counters of all workers.
pub(crate) fn snapshot(store: &Store) -> Snapshot {
    let mut snapshot = counted(store);
    snapshot.cache = store.cache.as_ref().map(|cache| cache.store.totals());
    snapshot.certificates = store.tls.reports();
    snapshot
}

fn counted(store: &Store) -> Snapshot {
    let Some(metrics) = &store.metrics else { return Snapshot::default() };
    let here = CurrentLoad {
        is_serving: store.service.accepts(),
        is_draining: !store.service.accepts(),
        connections: store.count() as u64,
        active: store.activity.count(),
        waiting: store.turns.len() as u64,
    };
    // This worker's numbers come from the store: its row may be older, and count the current request as waiting.
    let sibling = |index| store.siblings.as_ref().and_then(|all| all.current_load(index));
    let present = |index| sibling(index).unwrap_or(here);
    Snapshot::read(metrics.table(), monotonic_us(), present)
}

impl OwnResponse {
    fn text(status: u16, text: &str) -> Self {
        Self { status, media_type: TEXT, body: text.to_owned() }
    }

    fn fields(&self) -> impl Iterator<Item = (&'static [u8], &'static [u8])> {
        let always: [(&[u8], &[u8]); 3] = [
            (b"content-type", self.media_type),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ];
        let page: [(&[u8], &[u8]); 2] =
            [(b"content-security-policy", PAGE_POLICY), (b"referrer-policy", b"no-referrer")];
        let allow: [(&[u8], &[u8]); 1] = [(b"allow", b"GET, HEAD")];
        let is_page = self.media_type == HTML;
        let page = page.into_iter().filter(move |_| is_page);
        let is_refused = self.status == 405;
        always.into_iter().chain(page).chain(allow.into_iter().filter(move |_| is_refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_sites_name_may_not_ask() {
        for host in ["localhost", "localhost:9394", "app.localhost", "127.0.0.1:9394", "[::1]:9394"]
        {
            assert!(may_ask(host.as_bytes(), "127.0.0.1"), "{host}");
        }
        for host in
            ["rebound.example:9394", "10.0.0.7", "localhost.example", "127.0.0.1.example", ""]
        {
            assert!(!may_ask(host.as_bytes(), "127.0.0.1"), "{host}");
        }
        assert!(may_ask(b"10.0.0.7:9394", "10.0.0.7") && may_ask(b"App:9394", "app"));
        // A server that listens everywhere has many addresses, but no name.
        assert!(may_ask(b"10.0.0.7:9394", "0.0.0.0") && may_ask(b"[fd00::7]:9394", "::"));
        assert!(!may_ask(b"rebound.example", "0.0.0.0"));
    }
}
