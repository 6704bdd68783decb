//! The head and the body of a stored response for a single client.

use std::ops::Range;

use thruway_cache::StoredResponse;
use thruway_cache::conditions::Conditions;
use thruway_cache::record::push_line;
use thruway_http1::response::ResponseConstraints;
use thruway_http1::{BodyPlan, ResponseHead};

use crate::range::{RequestedRange, wanted};
use crate::store::Store;

/// The fields of a 304 (RFC 9110, section 15.4.5).
const NOT_MODIFIED: [&[u8]; 6] =
    [b"cache-control", b"content-location", b"etag", b"expires", b"vary", b"last-modified"];

/// The reason why a stored response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The stored response answers the request.
    Stored { age_s: u32 },
    /// The application has confirmed the stored response.
    Validated,
    /// The application has failed with this status.
    Failed { age_s: u32, status: u16 },
}

/// The part of a stored response that a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplyPart {
    Whole,
    NotModified,
    Part(Range<usize>),
    Nothing,
}

/// A stored response for a single client.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Vec<u8>,
    pub(crate) plan: BodyPlan,
    /// The part of the stored body.
    pub(crate) body: Range<usize>,
}

impl Reply {
    /// Creates the reply to a client that has sent these fields.
    pub(crate) fn new<'f>(
        store: &mut Store,
        found: &StoredResponse,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        constraints: ResponseConstraints,
        origin: Origin,
    ) -> Self {
        let wanted = wanted_of(found, fields);
        let (status, body) = match &wanted {
            ReplyPart::Whole => (found.status(), 0..found.body().len()),
            ReplyPart::NotModified => (304, 0..0),
            ReplyPart::Part(range) => (206, range.clone()),
            ReplyPart::Nothing => (416, 0..0),
        };
        let mut out = std::mem::take(&mut store.scratch);
        out.clear();
        let mut head = ResponseHead::new(&mut out, status);
        let mut stored = found.fields();
        // The date is the first field of each stored head.
        if let Some((name, value)) = stored.next() {
            let _ = head.field(name, value);
        }
        write_own_fields(&mut head, found, &wanted, origin);
        let partial = head.partial();
        if wanted == ReplyPart::NotModified {
            let is_kept =
                |name: &[u8]| NOT_MODIFIED.iter().any(|one| one.eq_ignore_ascii_case(name));
            stored.filter(|(name, _)| is_kept(name)).for_each(|(name, value)| {
                push_line(&mut out, name, value);
            });
        } else {
            let lines = found.lines();
            let first = lines.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            out.extend_from_slice(&lines[first..]);
        }
        let date = store.clock.date();
        let head = ResponseHead::resume(&mut out, partial);
        let plan = head.finish(constraints, Some(body.len() as u64), &date);
        Self { head: out, plan, body }
    }
}

/// Writes the fields that are not part of the stored response. None of them contains a control character.
fn write_own_fields(
    head: &mut ResponseHead<'_>,
    found: &StoredResponse,
    wanted: &ReplyPart,
    origin: Origin,
) {
    let freshness = found.freshness();
    let (age_s, status) = match origin {
        Origin::Stored { age_s } => {
            let ttl = i64::from(freshness.lifetime_s) - i64::from(age_s);
            (age_s, format!("Thruway; hit; ttl={ttl}"))
        }
        Origin::Validated => {
            (freshness.initial_age_s, "Thruway; fwd=stale; fwd-status=304".to_owned())
        }
        Origin::Failed { age_s, status } => {
            (age_s, format!("Thruway; hit; fwd=stale; fwd-status={status}"))
        }
    };
    let _ = head.field(b"age", age_s.to_string().as_bytes());
    let _ = head.field(b"cache-status", status.as_bytes());
    let size = found.body().len();
    let place = match wanted {
        ReplyPart::Part(range) => format!("bytes {}-{}/{size}", range.start, range.end - 1),
        ReplyPart::Nothing => format!("bytes */{size}"),
        ReplyPart::Whole | ReplyPart::NotModified => return,
    };
    let _ = head.field(b"content-range", place.as_bytes());
}

/// Returns the part of a response that a client wants, according to the request's conditions and range. For several
/// ranges, the client gets the complete response.
fn wanted_of<'f>(
    found: &StoredResponse,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
) -> ReplyPart {
    let (mut conditions, mut range) = (Conditions::default(), None);
    for (name, value) in fields {
        let is = |wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
        match name.len() {
            5 if is(b"range") => range = Some(value),
            8 if is(b"if-range") => conditions.if_range = Some(value),
            13 if is(b"if-none-match") => conditions.if_none_match = Some(value),
            17 if is(b"if-modified-since") => conditions.if_modified_since = Some(value),
            _ => {}
        }
    }
    let is_conditional =
        conditions.if_none_match.is_some() || conditions.if_modified_since.is_some();
    if found.status() != 200 || !is_conditional && range.is_none() {
        return ReplyPart::Whole;
    }
    let validators = found.validators();
    if is_conditional && conditions.is_known(validators) {
        return ReplyPart::NotModified;
    }
    let range = range.filter(|_| conditions.allows_range(validators));
    match wanted(range, found.body().len() as u64) {
        RequestedRange::Some(ranges) if ranges.len() == 1 => {
            let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX);
            ReplyPart::Part(at(ranges[0].start)..at(ranges[0].end))
        }
        RequestedRange::Nothing => ReplyPart::Nothing,
        RequestedRange::All | RequestedRange::Some(_) => ReplyPart::Whole,
    }
}
