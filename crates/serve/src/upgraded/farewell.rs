//! How upgraded connections end when the server does.
//!
//! Their clients come back at once. Many of them are closed one after the other, so that the next server is not met by
//! all of them in one moment.

use thruway_websocket::CloseCode;

use crate::connection::Phase;
use crate::connections::Connections;
use crate::slab::ConnectionId;

/// Time for each connection.
const EACH_MS: u64 = 2;

/// Time for all of them: a server that stops does not wait for long.
const ALL_MS_MAX: u64 = 10_000;

/// How far the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Farewell {
    None,
    /// It is due at that time.
    Planned {
        at_ms: u64,
        code: CloseCode,
    },
    /// The owner is to be told.
    Due(CloseCode),
    /// The owner was told; when it is done, the client gets the code.
    Told(CloseCode),
}

impl Farewell {
    pub(super) fn planned_ms(self) -> Option<u64> {
        match self {
            Self::Planned { at_ms, .. } => Some(at_ms),
            _ => None,
        }
    }

    pub(super) fn is_due(self) -> bool {
        matches!(self, Self::Due(_))
    }

    /// Whether its time has come now.
    pub(super) fn come(&mut self, now_ms: u64) -> bool {
        match *self {
            Self::Planned { at_ms, code } if at_ms <= now_ms => {
                *self = Self::Due(code);
                true
            }
            _ => false,
        }
    }

    /// The owner is told, if that is due.
    pub(super) fn tell(&mut self) -> bool {
        let Self::Due(code) = *self else { return false };
        *self = Self::Told(code);
        true
    }

    /// The code for the client, once the owner was told.
    pub(super) fn take_told(&mut self) -> Option<CloseCode> {
        let Self::Told(code) = *self else { return None };
        *self = Self::None;
        Some(code)
    }
}

/// Plans the end of every upgraded connection, with that code for their clients.
pub(crate) fn say_farewell(connections: &mut Connections, code: CloseCode) {
    let is_upgraded = |id: &ConnectionId| {
        let connection = connections.slab.get(*id);
        connection.is_some_and(|connection| matches!(connection.phase, Phase::Upgraded(_)))
    };
    let ids: Vec<_> = connections.slab.ids().filter(is_upgraded).collect();
    let all_ms = if ids.len() > 1 { (ids.len() as u64 * EACH_MS).min(ALL_MS_MAX) } else { 0 };
    for (id, at) in ids.into_iter().zip(0_u32..) {
        // The multiples of the golden ratio are spread evenly, and in no order of the connections.
        let part = u64::from(at.wrapping_mul(0x9e37_79b9));
        plan(connections, id, (part * all_ms) >> 32, code);
    }
}

/// Plans the end of one connection in so many milliseconds, unless it is under way.
pub(super) fn plan(connections: &mut Connections, id: ConnectionId, in_ms: u64, code: CloseCode) {
    let at_ms = connections.clock.now_ms + in_ms;
    let Some(connection) = connections.slab.get_mut(id) else { return };
    let Some(upgraded) = super::state_mut(connection) else { return };
    if upgraded.farewell == Farewell::None {
        upgraded.farewell =
            if in_ms == 0 { Farewell::Due(code) } else { Farewell::Planned { at_ms, code } };
    }
    connections.settle(id);
}
