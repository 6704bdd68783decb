//! The open streams of a connection, in the order in which they began.

use std::collections::VecDeque;

use crate::pending::PendingRequest;

use super::fields::Fields;

/// A request with the place that its stream occupies, as in [`Streams`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedRequest {
    pub(crate) request: PendingRequest,
    place: usize,
}

/// A stream.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) placed: PlacedRequest,
    pub(crate) begun_ns: u64,
    pub(crate) fields: Fields,
    /// The number of body bytes received, and of those received since the stream's window was last renewed.
    pub(crate) received: u64,
    pub(crate) unacknowledged: u32,
    /// The number of body bytes sent, and the remaining window.
    pub(crate) body_sent: usize,
    pub(crate) window: i64,
    is_over: bool,
}

/// Open streams by ID, and the responses for each place.
///
/// A connection has as many places as streams that may be open at a time. A stream occupies one place, and the next
/// stream takes it over. So a place acts as a client that sends one request after another, and has a share of the
/// responses.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Streams in order. Finished ones stay until all before them have finished, or until there are many.
    all: VecDeque<Stream>,
    open: usize,
    /// Places without a stream. The last one is used next.
    free: Vec<usize>,
    /// The number of responses for each place.
    served: Vec<u64>,
}

impl Streams {
    pub(crate) fn new(places: usize) -> Self {
        let free = (0..places).rev().collect();
        Self { free, served: vec![0; places], ..Self::default() }
    }

    pub(crate) fn open(&self) -> usize {
        self.open
    }

    pub(crate) fn served(&self) -> &[u64] {
        &self.served
    }

    pub(crate) fn forget_served(&mut self) {
        self.served.fill(0);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.all.iter().filter(|stream| !stream.is_over)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.all.iter_mut().filter(|stream| !stream.is_over)
    }

    /// Assigns a place to a request, which waits there for its stream.
    pub(crate) fn assign_place(&mut self, request: PendingRequest) -> PlacedRequest {
        PlacedRequest { request, place: self.free.pop().unwrap_or(0) }
    }

    /// Frees the place of a request that no longer waits.
    pub(crate) fn free_place(&mut self, placed: PlacedRequest) {
        self.free.push(placed.place);
    }

    /// Opens a stream. IDs must be ascending.
    pub(crate) fn begin(&mut self, id: u32, placed: PlacedRequest, now_ns: u64, window: i64) {
        self.open += 1;
        self.all.push_back(Stream {
            id,
            placed,
            begun_ns: now_ns,
            fields: Fields::default(),
            received: 0,
            unacknowledged: 0,
            body_sent: 0,
            window,
            is_over: false,
        });
    }

    pub(crate) fn find(&mut self, id: u32) -> Option<&mut Stream> {
        let at = self.all.binary_search_by_key(&id, |stream| stream.id).ok()?;
        self.all.get_mut(at).filter(|stream| !stream.is_over)
    }

    /// Closes a stream and frees its place. `is_served` tells whether it counts as a response.
    pub(crate) fn end(&mut self, id: u32, is_served: bool) -> Option<PendingRequest> {
        let placed = self.close(id)?;
        self.served[placed.place] += u64::from(is_served);
        self.free_place(placed);
        Some(placed.request)
    }

    /// Closes a stream whose request continues to wait.
    pub(crate) fn close(&mut self, id: u32) -> Option<PlacedRequest> {
        let stream = self.find(id)?;
        stream.is_over = true;
        let placed = stream.placed;
        self.open -= 1;
        while self.all.front().is_some_and(|first| first.is_over) {
            self.all.pop_front();
        }
        if self.all.len() > 2 * self.open + 64 {
            self.all.retain(|stream| !stream.is_over);
        }
        Some(placed)
    }

    /// Closes the streams after `last`, whose requests continue to wait.
    pub(crate) fn close_after(&mut self, last: u32) -> Vec<PlacedRequest> {
        let ids: Vec<_> = self.iter().map(|stream| stream.id).filter(|id| *id > last).collect();
        ids.into_iter().filter_map(|id| self.close(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(due_ns: u64) -> PendingRequest {
        PendingRequest { due_ns, url: 0, request: 0, number: 0 }
    }

    #[test]
    fn a_stream_is_found_while_others_end_around_it() {
        let mut streams = Streams::new(3);
        for at in 0..3 {
            let placed = streams.assign_place(request(u64::from(at)));
            streams.begin(at * 2 + 1, placed, 0, 0);
        }
        for id in (7..2_001).step_by(2) {
            assert!(streams.end(id - 2, true).is_some() && streams.end(id - 2, true).is_none());
            let placed = streams.assign_place(request(u64::from(id)));
            streams.begin(id, placed, 0, 0);
        }
        assert!(streams.all.len() < 100, "{}", streams.all.len());
        assert_eq!(
            streams.iter().map(|one| one.placed.request.due_ns).collect::<Vec<_>>(),
            [0, 1, 1999]
        );
        assert_eq!((streams.open(), streams.served()), (3, &[0, 0, 997][..]));
        assert_eq!((streams.close_after(1).len(), streams.open()), (2, 1));
    }
}
