//! The streams of a connection that speaks HTTP/2.

use std::collections::{HashMap, VecDeque};

use thruway_http2::{Limits, Priority, Session};

use crate::events::slab::EntryId;

/// The session of a connection, and its streams.
#[derive(Debug)]
pub(crate) struct Multiplexer {
    pub(crate) session: Session,
    /// By their numbers.
    streams: HashMap<u32, EntryId>,
    /// Streams that have something to send and room for it, in the order in which they send. Each comes behind the
    /// others of its priority.
    sending: VecDeque<(Priority, EntryId)>,
    /// Since when a head comes in, if one does.
    pub(crate) head_since_ms: Option<u64>,
    /// A stream was reset, and the client does not know.
    pub(crate) needs_flush: bool,
    /// The client has broken a rule or a limit.
    pub(crate) is_faulty: bool,
    /// Bytes of bodies that streams have handed to the session. A client that takes some of one stream may leave others
    /// waiting.
    pub(crate) fed_bytes: i64,
}

impl Multiplexer {
    pub(crate) fn new(limits: &Limits, has_sockets: bool, now_ms: u64) -> Self {
        Self {
            session: Session::new(limits, has_sockets, now_ms),
            streams: HashMap::new(),
            sending: VecDeque::new(),
            head_since_ms: None,
            needs_flush: false,
            is_faulty: false,
            fed_bytes: 0,
        }
    }

    /// Whether a turn would make progress without anything that comes in.
    pub(crate) fn has_work(&self) -> bool {
        self.needs_flush || !self.sending.is_empty() || self.session.has_unread()
    }

    /// Whether no request is in work.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    pub(crate) fn enter(&mut self, number: u32, id: EntryId) {
        self.streams.insert(number, id);
    }

    pub(crate) fn leave(&mut self, number: u32) {
        self.streams.remove(&number);
    }

    pub(crate) fn stream(&self, number: u32) -> Option<EntryId> {
        self.streams.get(&number).copied()
    }

    pub(crate) fn streams(&self) -> Vec<EntryId> {
        self.streams.values().copied().collect()
    }

    /// Notes that a stream has something to send and room for it.
    pub(crate) fn begin_sending(&mut self, priority: Priority, id: EntryId) {
        if self.sending.iter().any(|(_, other)| *other == id) {
            return;
        }
        let later = self.sending.iter().position(|(other, _)| *other > priority);
        self.sending.insert(later.unwrap_or(self.sending.len()), (priority, id));
    }

    /// Whether a stream that sends goes before one of that priority.
    pub(crate) fn is_outranked(&self, priority: Priority) -> bool {
        self.sending.front().is_some_and(|(first, _)| *first < priority)
    }

    /// The stream that sends next.
    pub(crate) fn next_sending(&mut self) -> Option<EntryId> {
        self.sending.pop_front().map(|(_, id)| id)
    }
}
