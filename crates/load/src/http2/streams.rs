//! The streams of a connection that are open, in the order in which they were begun.

use std::collections::VecDeque;

use crate::pending::PendingRequest;

use super::fields::Fields;

/// A request, and which of the connection's places it has: each is a client of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seated {
    pub(crate) request: PendingRequest,
    place: usize,
}

/// One of the streams.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) seated: Seated,
    pub(crate) begun_ns: u64,
    pub(crate) fields: Fields,
    /// How much of the body came, and of it since the server was last told that there is room again.
    pub(crate) received: u64,
    pub(crate) unacknowledged: u32,
    /// How much of the request's body was sent, and how much the server takes.
    pub(crate) body_sent: usize,
    pub(crate) window: i64,
    is_over: bool,
}

/// Open streams by their numbers, and how many responses each place had.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Those that are over stay until all before them are, or until they are many.
    all: VecDeque<Stream>,
    open: usize,
    /// Places that no stream has; the last is taken next.
    free: Vec<usize>,
    /// How many responses each place had.
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.all.iter().filter(|stream| !stream.is_over)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.all.iter_mut().filter(|stream| !stream.is_over)
    }

    /// Takes a place for a request, which waits there for its stream.
    pub(crate) fn seat(&mut self, request: PendingRequest) -> Seated {
        Seated { request, place: self.free.pop().unwrap_or(0) }
    }

    /// The request waits no longer.
    pub(crate) fn rise(&mut self, seated: Seated) {
        self.free.push(seated.place);
    }

    /// Begins a stream; its number is higher than those before.
    pub(crate) fn begin(&mut self, id: u32, seated: Seated, now_ns: u64, window: i64) {
        self.open += 1;
        self.all.push_back(Stream {
            id,
            seated,
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

    /// Ends a stream. Whether it was served counts for its place.
    pub(crate) fn end(&mut self, id: u32, is_served: bool) -> Option<PendingRequest> {
        let seated = self.close(id)?;
        self.served[seated.place] += u64::from(is_served);
        self.rise(seated);
        Some(seated.request)
    }

    /// Ends a stream whose request goes on waiting.
    pub(crate) fn close(&mut self, id: u32) -> Option<Seated> {
        let stream = self.find(id)?;
        stream.is_over = true;
        let seated = stream.seated;
        self.open -= 1;
        while self.all.front().is_some_and(|first| first.is_over) {
            self.all.pop_front();
        }
        if self.all.len() > 2 * self.open + 64 {
            self.all.retain(|stream| !stream.is_over);
        }
        Some(seated)
    }

    /// Closes the streams after one; their requests go on waiting.
    pub(crate) fn close_after(&mut self, last: u32) -> Vec<Seated> {
        let ids: Vec<_> = self.iter().map(|stream| stream.id).filter(|id| *id > last).collect();
        ids.into_iter().filter_map(|id| self.close(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(due_ns: u64) -> PendingRequest {
        PendingRequest { due_ns, url: 0, number: 0 }
    }

    #[test]
    fn a_stream_is_found_while_others_end_around_it() {
        let mut streams = Streams::new(3);
        for at in 0..3 {
            let seated = streams.seat(request(u64::from(at)));
            streams.begin(at * 2 + 1, seated, 0, 0);
        }
        for id in (7..2_001).step_by(2) {
            assert!(streams.end(id - 2, true).is_some() && streams.end(id - 2, true).is_none());
            let seated = streams.seat(request(u64::from(id)));
            streams.begin(id, seated, 0, 0);
        }
        assert!(streams.all.len() < 100, "{}", streams.all.len());
        assert_eq!(
            streams.iter().map(|one| one.seated.request.due_ns).collect::<Vec<_>>(),
            [0, 1, 1999]
        );
        assert_eq!((streams.open(), streams.served()), (3, &[0, 0, 997][..]));
        assert_eq!((streams.close_after(1).len(), streams.open()), (2, 1));
    }
}
