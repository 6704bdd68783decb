//! Responses of the server itself, for which no handler is asked.

use thruway_http1::response::ResponseConstraints;
use thruway_http1::{Request, ResponseHead};

use crate::entry::Payload;
use crate::entry::ticket::Ticket;
use crate::exchange::response::{Response, ResponseWriter};
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// Begins the response to a request; `rest` is what came behind the request's head. A body is not read, so the
/// connection ends with the response to a request that has one.
pub(crate) fn begin<'a>(
    mut entry: EntryMut<'a>,
    request: &Request<'_>,
    rest: &[u8],
) -> (&'a mut Store, Ticket, ResponseConstraints) {
    entry.keep(rest, 0);
    let mut constraints = ResponseConstraints::of(request);
    constraints.is_persistent &= !entry.closes_after_response() && !request.has_body();
    let ticket = entry.begin_request();
    let (store, _) = entry.into_parts();
    (store, ticket, constraints)
}

/// Sends a whole response. A field that cannot be sent is left out.
pub(crate) fn send<'f>(
    (store, ticket, constraints): (&mut Store, Ticket, ResponseConstraints),
    status: u16,
    fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
    body: &[u8],
) {
    let mut writer = ResponseWriter::new(store, ticket);
    let date = writer.date();
    let mut bytes = Vec::with_capacity(256);
    let mut head = ResponseHead::new(&mut bytes, status);
    for (name, value) in fields {
        let _ = head.field(name, value);
    }
    let plan = head.finish(constraints, Some(body.len() as u64), &date);
    writer.respond(Response { head: &bytes, plan, payload: Payload::Slices(&[body]) });
}
