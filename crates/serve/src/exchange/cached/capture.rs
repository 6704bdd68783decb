//! Processes a handler's response on its way to the client: the response is stored, or a stored response replaces it.

use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::{Errno, pread};
use thruway_cache::policy::judge;
use thruway_cache::record::{fields, stored_lines, updated_lines};
use thruway_cache::store::NewResponse;
use thruway_cache::{Counter, Freshness, Key, Store as Cache, StoredResponse};
use thruway_http1::response::is_bodiless;
use thruway_http1::{BodyPlan, ResponseFraming};

use crate::entry::Payload;
use crate::entry::cache_role::{CacheRole, Fill, PartialResponse, Stale};
use crate::entry::ticket::Ticket;
use crate::exchange::cached::reply::{Origin, Reply};
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// The end of a head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The parts of a response that concern the cache.
struct ResponseParts<'a> {
    status: u16,
    /// The head, including its final empty line.
    head: &'a [u8],
    /// The field lines.
    lines: &'a [u8],
    /// The part of the body that follows the head.
    rest: &'a [u8],
}

impl<'a> ResponseParts<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let end = bytes.windows(HEAD_END.len()).position(|window| window == HEAD_END);
        let (head, rest) = bytes.split_at(end.map_or(bytes.len(), |at| at + HEAD_END.len()));
        let line = head.iter().position(|byte| *byte == b'\n').map_or(head.len(), |at| at + 1);
        let digits = head.get(9..12).unwrap_or_default();
        let digit = |status: u16, byte: &u8| status * 10 + u16::from(byte.wrapping_sub(b'0') % 10);
        Self { status: digits.iter().fold(0, digit), head, lines: &head[line..], rest }
    }
}

/// The form in which a response is sent to its client.
#[derive(Debug)]
pub(crate) enum Passage {
    /// The response is sent unchanged.
    AsItIs,
    /// The response is sent with this head.
    WithHead(Vec<u8>),
    /// A stored response is sent in its place.
    Replaced(StoredResponse, Reply),
}

/// Processes a handler's complete response, which is about to be sent.
pub(crate) fn whole(
    store: &mut Store,
    ticket: Ticket,
    (head, plan): (&[u8], BodyPlan),
    payload: &Payload<'_>,
) -> Passage {
    let seen = ResponseParts::of(head);
    let mut fill = match take_fill(store, ticket, &seen) {
        Ok(fill) => fill,
        Err(passage) => return passage,
    };
    let is_stored = store_whole(store, &mut fill, &seen, plan, payload);
    if !is_stored {
        note_unshared(store, &fill, seen.status);
    }
    // Requests that wait for this response continue once `fill` is dropped. The response is stored by then.
    Passage::WithHead([&labelled(&seen, &fill, is_stored), seen.rest].concat())
}

