//! The sinks of calls, which are recorded live or read from a recording.

use std::fs::File;

use thruway_sys::printable;
use thruway_trace::analysis::{Analysis, Selection};
use thruway_trace::{Event, Outcome, Sink, TraceEvents, Writer};

use super::arguments::Trace;
use super::follow::CallLines;
use super::progress::Progress;
use crate::output::Failure;

pub(super) struct Sinks {
    pub(super) analysis: Analysis,
    /// The selection to which reports are limited, if any.
    pub(super) selection: Option<Selection>,
    /// The writer of the recording.
    pub(super) writer: Option<Writer<File>>,
    pub(super) events: Option<TraceEvents<File>>,
    pub(super) progress: Option<Progress>,
    /// The lines of `--follow`.
    pub(super) lines: Option<CallLines>,
}

impl Sinks {
    /// Returns the failures of files that could not be written completely.
    pub(super) fn failures(&self, trace: &Trace) -> Vec<Failure> {
        let recording = (self.writer.as_ref().and_then(Writer::error), &trace.output);
        let events = (self.events.as_ref().and_then(TraceEvents::error), &trace.perfetto);
        let failures = [recording, events].into_iter().filter_map(|(error, file)| {
            let (error, file) = (error?, printable::path(file.as_ref()?));
            Some(Failure::new(format_args!("{file} ends early: {error}")))
        });
        failures.collect()
    }
}

impl Sink for Sinks {
    fn event(&mut self, event: &Event<'_>) {
        let mut reports = Reports {
            analysis: &mut self.analysis,
            events: self.events.as_mut(),
            lines: self.lines.as_mut(),
        };
        match &mut self.selection {
            Some(selection) => selection.pass(event, &mut reports),
            None => reports.event(event),
        }
        if let Some(writer) = &mut self.writer {
            writer.event(event);
        }
    }

    fn pause(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.pause();
        }
        if let Some(lines) = &mut self.lines {
            lines.flush();
        }
        if let Some(progress) = &mut self.progress {
            progress.show(&self.analysis);
        }
    }

    fn end(&mut self, outcome: &Outcome) {
        if let Some(writer) = &mut self.writer {
            writer.end(outcome);
        }
        if let Some(events) = &mut self.events {
            events.end(outcome);
        }
        if let Some(lines) = &mut self.lines {
            lines.flush();
        }
    }
}

/// The sinks to which a selection applies. A recording always contains every call.
struct Reports<'a> {
    analysis: &'a mut Analysis,
    events: Option<&'a mut TraceEvents<File>>,
    lines: Option<&'a mut CallLines>,
}

impl Sink for Reports<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.analysis.event(event);
        if let Some(events) = &mut self.events {
            events.event(event);
        }
        if let Some(lines) = &mut self.lines {
            lines.add(event);
        }
    }
}
