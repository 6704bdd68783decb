//! Writes a recording.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

use super::line::Line;
use super::{Header, Sink};
use crate::{Event, EventKind, Outcome};

/// A writer of a recording. Stops writing after the first error, so that the command is not disturbed and the
/// written part stays readable.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: BufWriter<W>,
    error: Option<io::Error>,
    /// The stacks that have been described.
    stacks: HashSet<u32>,
}

impl<W: Write> Writer<W> {
    /// Writes the header to `output`.
    ///
    /// # Errors
    /// The error of writing.
    pub fn new(output: W, header: &Header) -> io::Result<Self> {
        const BUFFER_BYTES: usize = 1 << 16;
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        serde_json::to_writer(&mut output, header)?;
        output.write_all(b"\n")?;
        output.flush()?;
        Ok(Self { output, error: None, stacks: HashSet::new() })
    }

    /// The error at which writing stopped.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    fn line(&mut self, line: &Line<'_>) {
        self.attempt(|output| {
            serde_json::to_writer(&mut *output, line)?;
            output.write_all(b"\n")
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

impl<W: Write> Sink for Writer<W> {
    fn event(&mut self, event: &Event<'_>) {
        let mut line = Line::of(event);
        if let EventKind::Syscall(syscall) = &event.kind
            && let Some(stack) = syscall.stack
            && self.stacks.insert(stack.id)
        {
            line.frames.clone_from(&stack.frames);
        }
        self.line(&line);
    }

    fn pause(&mut self) {
        self.attempt(BufWriter::flush);
    }

    fn end(&mut self, outcome: &Outcome) {
        self.line(&Line::of_end(outcome));
        self.attempt(BufWriter::flush);
    }
}
