//! Responses of the server itself, without a handler.

use thruway_http1::response::ResponseConstraints;
use thruway_http1::{Request, ResponseHead};

use crate::entry::Payload;
use crate::entry::ticket::Ticket;
use crate::exchange::response::{Response, ResponseWriter};
use crate::store::Store;
use crate::store::entry_mut::EntryMut;

/// Begins the response to a request; `rest` is the input behind the request's head. A request's body is not read, so
/// the connection of a request with a body ends with the response.
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

/// Sends a complete response. Invalid fields are omitted.
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
