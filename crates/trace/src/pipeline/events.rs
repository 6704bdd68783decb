//! Turns records into events: makes names absolute and times relative to the start.

use std::os::unix::ffi::OsStrExt;

use super::clock::Clock;
use super::paths::{Descriptors, PathTracker};
use super::stacks::StackTable;
use crate::event::{Event, EventKind};
use crate::record::{Calls, View};
use crate::recording::Sink;

/// The state of all threads, as far as the records tell.
#[derive(Debug)]
pub(crate) struct EventStream {
    calls: Calls,
    paths: PathTracker,
    clock: Clock,
    stacks: StackTable,
    records: u64,
    /// Records that are not calls.
    notices: u64,
    /// The command, or the processes that were attached to, as far as they have not ended.
    watched: Vec<i32>,
    /// When the command began, in nanoseconds; an attachment begins with the recording.
    start: Option<u64>,
    /// When the last watched process ended, in nanoseconds.
    end: Option<u64>,
}

impl EventStream {
    /// Creates a stream for a command that starts in the working directory. `clock` is the clock of the
    /// records.
    pub(crate) fn new(calls: Calls, clock: Clock) -> Self {
        let paths = PathTracker::new(b"", Descriptors::default());
        let (watched, start, end) = (Vec::new(), None, None);
        let stacks = StackTable::default();
        Self { calls, paths, clock, stacks, records: 0, notices: 0, watched, start, end }
    }

    /// Sets the command's process, once it exists. The command inherits this process's working directory and
    /// descriptors, which do not change in the meantime, so they are read here while the command already
    /// runs.
    pub(crate) fn watch(&mut self, command: i32) {
        let folder = std::env::current_dir().unwrap_or_default();
        self.paths = PathTracker::new(folder.as_os_str().as_bytes(), open_folders("self"));
        self.watched = vec![command];
    }

    /// Sets the processes that were attached to, each of which has a working directory and descriptors of its own.
    pub(crate) fn watch_processes(&mut self, processes: &[i32]) {
        for process in processes {
            let folder = std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default();
            let descriptors = open_folders(&process.to_string());
            self.paths.adopt(*process, folder.as_os_str().as_bytes(), descriptors);
        }
        self.watched = processes.to_vec();
        self.start = Some(0);
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
        if self.stacks.push(self.calls.subject(view.number()), view) {
            self.notices += 1;
            return;
        }
        let (thread, at_ns) = (view.thread(), self.clock.ns(view.started()));
        let duration_ns = self.clock.duration_ns(view.ended().saturating_sub(view.started()));
        let Some((process, mut kind)) = self.paths.push(&self.calls, view, duration_ns) else {
            return;
        };
        self.notices += u64::from(!matches!(kind, EventKind::Syscall(_)));
        match &mut kind {
            EventKind::Syscall(syscall) => syscall.stack = self.stacks.of_next_call(thread),
            EventKind::Exec(_) if self.watched.contains(&thread) => {
                self.start.get_or_insert(at_ns);
            }
            EventKind::Exit if self.watched.contains(&thread) => {
                self.watched.retain(|watched| *watched != thread);
                self.end = self.watched.is_empty().then_some(at_ns);
            }
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
        let end = self.end.unwrap_or_else(|| self.clock.now_ns());
        end.saturating_sub(self.start.unwrap_or(0))
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