/// Processes the head of a response whose body comes in pieces.
pub(crate) fn begin(store: &mut Store, ticket: Ticket, head: &[u8], plan: BodyPlan) -> Passage {
    let seen = ResponseParts::of(head);
    let mut fill = match take_fill(store, ticket, &seen) {
        Ok(fill) => fill,
        Err(passage) => return passage,
    };
    let Some(cache) = &store.cache else { return Passage::AsItIs };
    let length = match plan.framing {
        ResponseFraming::Length(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        _ => 0,
    };
    fill.gathered = storable(&fill, &seen).filter(|_| length <= cache.store.item_bytes_max());
    let new_head = labelled(&seen, &fill, fill.gathered.is_some());
    if fill.gathered.is_none() {
        note_unshared(store, &fill, seen.status);
    } else if let Some(mut entry) = store.find_request(ticket) {
        entry.cache_role = Some(CacheRole::Fill(fill));
    }
    Passage::WithHead(new_head)
}

/// Records a piece of a body that is sent.
pub(crate) fn note_piece(entry: &mut EntryMut<'_>, piece: &[u8]) {
    let Some(CacheRole::Fill(mut fill)) = entry.cache_role.take() else { return };
    let Some(cache) = &entry.store.cache else { return };
    let Some(gathered) = &mut fill.gathered else { return };
    if gathered.body.len() + piece.len() > cache.store.item_bytes_max() {
        return note_unshared(entry.store, &fill, 200);
    }
    gathered.body.extend_from_slice(piece);
    entry.cache_role = Some(CacheRole::Fill(fill));
}

/// Stores a response whose body came in pieces and is complete.
pub(crate) fn finish(entry: &mut EntryMut<'_>) {
    let Some(CacheRole::Fill(fill)) = entry.cache_role.take() else { return };
    if let (Some(cache), Some(gathered)) = (&entry.store.cache, &fill.gathered) {
        let _ = put(&cache.store, &fill, gathered, entry.store.clock.now_ms);
    }
}

/// Takes out the role of a request that is still with its handler, if the response may be stored.
///
/// # Errors
/// The form in which any other response is sent to its client.
fn take_fill(
    store: &mut Store,
    ticket: Ticket,
    seen: &ResponseParts<'_>,
) -> Result<Box<Fill>, Passage> {
    let role = store.find_request(ticket).and_then(|mut entry| entry.cache_role.take());
    let mut fill = match role {
        Some(CacheRole::Fill(fill)) => fill,
        Some(CacheRole::Change(key)) => {
            invalidate(store, &key, seen);
            return Err(Passage::AsItIs);
        }
        Some(CacheRole::Reserved(_)) | None => return Err(Passage::AsItIs),
    };
    match replacement(store, &mut fill, seen) {
        Some((found, reply)) => Err(Passage::Replaced(found, reply)),
        None => Ok(fill),
    }
}

/// Handles a request that may have changed the page: the stored responses for this page and for the pages that the
/// response names are removed.
fn invalidate(store: &Store, key: &Key, seen: &ResponseParts<'_>) {
    let Some(cache) = store.cache.as_ref().filter(|_| (200..400).contains(&seen.status)) else {
        return;
    };
    cache.store.invalidate(key.url());
    for (name, value) in fields(seen.lines) {
        let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
        if (is(b"location") || is(b"content-location"))
            && let Some(url) = key.same_origin(value)
        {
            cache.store.invalidate(&url);
        }
    }
}

/// Returns the stored response that is sent in place of an error, or of a 304 that validates it.
fn replacement(
    store: &mut Store,
    fill: &mut Fill,
    seen: &ResponseParts<'_>,
) -> Option<(StoredResponse, Reply)> {
    let stale = fill.stale.take()?;
    let is_error = matches!(seen.status, 500 | 502..=504) && stale.stale_if_error;
    let (found, origin) = if seen.status == 304 {
        store.count_cached(Counter::Revalidated);
        (refreshed(store, fill, stale, seen), Origin::Validated)
    } else if is_error {
        store.count_cached(Counter::Stale);
        let resident_s = stale.response.resident_s(store.clock.now_ms);
        let age_s = stale.response.freshness().age_s(resident_s);
        (stale.response, Origin::Failed { age_s, status: seen.status })
    } else {
        store.keep_buffer(stale.response);
        return None;
    };
    let reply = Reply::new(store, &found, fields(&fill.lines), fill.constraints, origin);
    Some((found, reply))
}

/// Updates the stored response with the fields of a 304. The updated response is stored, or removed if it may not be
/// stored any more.
fn refreshed(store: &Store, fill: &Fill, stale: Stale, seen: &ResponseParts<'_>) -> StoredResponse {
    let Some(cache) = &store.cache else { return stale.response };
    let (old, now_ms) = (stale.response, store.clock.now_ms);
    let lines = updated_lines(old.lines(), fields(seen.lines));
    // The age belongs to the 304, and is not stored.
    let age = fields(seen.lines).filter(|(name, _)| name.eq_ignore_ascii_case(b"age"));
    match judge(fill.facts, old.status(), fields(&lines).chain(age), unix_seconds()) {
        Ok(freshness) => {
            let (moment, status, body) = (fill.moment, old.status(), old.body());
            let response = NewResponse { moment, status, lines: &lines, body, freshness, now_ms };
            cache.store.put(&fill.key, fields(&fill.lines), response);
            old.with_head(&lines, freshness, now_ms)
        }
        Err(_) => {
            cache.store.invalidate(fill.key.url());
            // The client gets the fields nevertheless, as a field may be a cookie.
            old.with_head(&lines, Freshness::default(), now_ms)
        }
    }
}

/// Returns the response without its body, if the response may be stored.
fn storable(fill: &Fill, seen: &ResponseParts<'_>) -> Option<PartialResponse> {
    let freshness = judge(fill.facts, seen.status, fields(seen.lines), unix_seconds()).ok()?;
    let lines = stored_lines(fields(seen.lines));
    Some(PartialResponse { status: seen.status, lines, freshness, body: Vec::new() })
}

/// Stores a response whose complete body is known. Returns whether the response was stored.
fn store_whole(
    store: &Store,
    fill: &mut Fill,
    seen: &ResponseParts<'_>,
    plan: BodyPlan,
    payload: &Payload<'_>,
) -> bool {
    let Some(cache) = &store.cache else { return false };
    let Some(mut gathered) = storable(fill, seen) else { return false };
    let length = match plan.framing {
        ResponseFraming::Length(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        ResponseFraming::Empty if is_bodiless(seen.status) => 0,
        // The body is decoded in pieces on its way to the client, or the length is that of another response.
        _ => return false,
    };
    if length > cache.store.item_bytes_max() {
        return false;
    }
    gathered.body.reserve_exact(length);
    gathered.body.extend_from_slice(seen.rest);
    let is_read = append(&mut gathered.body, payload).is_ok();
    is_read
        && gathered.body.len() == length
        && put(&cache.store, fill, &gathered, store.clock.now_ms)
}

/// Appends the bytes of a payload. Reading a file does not move the file's position.
fn append(body: &mut Vec<u8>, payload: &Payload<'_>) -> Result<(), Errno> {
    match payload {
        Payload::Empty => {}
        Payload::Slices(slices) => slices.iter().for_each(|slice| body.extend_from_slice(slice)),
        Payload::File { file, offset, length } => {
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            read_file(body, file.as_fd(), *offset, length)?;
        }
        Payload::Parts(parts) => {
            for part in parts {
                body.extend_from_slice(part.bytes().ok_or(Errno::NOTSUP)?);
            }
        }
    }
    Ok(())
}

fn read_file(
    body: &mut Vec<u8>,
    file: impl AsFd,
    mut offset: u64,
    length: usize,
) -> Result<(), Errno> {
    let mut at = body.len();
    let end = at + length;
    body.resize(end, 0);
    while at < end {
        match pread(&file, &mut body[at..], offset) {
            Ok(0) => break,
            Ok(count) => {
                at += count;
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    body.truncate(at);
    Ok(())
}

fn put(cache: &Cache, fill: &Fill, gathered: &PartialResponse, now_ms: u64) -> bool {
    let PartialResponse { status, lines, freshness, body } = gathered;
    let response = NewResponse {
        moment: fill.moment,
        status: *status,
        lines,
        body,
        freshness: *freshness,
        now_ms,
    };
    let is_put = cache.put(&fill.key, fields(&fill.lines), response);
    let is_fresh = freshness.lifetime_s > freshness.initial_age_s && !freshness.no_cache;
    let is_shared = is_fresh || freshness.stale_while_revalidate_s > 0;
    if is_put && !is_shared && fill.is_plain {
        // The response is validated for each request, so no request can use the response to another request.
        cache.note_unshared(fill.tag, now_ms);
    }
    is_put
}

/// Records that the responses for a page cannot be shared. For some time, requests for the page do not wait for each
/// other. An error says nothing about the next response.
fn note_unshared(store: &Store, fill: &Fill, status: u16) {
    if let Some(cache) = store.cache.as_ref().filter(|_| fill.is_plain && status < 500) {
        cache.store.note_unshared(fill.tag, store.clock.now_ms);
    }
}

/// Returns the head with a field that describes the part of the cache.
fn labelled(seen: &ResponseParts<'_>, fill: &Fill, is_stored: bool) -> Vec<u8> {
    let why = fill.forwarded_for;
    let stored = if is_stored { "; stored" } else { "" };
    let line = format!("cache-status: Thruway; fwd={why}{stored}\r\n");
    let (lines, end) = seen.head.split_at(seen.head.len().saturating_sub(2));
    [lines, line.as_bytes(), end].concat()
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
