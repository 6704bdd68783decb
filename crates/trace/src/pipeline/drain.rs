//! Reads the rings and produces events in the order in which the calls ended.

use thruway_sys::ticks::ticks;

use super::clock::Clock;
use super::events::EventStream;
use super::merge::MergeBuffer;
use crate::record::Calls;
use crate::recording::Sink;
use crate::shared_rings::{SharedRings, Slot};

/// A reader of all rings.
#[derive(Debug)]
pub(crate) struct Drain {
    events: EventStream,
    buffer: MergeBuffer,
    /// Records written by the tracer, including notices.
    by_tracer: u64,
}

impl Drain {
    pub(crate) fn new(calls: Calls) -> Self {
        let events = EventStream::new(calls, Clock::start(ticks));
        Self { events, buffer: MergeBuffer::default(), by_tracer: 0 }
    }

    /// Reads the rings and passes on the records whose order is final. Returns the number of records read.
    pub(crate) fn take(&mut self, rings: &SharedRings, sink: &mut impl Sink) -> usize {
        let cut = ticks();
        self.events.calibrate_clock();
        let mut taken = 0;
        for slot in rings.slots() {
            let count = self.buffer.take(rings, slot);
            self.by_tracer += if slot == Slot::TRACER { count as u64 } else { 0 };
            taken += count;
        }
        self.pass(cut, sink);
        taken
    }

    /// Passes on the remaining records, after the last writer has ended.
    pub(crate) fn finish(&mut self, rings: &SharedRings, sink: &mut impl Sink) {
        self.take(rings, sink);
        self.pass(u64::MAX, sink);
    }

    /// Whether nothing has been recorded so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The number of calls that the tracer recorded.
    pub(crate) fn traced(&self) -> u64 {
        self.by_tracer - self.events.notices()
    }

    /// Sets the command's process, once it exists.
    pub(crate) fn watch(&mut self, command: i32) {
        self.events.watch(command);
    }

    /// Sets the processes that were attached to.
    pub(crate) fn watch_processes(&mut self, processes: &[i32]) {
        self.events.watch_processes(processes);
    }

    /// The run time of the command so far, in nanoseconds.
    pub(crate) fn wall_ns(&self) -> u64 {
        self.events.wall_ns()
    }

    fn pass(&mut self, cut: u64, sink: &mut impl Sink) {
        let Self { events, buffer, .. } = self;
        buffer.pass(cut, |view| events.pass(view, sink));
    }
}
