//! Starts HTTP/2 on a connection.

use thruway_http2::PREFACE;

use crate::entry::State;
use crate::entry::multiplexer::Multiplexer;
use crate::store::entry_mut::EntryMut;

/// Continues with HTTP/2; `bytes` were already read.
pub(crate) fn begin(mut connection: EntryMut<'_>, bytes: &[u8]) {
    let now_ms = connection.store.clock.now_ms;
    let settings = &connection.store.settings;
    let (limits, has_sockets) = (&settings.http2_limits, settings.has_http2_sockets);
    let multiplexer = Multiplexer::new(limits, has_sockets, now_ms);
    let connection = &mut *connection;
    connection.state = State::Multiplexing(Box::new(multiplexer));
    connection.since_ms = now_ms;
    connection.keep(bytes, 0);
}

/// Handles bytes that are not a head of HTTP/1. If the bytes begin the preface of HTTP/2, the connection continues with
/// HTTP/2. If they are a wrong preface, the connection ends. Otherwise, returns the connection.
pub(crate) fn take<'a>(mut connection: EntryMut<'a>, bytes: &[u8]) -> Option<EntryMut<'a>> {
    if !connection.store.settings.has_http2 {
        return Some(connection);
    }
    if bytes.starts_with(PREFACE) {
        begin(connection, bytes);
    } else if is_wrong_preface(bytes) {
        connection.close();
    } else if PREFACE.starts_with(bytes) {
        connection.keep(bytes, bytes.len());
    } else {
        return Some(connection);
    }
    None
}

/// Whether the bytes are a wrong preface of HTTP/2: a single line of three words without fields, and without a slash,
/// so with neither a path nor a version. Such a connection ends without a response (RFC 9113, section 3.4). Any other
/// wrong head gets a response.
fn is_wrong_preface(bytes: &[u8]) -> bool {
    let Some(line) = bytes.strip_suffix(b"\r\n\r\n") else { return false };
    let words = line.split(|byte| *byte == b' ').count();
    words == 3 && !line.contains(&b'/') && !line.contains(&b'\n')
}
