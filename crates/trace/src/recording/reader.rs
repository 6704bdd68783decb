//! Reads a recording.

use std::collections::HashMap;
use std::io::{self, BufRead};

use super::line::{Line, header};
use super::{Header, Sink, plain};
use crate::{Error, Outcome, Stack};

/// A reader of a recording, line by line.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// The name of the file in messages.
    name: Vec<u8>,
    header: Header,
    buffer: Vec<u8>,
    lines: u64,
    /// The stacks that the lines so far have described.
    stacks: HashMap<u32, Stack>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header. `name` is the name of the file in messages.
    ///
    /// # Errors
    /// The file cannot be read, or is not a recording in a known format.
    pub fn new(input: R, name: &[u8]) -> Result<Self, Error> {
        let placeholder = Header::default();
        let mut reader = Self {
            input,
            name: name.to_vec(),
            header: placeholder,
            buffer: Vec::new(),
            lines: 0,
            stacks: HashMap::new(),
        };
        reader.next_line()?;
        reader.header = header(&reader.buffer).map_err(|reason| reader.malformed(reason))?;
        Ok(reader)
    }

    /// The description of the recording.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Passes every event, and then the outcome, to `sink`. A recording without an end counts as cut short.
    ///
    /// # Errors
    /// The file cannot be read, or has an invalid line.
    pub fn run(mut self, sink: &mut impl Sink) -> Result<Outcome, Error> {
        let mut names = Vec::new();
        let mut last_ns = 0;
        while self.next_line()? {
            if let Some(event) = plain::event(&self.buffer) {
                last_ns = last_ns.max(event.at_ns);
                sink.event(&event);
                continue;
            }
            let mut line: Line<'_> = match serde_json::from_slice(&self.buffer) {
                Ok(line) => line,
                // The writer was stopped in the middle of the line.
                Err(_) if !self.buffer.ends_with(b"\n") => break,
                Err(error) => return Err(self.malformed(error)),
            };
            if let Some(end) = line.end {
                let outcome = end.outcome();
                sink.end(&outcome);
                return Ok(outcome);
            }
            last_ns = last_ns.max(line.at_ns);
            if let (Some(id), false) = (line.stack, line.frames.is_empty()) {
                let frames = std::mem::take(&mut line.frames);
                self.stacks.insert(id, Stack { id, frames });
            }
            match line.event(&mut names, &self.stacks) {
                Some(event) => sink.event(&event),
                None => return Err(self.malformed("unknown kind of event")),
            }
        }
        let outcome = Outcome::cut_short(last_ns);
        sink.end(&outcome);
        Ok(outcome)
    }

    /// Reads the next line into the buffer. Returns `false` at the end of the file.
    fn next_line(&mut self) -> Result<bool, Error> {
        self.buffer.clear();
        self.lines += 1;
        let read = self.input.read_until(b'\n', &mut self.buffer);
        let failed = |error: io::Error| Error::system("read", &self.name, error);
        Ok(read.map_err(failed)? > 0)
    }

    fn malformed(&self, reason: impl std::fmt::Display) -> Error {
        Error::malformed(&self.name, self.lines, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::event::{EventKind, Syscall};
    use crate::{Backend, Change, Event, Writer};

    /// Stores events as text.
    #[derive(Default)]
    struct Keeper(Vec<String>);

    impl Sink for Keeper {
        fn event(&mut self, event: &Event<'_>) {
            self.0.push(format!("{event:?}"));
        }
    }

    fn header() -> Header {
        Header {
            thruway: "trace".into(),
            format: 2,
            command: vec!["ls".into(), "-l \"x\"".into()],
            backend: Backend::Ptrace,
            ..Header::default()
        }
    }

    fn events<'a>() -> Vec<Event<'a>> {
        let called = |names| Syscall {
            call: Call::named("renameat2").unwrap(),
            duration_ns: 5,
            result: -2,
            flags: 7,
            names,
            stack: None,
        };
        let kinds = vec![
            EventKind::Spawn { child: 12, is_thread: true },
            EventKind::Syscall(called([b"/a \"b\"\\\n", b""])),
            EventKind::Syscall(called([b"/plain", b"/not \xff text"])),
            EventKind::Syscall(called([b"/\xfe", b"/\xff"])),
            EventKind::Exec(vec![b"ls", b"", b"\xff"]),
            EventKind::Exit,
        ];
        let event = |(at_ns, kind)| Event { at_ns, process: 11, thread: 12, kind };
        (0..).zip(kinds).map(event).collect()
    }

    fn outcome() -> Outcome {
        let end = Some(Change::Killed(9));
        Outcome { end, wall_ns: 99, stops: 3, traced: 2, is_cut_short: false }
    }

    fn written() -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, &header()).unwrap();
        events().iter().for_each(|event| writer.event(event));
        writer.end(&outcome());
        assert!(writer.error().is_none());
        drop(writer);
        file
    }

    fn read(file: &[u8]) -> Result<(Vec<String>, Outcome), String> {
        let mut orphan_guard = Keeper::default();
        let reader = Reader::new(file, b"file").map_err(|error| error.to_string())?;
        assert_eq!(*reader.header(), header());
        let outcome = reader.run(&mut orphan_guard).map_err(|error| error.to_string())?;
        Ok((orphan_guard.0, outcome))
    }

    #[test]
    fn written_events_are_read_back() {
        let expected: Vec<_> = events().iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(read(&written()), Ok((expected, outcome())));
    }

    #[test]
    fn a_recording_that_was_cut_anywhere_is_read_up_to_there() {
        let file = written();
        let whole = read(&file).unwrap().0;
        let first = file.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for end in first..file.len() - 1 {
            let (events, outcome) = read(&file[..end]).unwrap();
            assert_eq!(events[..], whole[..events.len()]);
            assert!(outcome.is_cut_short || events.len() == whole.len());
        }
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let mut file = written();
        let text = String::from_utf8(file.clone()).unwrap().replace("renameat2", "fly");
        let error = read(text.as_bytes()).unwrap_err();
        assert_eq!(error, "file, line 3: unknown kind of event");
        let second = file.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        file[second] = b'!';
        assert!(read(&file).unwrap_err().starts_with("file, line 2: expected value"));
    }

    #[test]
    fn a_newer_format_is_refused_whatever_else_is_in_it() {
        let line = b"{\"thruway\":\"trace\",\"format\":3,\"command\":\"other\"}\n";
        let error = Reader::new(&line[..], b"f").unwrap_err().to_string();
        let expected = "f, line 1: format 3 is too new: this thruway reads formats up to 2";
        assert_eq!(error, expected);
    }

    #[test]
    fn other_files_are_no_recordings() {
        for text in ["", "{}", "x\n", "{\"thruway\":\"load\"}\n"] {
            let error = Reader::new(text.as_bytes(), b"f").unwrap_err().to_string();
            assert_eq!(error, "f, line 1: not a recording of thruway trace");
        }
    }
}
