//! The events of a model in the order of their times.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Comes(usize),
    OpenLoop,
    WaitEnds(usize),
    /// Another thread of the worker leads.
    Promoted(usize),
    /// A request of the worker may have waited long enough to move.
    Due(usize),
    Asked {
        giver: usize,
        asker: usize,
    },
    Moved {
        place: usize,
        key_us: u64,
        taker: usize,
    },
}

/// The time of an event, its number, and the event.
#[derive(Debug, PartialEq)]
struct TimedEvent(f64, u64, Event);

impl Eq for TimedEvent {}

impl Ord for TimedEvent {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for TimedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The pending events, and the time in microseconds.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) now_us: f64,
    events: BinaryHeap<Reverse<TimedEvent>>,
    /// The number of events so far: simultaneous events happen in the order of their addition.
    added: u64,
}

impl Timeline {
    pub(super) fn after(&mut self, delay_us: f64, event: Event) {
        self.added += 1;
        self.events.push(Reverse(TimedEvent(self.now_us + delay_us, self.added, event)));
    }

    /// The time of the next event; infinity if there is none.
    pub(super) fn next_us(&self) -> f64 {
        self.events.peek().map_or(f64::INFINITY, |Reverse(event)| event.0)
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.events.pop().map(|Reverse(TimedEvent(_, _, event))| event)
    }
}
