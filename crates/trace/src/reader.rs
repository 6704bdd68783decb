//! From the rings to events, in the order in which the calls ended.

use thruway_sys::ticks::ticks;

use crate::area::{Area, Slot};
use crate::batch::Batch;
use crate::clock::Clock;
use crate::record::Calls;
use crate::recording::Sink;
use crate::stream::Stream;

/// Reads the rings.
#[derive(Debug)]
pub(crate) struct Reader {
    stream: Stream,
    batch: Batch,
    /// Records that the tracer wrote, notices among them.
    by_tracer: u64,
}

impl Reader {
    pub(crate) fn new(calls: Calls) -> Self {
        let stream = Stream::new(calls, Clock::start(ticks));
        Self { stream, batch: Batch::default(), by_tracer: 0 }
    }

    /// Takes what is in the rings and passes on what is in order. Answers with the count taken.
    pub(crate) fn drain(&mut self, area: &Area, sink: &mut impl Sink) -> usize {
        let cut = ticks();
        self.stream.look_at_clock();
        let mut taken = 0;
        for slot in area.slots() {
            let count = self.batch.take(area, slot);
            self.by_tracer += if slot == Slot::TRACER { count as u64 } else { 0 };
            taken += count;
        }
        self.pass(cut, sink);
        taken
    }

    /// Passes on the rest: nobody writes any more.
    pub(crate) fn finish(&mut self, area: &Area, sink: &mut impl Sink) {
        self.drain(area, sink);
        self.pass(u64::MAX, sink);
    }

    /// Whether nothing was noted so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.stream.is_empty()
    }

    /// How many calls the tracer noted.
    pub(crate) fn traced(&self) -> u64 {
        self.by_tracer - self.stream.notices()
    }

    /// The command's process, as soon as there is one.
    pub(crate) fn watch(&mut self, command: i32) {
        self.stream.watch(command);
    }

    /// The process that was attached to.
    pub(crate) fn watch_process(&mut self, process: i32) {
        self.stream.watch_process(process);
    }

    /// How long the command ran, as far as we know.
    pub(crate) fn wall_ns(&self) -> u64 {
        self.stream.wall_ns()
    }

    fn pass(&mut self, cut: u64, sink: &mut impl Sink) {
        let Self { stream, batch, .. } = self;
        batch.pass(cut, |view| stream.pass(view, sink));
    }
}
