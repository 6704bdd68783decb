//! From records to events: names become absolute, and times count from the start.

use std::os::unix::ffi::OsStrExt;

use super::clock::Clock;
use super::paths::{Descriptors, PathTracker};
use crate::event::{Event, EventKind};
use crate::record::{Calls, View};
use crate::recording::Sink;

/// What is known of the threads from the records so far.
#[derive(Debug)]
pub(crate) struct EventStream {
    calls: Calls,
    paths: PathTracker,
    clock: Clock,
    records: u64,
    /// Those of them that are no calls.
    notices: u64,
    command: i32,
    /// When the command began and ended, in nanoseconds.
    span: (u64, u64),
}

impl EventStream {
    /// For a command that starts in the current folder, of records by this clock.
    pub(crate) fn new(calls: Calls, clock: Clock) -> Self {
        let paths = PathTracker::new(b"", Descriptors::new());
        Self { calls, paths, clock, records: 0, notices: 0, command: 0, span: (0, 0) }
    }

    /// The command's process, as soon as there is one. It has our folder and our
    /// descriptors, which do not change meanwhile, so we look at them while it runs.
    pub(crate) fn watch(&mut self, command: i32) {
        let folder = std::env::current_dir().unwrap_or_default();
        self.paths = PathTracker::new(folder.as_os_str().as_bytes(), open_folders("self"));
        self.command = command;
    }

    /// A process that was attached to, which has a folder and descriptors of its own.
    pub(crate) fn watch_process(&mut self, process: i32) {
        let folder = std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default();
        let descriptors = open_folders(&process.to_string());
        self.paths = PathTracker::new(folder.as_os_str().as_bytes(), descriptors);
        self.command = process;
    }

    /// Measures the clock's rate again, so that later times are more exact.
    pub(crate) fn look_at_clock(&mut self) {
        self.clock.look();
    }

    /// Takes the next record, in the order in which the calls ended.
    pub(crate) fn pass(&mut self, view: View<'_>, sink: &mut impl Sink) {
        self.records += 1;
        if self.calls.is_aside(view) {
            return;
        }
        let (thread, at_ns) = (view.thread(), self.clock.ns(view.started()));
        let duration_ns = self.clock.duration_ns(view.ended().saturating_sub(view.started()));
        let Some((process, kind)) = self.paths.push(&self.calls, view, duration_ns) else {
            return;
        };
        self.notices += u64::from(!matches!(kind, EventKind::Syscall(_)));
        match kind {
            EventKind::Exec(_) if thread == self.command && self.span.0 == 0 => self.span.0 = at_ns,
            EventKind::Exit if thread == self.command => self.span.1 = at_ns,
            _ => {}
        }
        sink.event(&Event { at_ns, process, thread, kind });
    }

    /// Whether nothing was noted so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// How many records were no calls.
    pub(crate) fn notices(&self) -> u64 {
        self.notices
    }

    /// How long the command ran, as far as we know.
    pub(crate) fn wall_ns(&self) -> u64 {
        let (start, end) = self.span;
        let end = if end == 0 { self.clock.now_ns() } else { end };
        end.saturating_sub(start)
    }
}

/// The folders that a process has open. Those of ours are what a command inherits: what we opened for
/// ourselves is no folder.
fn open_folders(process: &str) -> Descriptors {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let folder = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let path = std::fs::read_link(entry.path()).ok()?;
        path.is_dir().then(|| (number, path.as_os_str().as_bytes().into()))
    };
    entries.filter_map(folder).collect()
}
