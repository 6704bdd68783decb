//! Counts requests, from their turn to the end of their response.

use thruway_http1::Request;

use crate::entry::Entry;
use crate::events::clock::monotonic_us;
use crate::events::slab::EntryId;
use crate::exchange::request_start;
use crate::listen::listener::Peer;
use crate::metrics::{EndedRequest, Time};
use crate::settings::fair_by::FairBy;
use crate::store::entry_mut::EntryMut;

/// Begins to count a request that has its turn.
pub(crate) fn begin(entry: &mut EntryMut<'_>, request: &Request<'_>) {
    let id = entry.id();
    let store = &mut *entry.store;
    let Some(metrics) = &store.metrics else { return };
    let entry = &mut store.slab[id];
    let now_us = monotonic_us();
    let waited_us = now_us.saturating_sub(entry.turn.ready_us);
    let settings = &store.settings;
    let observed = entry.observed.get_or_insert_default();
    (observed.begun_us, observed.waited_us, observed.status) = (now_us, waited_us, 0);
    observed.target.set(request.method(), request.path());
    let fair_by = &settings.fair_by;
    let is_fixed = !matches!(fair_by, FairBy::Header(_)) && !settings.client_source.is_of_request();
    if observed.client == 0 || !is_fixed {
        let peer = settings.client_of(request, entry.peer, entry.is_trusted);
        observed.name.clear();
        observed.name.extend_from_slice(&name_of(fair_by, request, peer, id));
        observed.client = metrics.hash(&observed.name) | 1;
    }
    metrics.count_request();
    metrics.record(Time::Queue, waited_us);
    if let Some(age_us) = request_start::age_us(request) {
        metrics.record(Time::FromProxy, age_us);
    }
}

/// Returns the name under which a client is shown.
fn name_of(fair_by: &FairBy, request: &Request<'_>, peer: Peer, id: EntryId) -> Vec<u8> {
    let of_connection = || match peer {
        Peer::Tcp(address) => address.to_string().into_bytes(),
        Peer::Unix => format!("unix connection {}", id.slot()).into_bytes(),
    };
    match (fair_by, peer) {
        (FairBy::Address, Peer::Tcp(address)) => address.ip().to_string().into_bytes(),
        (FairBy::Header(_), _) => fair_by.name_of(request, peer).unwrap_or_else(of_connection),
        _ => of_connection(),
    }
}

/// Records the status of a response from its head.
pub(crate) fn note_status(entry: &mut Entry, head: &[u8]) {
    if let Some(observed) = &mut entry.observed {
        let digits = head.get(9..12).unwrap_or_default();
        let digit = |status: u16, byte: &u8| status * 10 + u16::from(byte.wrapping_sub(b'0') % 10);
        observed.status = digits.iter().fold(0, digit);
    }
}

/// Counts a request whose response is complete.
pub(crate) fn end(entry: &mut EntryMut<'_>) {
    let id = entry.id();
    let store = &mut *entry.store;
    let Some(metrics) = &store.metrics else { return };
    let Some(observed) = &mut store.slab[id].observed else { return };
    let begun_us = std::mem::take(&mut observed.begun_us);
    if begun_us > 0 {
        let now_us = monotonic_us();
        metrics.count_completed(EndedRequest {
            now_us,
            took_us: now_us.saturating_sub(begun_us),
            waited_us: observed.waited_us,
            status: observed.status,
            client: (observed.client, &observed.name),
            target: observed.target.bytes(),
        });
    }
}

/// Counts a response to input that never became a request with a turn: the input was malformed or too large.
pub(crate) fn refuse(entry: &EntryMut<'_>, status: u16) {
    if let Some(metrics) = &entry.store.metrics
        && !entry.is_counted()
    {
        metrics.count_response(status);
    }
}

/// Stops counting a request whose connection the application takes over.
pub(crate) fn give_away(entry: &mut Entry) {
    if let Some(observed) = &mut entry.observed {
        observed.begun_us = 0;
    }
}
