//! From the rings to events, in the order in which the calls ended.

use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use thruway_sys::ticks::ticks;

use crate::area::{Area, Slot};
use crate::batch::Batch;
use crate::event::{Deed, Event};
use crate::record::Calls;
use crate::recording::Sink;
use crate::replay::{Descriptors, Replay};

/// Reads the rings.
#[derive(Debug)]
pub(crate) struct Reader {
    calls: Calls,
    replay: Replay,
    clock: Clock,
    batch: Batch,
    counts: Counts,
    command: i32,
    /// When the command began and ended, in nanoseconds.
    span: (u64, u64),
}

#[derive(Debug, Default)]
struct Counts {
    records: u64,
    /// Records that the tracer wrote, notices among them.
    by_tracer: u64,
    notices: u64,
}

impl Reader {
    pub(crate) fn new(calls: Calls) -> Self {
        Self {
            calls,
            replay: Replay::new(b"", Descriptors::new()),
            clock: Clock::start(),
            batch: Batch::default(),
            counts: Counts::default(),
            command: 0,
            span: (0, 0),
        }
    }

    /// Takes what is in the rings and passes on what is in order. Answers with the count taken.
    pub(crate) fn drain(&mut self, area: &Area, sink: &mut impl Sink) -> usize {
        let cut = ticks();
        self.clock.look();
        let mut taken = 0;
        for slot in area.slots() {
            let count = self.batch.take(area, slot);
            self.counts.by_tracer += if slot == Slot::TRACER { count as u64 } else { 0 };
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
        self.counts.records == 0
    }

    /// How many calls the tracer noted.
    pub(crate) fn traced(&self) -> u64 {
        self.counts.by_tracer - self.counts.notices
    }

    /// The command's process, as soon as there is one. It has our folder and our descriptors, which
    /// nobody changes meanwhile: time to look at them is when it runs already.
    pub(crate) fn watch(&mut self, command: i32) {
        let folder = std::env::current_dir().unwrap_or_default();
        self.replay = Replay::new(folder.as_os_str().as_bytes(), inherited());
        self.command = command;
    }

    /// How long the command ran, as far as we know.
    pub(crate) fn wall_ns(&self) -> u64 {
        let (start, end) = self.span;
        let end = if end == 0 { self.clock.ns(ticks()) } else { end };
        end.saturating_sub(start)
    }

    fn pass(&mut self, cut: u64, sink: &mut impl Sink) {
        let Self { calls, replay, clock, batch, counts, span, command } = self;
        batch.pass(cut, |view| {
            counts.records += 1;
            let (thread, at_ns) = (view.thread(), clock.ns(view.started()));
            let took_ns = clock.duration_ns(view.ended().saturating_sub(view.started()));
            let Some((process, deed)) = replay.push(calls, view, took_ns) else { return };
            counts.notices += u64::from(!matches!(deed, Deed::Called(_)));
            match deed {
                Deed::Became(_) if thread == *command && span.0 == 0 => span.0 = at_ns,
                Deed::Ended if thread == *command => span.1 = at_ns,
                _ => {}
            }
            sink.event(&Event { at_ns, process, thread, deed });
        });
    }
}

/// Descriptors that a command inherits from us: those below the ones that we opened for ourselves
/// are told apart by what they are open on, a folder.
fn inherited() -> Descriptors {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let folder = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let path = std::fs::read_link(entry.path()).ok()?;
        path.is_dir().then(|| (number, path.as_os_str().as_bytes().into()))
    };
    entries.filter_map(folder).collect()
}

/// From ticks to nanoseconds since the start. The rate is measured over the whole time so far, so
/// that its error never exceeds that of one reading of the system's clock.
#[derive(Debug)]
struct Clock {
    start_ticks: u64,
    start: Instant,
    ns_per_tick: f64,
}

impl Clock {
    fn start() -> Self {
        Self { start_ticks: ticks(), start: Instant::now(), ns_per_tick: 0.0 }
    }

    fn look(&mut self) {
        let (ticks, elapsed) = (ticks() - self.start_ticks, self.start.elapsed());
        self.ns_per_tick = elapsed.as_nanos() as f64 / ticks.max(1) as f64;
    }

    fn ns(&self, ticks: u64) -> u64 {
        self.duration_ns(ticks.saturating_sub(self.start_ticks))
    }

    fn duration_ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        let mut clock = Clock::start();
        std::thread::sleep(std::time::Duration::from_millis(20));
        clock.look();
        let now = clock.ns(ticks());
        assert!(now >= 20_000_000, "{now}");
    }
}
