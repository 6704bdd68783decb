//! A connection of HTTP/1, on which responses come in the order of the requests.

use crate::exchange::{Answer, Event, Step};
use crate::pending::{PendingRequest, PendingRequests};
use crate::response::{Response, ResponseReader};
use crate::run_context::PreparedRequest;
use crate::tally::FailureKind;

#[derive(Debug)]
pub(crate) struct Http1 {
    reader: ResponseReader,
    pending: PendingRequests,
    /// Whether a connection may be used for more than one request.
    keeps_alive: bool,
}

impl Http1 {
    /// Creates a connection with up to `depth` pending requests.
    pub(crate) fn new(depth: usize, is_head: bool, keeps_alive: bool) -> Self {
        let pending = PendingRequests::with_capacity(depth);
        Self { reader: ResponseReader::new(is_head), pending, keeps_alive }
    }

    pub(crate) fn pending(&self) -> &PendingRequests {
        &self.pending
    }

    pub(crate) fn push(&mut self, request: PendingRequest) {
        self.pending.push(request);
    }

    pub(crate) fn clear(&mut self) {
        self.pending.clear();
    }

    /// Prepares for a new connection, on which everything has to be sent again.
    pub(crate) fn restart(&mut self) {
        self.reader.restart();
        self.pending.resend();
    }

    /// Returns the bytes that can be sent at once.
    pub(crate) fn unsent<'a>(&self, requests: &'a [PreparedRequest]) -> &'a [u8] {
        let part = self.pending.next_part(|request| requests[request].one_bytes);
        part.map_or(&[], |(request, part)| {
            let bytes = &requests[request].bytes;
            &bytes[part.start..part.end.min(bytes.len())]
        })
    }

    pub(crate) fn count_sent(&mut self, bytes: usize, requests: &[PreparedRequest]) {
        let part = self.pending.next_part(|request| requests[request].one_bytes);
        if let Some((request, _)) = part {
            self.pending.count_sent(bytes, requests[request].one_bytes);
        }
    }

    /// Returns the number of body bytes to come; 0 if unknown.
    pub(crate) fn body_bytes_left(&self) -> u64 {
        self.reader.body_bytes_left()
    }

    pub(crate) fn read(&mut self, bytes: &mut &[u8]) -> Result<Step, FailureKind> {
        let Some(oldest) = self.pending.oldest() else { return Err(FailureKind::Unasked) };
        let read = self.reader.read(bytes).map_err(|_| FailureKind::Malformed)?;
        let event = read.map_or(Event::Partial, |response| self.complete(response));
        Ok(Step { url: Some(oldest.url), event })
    }

    /// Whether nothing of the next response has arrived.
    pub(crate) fn is_between_responses(&self) -> bool {
        self.reader.is_between_responses()
    }

    /// Describes what the server speaks if the current response does not begin like one of HTTP/1.
    pub(crate) fn other_protocol(&self) -> Option<String> {
        self.reader.other_protocol()
    }

    /// Handles the end of the connection, which may also be the end of a response.
    pub(crate) fn close(&mut self) -> Result<Event, FailureKind> {
        match self.reader.close() {
            Ok(Some(response)) => Ok(self.complete(response)),
            Ok(None) if self.pending.is_empty() => Ok(Event::Farewell),
            Ok(None) => Err(FailureKind::Unanswered),
            Err(_) => Err(FailureKind::Truncated),
        }
    }

    /// Completes the oldest request.
    fn complete(&mut self, response: Response) -> Event {
        let Some((request, was_sent)) = self.pending.pop() else { return Event::Partial };
        // After a response to a request that was not sent completely, the state of the connection is unknown.
        let is_last = !(self.keeps_alive && response.keeps_alive && was_sent);
        Event::Response(Answer {
            request,
            status: Some(response.status),
            is_encoded: response.is_encoded,
            is_last,
        })
    }
}
