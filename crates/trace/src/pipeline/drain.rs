//! From the rings to events, in the order in which the calls ended.

use thruway_sys::ticks::ticks;

use super::clock::Clock;
use super::events::EventStream;
use super::merge::MergeBuffer;
use crate::record::Calls;
use crate::recording::Sink;
use crate::shared_rings::{SharedRings, Slot};

/// Reads the rings.
#[derive(Debug)]
pub(crate) struct Drain {
    events: EventStream,
    buffer: MergeBuffer,
    /// Records that the tracer wrote, notices among them.
    by_tracer: u64,
}

impl Drain {
    pub(crate) fn new(calls: Calls) -> Self {
        let events = EventStream::new(calls, Clock::start(ticks));
        Self { events, buffer: MergeBuffer::default(), by_tracer: 0 }
    }

    /// Takes what is in the rings and passes on what is in order. Answers with the count taken.
    pub(crate) fn take(&mut self, rings: &SharedRings, sink: &mut impl Sink) -> usize {
        let cut = ticks();
        self.events.look_at_clock();
        let mut taken = 0;
        for slot in rings.slots() {
            let count = self.buffer.take(rings, slot);
            self.by_tracer += if slot == Slot::TRACER { count as u64 } else { 0 };
            taken += count;
        }
        self.pass(cut, sink);
        taken
    }

    /// Passes on the rest, after the last writer has ended.
    pub(crate) fn finish(&mut self, rings: &SharedRings, sink: &mut impl Sink) {
        self.take(rings, sink);
        self.pass(u64::MAX, sink);
    }

    /// Whether nothing was noted so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// How many calls the tracer noted.
    pub(crate) fn traced(&self) -> u64 {
        self.by_tracer - self.events.notices()
    }

    /// The command's process, as soon as there is one.
    pub(crate) fn watch(&mut self, command: i32) {
        self.events.watch(command);
    }

    /// The process that was attached to.
    pub(crate) fn watch_process(&mut self, process: i32) {
        self.events.watch_process(process);
    }

    /// How long the command ran, as far as we know.
    pub(crate) fn wall_ns(&self) -> u64 {
        self.events.wall_ns()
    }

    fn pass(&mut self, cut: u64, sink: &mut impl Sink) {
        let Self { events, buffer, .. } = self;
        buffer.pass(cut, |view| events.pass(view, sink));
    }
}
