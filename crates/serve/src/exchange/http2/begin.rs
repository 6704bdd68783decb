//! How a connection begins to speak HTTP/2.

use thruway_http2::PREFACE;

use crate::entry::State;
use crate::entry::multiplexer::Multiplexer;
use crate::store::entry_mut::EntryMut;

/// Goes on by HTTP/2 with `bytes`, which were read already.
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

/// Takes bytes that are no head of HTTP/1 if they begin HTTP/2, or if they are a wrong beginning, which ends the
/// connection. Gives the connection back if they are neither.
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

/// Whether these bytes are a wrong preface of HTTP/2. They are one line of three words and no field, and have no slash:
/// neither a path nor a version. Such a connection ends without a response (RFC 9113, 3.4). Any other wrong head gets
/// one.
fn is_wrong_preface(bytes: &[u8]) -> bool {
    let Some(line) = bytes.strip_suffix(b"\r\n\r\n") else { return false };
    let words = line.split(|byte| *byte == b' ').count();
    words == 3 && !line.contains(&b'/') && !line.contains(&b'\n')
}
