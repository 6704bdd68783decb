//! Turns records into events: makes names absolute and times relative to the start.

use std::os::unix::ffi::OsStrExt;

use super::clock::Clock;
use super::paths::{Descriptors, PathTracker};
use crate::event::{Event, EventKind};
use crate::record::{Calls, View};
use crate::recording::Sink;

/// The state of all threads, as far as the records tell.
#[derive(Debug)]
pub(crate) struct EventStream {
    calls: Calls,
    paths: PathTracker,
    clock: Clock,
    records: u64,
    /// Records that are not calls.
    notices: u64,
    command: i32,
    /// When the command began and ended, in nanoseconds.
    span: (u64, u64),
}

impl EventStream {
    /// Creates a stream for a command that starts in the working directory. `clock` is the clock of the
    /// records.
    pub(crate) fn new(calls: Calls, clock: Clock) -> Self {
        let paths = PathTracker::new(b"", Descriptors::new());
        Self { calls, paths, clock, records: 0, notices: 0, command: 0, span: (0, 0) }
    }

    /// Sets the command's process, once it exists. The command inherits this process's working directory and
    /// descriptors, which do not change in the meantime, so they are read here while the command already
    /// runs.
    pub(crate) fn watch(&mut self, command: i32) {
        let folder = std::env::current_dir().unwrap_or_default();
        self.paths = PathTracker::new(folder.as_os_str().as_bytes(), open_folders("self"));
        self.command = command;
    }

    /// Sets the process that was attached to, which has a working directory and descriptors of its own.
    pub(crate) fn watch_process(&mut self, process: i32) {
        let folder = std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default();
        let descriptors = open_folders(&process.to_string());
        self.paths = PathTracker::new(folder.as_os_str().as_bytes(), descriptors);
        self.command = process;
    }

    /// Measures the clock's rate again, for more exact times.
    pub(crate) fn calibrate_clock(&mut self) {
        self.clock.calibrate();
    }

    /// Processes the next record. Records must come in the order in which the calls ended.
    pub(crate) fn pass(&mut self, view: View<'_>, sink: &mut impl Sink) {
        self.records += 1;
        if self.calls.is_unrecorded(view) {
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

    /// Whether nothing has been recorded so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The number of records that are not calls.
    pub(crate) fn notices(&self) -> u64 {
        self.notices
    }

    /// The run time of the command so far, in nanoseconds.
    pub(crate) fn wall_ns(&self) -> u64 {
        let (start, end) = self.span;
        let end = if end == 0 { self.clock.now_ns() } else { end };
        end.saturating_sub(start)
    }
}

/// Returns the folders that a process has open. Those of this process are inherited by the command;
/// descriptors of the recorder itself are not folders.
fn open_folders(process: &str) -> Descriptors {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let folder = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let path = std::fs::read_link(entry.path()).ok()?;
        path.is_dir().then(|| (number, path.as_os_str().as_bytes().into()))
    };
    entries.filter_map(folder).collect()
}
