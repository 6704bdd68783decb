//! The streams of an HTTP/2 connection.

use std::collections::{HashMap, VecDeque};

use thruway_http2::{Limits, Priority, Session};

use crate::events::slab::EntryId;

/// The session of an HTTP/2 connection and its streams.
#[derive(Debug)]
pub(crate) struct Multiplexer {
    pub(crate) session: Session,
    /// Streams by their numbers.
    streams: HashMap<u32, EntryId>,
    /// Streams with output and room to send, in sending order: by priority, then by arrival.
    sending: VecDeque<(Priority, EntryId)>,
    /// When the head that is being received began, if there is one.
    pub(crate) head_since_ms: Option<u64>,
    /// Whether a stream was reset and the client does not know yet.
    pub(crate) needs_flush: bool,
    /// Whether the client has broken a rule or a limit.
    pub(crate) is_faulty: bool,
    /// Bytes of bodies that streams have handed to the session. The total shows progress even if the client reads one
    /// stream and leaves others waiting.
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

    /// Whether a turn would make progress without new input.
    pub(crate) fn has_work(&self) -> bool {
        self.needs_flush || !self.sending.is_empty() || self.session.has_unread()
    }

    /// Whether no request is in progress.
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

    /// Queues a stream that has output and room to send.
    pub(crate) fn begin_sending(&mut self, priority: Priority, id: EntryId) {
        if self.sending.iter().any(|(_, other)| *other == id) {
            return;
        }
        let later = self.sending.iter().position(|(other, _)| *other > priority);
        self.sending.insert(later.unwrap_or(self.sending.len()), (priority, id));
    }

    /// Whether a queued stream precedes a stream of `priority`.
    pub(crate) fn is_outranked(&self, priority: Priority) -> bool {
        self.sending.front().is_some_and(|(first, _)| *first < priority)
    }

    /// Takes the stream that sends next.
    pub(crate) fn next_sending(&mut self) -> Option<EntryId> {
        self.sending.pop_front().map(|(_, id)| id)
    }
}
