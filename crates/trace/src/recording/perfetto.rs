//! Writes a recording as trace events, the JSON format of Perfetto (ui.perfetto.dev) and other viewers: a
//! track for each thread, a slice for each call.

use std::io::{self, BufWriter, Write};

use serde_json::{Value, json};

use super::Sink;
use crate::{Event, EventKind, Outcome, Syscall};

/// A writer of trace events. Stops writing after the first error.
#[derive(Debug)]
pub struct TraceEvents<W: Write> {
    output: BufWriter<W>,
    is_first: bool,
    error: Option<io::Error>,
}

impl<W: Write> TraceEvents<W> {
    /// Creates a writer to `output`.
    pub fn new(output: W) -> Self {
        Self { output: BufWriter::new(output), is_first: true, error: None }
    }

    /// The error at which writing stopped.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    fn write(&mut self, event: &Value) {
        let separator = if self.is_first { "{\"traceEvents\":[\n" } else { ",\n" };
        self.is_first = false;
        self.attempt(|output| {
            output.write_all(separator.as_bytes())?;
            Ok(serde_json::to_writer(output, event)?)
        });
    }

    fn attempt(&mut self, write: impl FnOnce(&mut BufWriter<W>) -> io::Result<()>) {
        if self.error.is_none()
            && let Err(error) = write(&mut self.output)
        {
            self.error = Some(error);
        }
    }
}

impl<W: Write> Sink for TraceEvents<W> {
    fn event(&mut self, event: &Event<'_>) {
        let written = match &event.kind {
            EventKind::Syscall(syscall) => slice(event, syscall),
            EventKind::Exec(words) => {
                let words = words.iter().map(|word| String::from_utf8_lossy(word));
                let name = words.collect::<Vec<_>>().join(" ");
                let arguments = json!({ "name": name });
                json!({ "ph": "M", "name": "process_name", "pid": event.process, "args": arguments })
            }
            EventKind::Spawn { .. } | EventKind::Exit => return,
        };
        self.write(&written);
    }

    fn end(&mut self, _outcome: &Outcome) {
        let start = if self.is_first { "{\"traceEvents\":[" } else { "" };
        self.attempt(|output| {
            output.write_all(start.as_bytes())?;
            output.write_all(b"\n],\"displayTimeUnit\":\"ns\"}\n")?;
            output.flush()
        });
    }
}

/// Returns a call as a slice. The format counts time in microseconds.
fn slice(event: &Event<'_>, syscall: &Syscall<'_>) -> Value {
    let microseconds = |ns: u64| ns as f64 / 1e3;
    let category = match syscall.errno() {
        None => "found",
        Some(2 | 20) => "not there",
        Some(_) => "failed",
    };
    json!({
        "ph": "X",
        "name": syscall.call.name,
        "cat": category,
        "ts": microseconds(event.at_ns),
        "dur": microseconds(syscall.duration_ns),
        "pid": event.process,
        "tid": event.thread,
        "args": { "name": String::from_utf8_lossy(syscall.names[0]), "result": syscall.result },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;

    fn written(events: &[Event<'_>]) -> Value {
        let mut file = Vec::new();
        let mut writer = TraceEvents::new(&mut file);
        events.iter().for_each(|event| writer.event(event));
        writer.end(&Outcome::cut_short(0));
        assert!(writer.error().is_none());
        drop(writer);
        serde_json::from_slice(&file).unwrap()
    }

    #[test]
    fn a_call_is_a_slice_of_its_thread() {
        let syscall = Syscall {
            call: Call::named("open").unwrap(),
            duration_ns: 1500,
            result: -2,
            flags: 0,
            names: [b"/a", b""],
            stack: None,
        };
        let event = |kind| Event { at_ns: 2000, process: 1, thread: 3, kind };
        let file = written(&[
            event(EventKind::Exec(vec![b"ls", b"-l"])),
            event(EventKind::Syscall(syscall)),
            event(EventKind::Exit),
        ]);
        let events = file["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0]["args"]["name"], "ls -l");
        assert_eq!((&events[1]["ts"], &events[1]["dur"]), (&json!(2.0), &json!(1.5)));
        assert_eq!((&events[1]["tid"], &events[1]["cat"]), (&json!(3), &json!("not there")));
    }

    #[test]
    fn nothing_is_still_a_file() {
        assert_eq!(written(&[])["traceEvents"], json!([]));
    }
}
