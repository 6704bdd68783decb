//! How a connection begins to speak HTTP/2.

use thruway_http2::PREFACE;

use crate::entry::Phase;
use crate::entry::multiplexer::Multiplexer;
use crate::events::slab::ConnectionId;
use crate::store::Connections;

/// Goes on by HTTP/2 with `bytes`, which were read already.
pub(crate) fn begin(connections: &mut Connections, id: ConnectionId, bytes: &[u8]) {
    let now_ms = connections.clock.now_ms;
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let settings = &connections.settings;
    let (limits, has_sockets) = (&settings.http2_limits, settings.has_http2_sockets);
    connection.multiplexer = Some(Box::new(Multiplexer::new(limits, has_sockets, now_ms)));
    connection.phase = Phase::Multiplexing;
    connection.since_ms = now_ms;
    connection.keep(bytes, 0);
}

/// Takes what is no head of HTTP/1, if it is the beginning of HTTP/2, or a wrong one, which ends the connection.
pub(crate) fn takes(connections: &mut Connections, id: ConnectionId, bytes: &[u8]) -> bool {
    if !connections.settings.has_http2 {
        return false;
    }
    if bytes.starts_with(PREFACE) {
        begin(connections, id, bytes);
        return true;
    }
    if is_wrong_preface(bytes) {
        connections.close(id);
        return true;
    }
    let may_follow = PREFACE.starts_with(bytes);
    if let Some(connection) = connections.slab.get_mut(id).filter(|_| may_follow) {
        connection.keep(bytes, bytes.len());
    }
    may_follow
}

/// Whether these bytes are a wrong preface of HTTP/2. They are one line of three words and no field, and have no slash:
/// neither a path nor a version. Such a connection ends without a response (RFC 9113, 3.4). Any other wrong head gets
/// one.
fn is_wrong_preface(bytes: &[u8]) -> bool {
    let Some(line) = bytes.strip_suffix(b"\r\n\r\n") else { return false };
    let words = line.split(|byte| *byte == b' ').count();
    words == 3 && !line.contains(&b'/') && !line.contains(&b'\n')
}
