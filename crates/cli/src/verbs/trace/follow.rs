//! The lines of `--follow`, one for each call.

use std::fmt::Write as _;
use std::io::{self, Write};

use thruway_sys::printable;
use thruway_trace::{Event, EventKind, Syscall, error_name};

use super::stacks::frame_text;
use crate::screen;

/// Lines that are written whole, because the command may write to the same terminal.
pub(super) struct CallLines {
    text: String,
    is_on_stdout: bool,
    is_ascii: bool,
    /// Whether the reader of the lines has gone away. The command continues.
    is_closed: bool,
}

/// The number of buffered bytes at which the lines are written.
const BUFFER_BYTES: usize = 1 << 15;

impl CallLines {
    pub(super) fn new(is_on_stdout: bool) -> Self {
        let is_ascii = screen::is_ascii();
        Self { text: String::new(), is_on_stdout, is_ascii, is_closed: false }
    }

    /// Adds the line of a call. Other events add nothing.
    pub(super) fn add(&mut self, event: &Event<'_>) {
        let EventKind::Syscall(syscall) = &event.kind else { return };
        if self.is_closed {
            return;
        }
        // Formatting into a string does not fail.
        let _ = write_line(&mut self.text, event, syscall);
        if self.text.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    pub(super) fn flush(&mut self) {
        if self.text.is_empty() {
            return;
        }
        let text = screen::substituted(&self.text, self.is_ascii);
        let text = text.as_bytes();
        let written = if self.is_on_stdout {
            io::stdout().lock().write_all(text)
        } else {
            io::stderr().lock().write_all(text)
        };
        self.is_closed = written.is_err();
        self.text.clear();
    }
}

/// Writes the time in seconds, the thread, the call, its result and the names, and below them the stack.
fn write_line(text: &mut String, event: &Event<'_>, syscall: &Syscall<'_>) -> std::fmt::Result {
    let (seconds, thread) = (event.at_ns as f64 / 1e9, event.thread);
    let (call, result) = (syscall.call.name, result(syscall));
    write!(text, "{seconds:11.6} {thread:>7} {call:<10} {result:<7}")?;
    let [name, second] = syscall.names.map(printable::bytes);
    if !name.is_empty() {
        write!(text, " {name}")?;
    }
    if !second.is_empty() {
        write!(text, " -> {second}")?;
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    for frame in syscall.stack.iter().flat_map(|stack| &stack.frames) {
        writeln!(text, "{:20}< {}", "", printable::text(&frame_text(frame)))?;
    }
    Ok(())
}

/// Returns the name of the error, or the number that the call returned.
fn result(syscall: &Syscall<'_>) -> String {
    let name = syscall.errno().and_then(error_name);
    name.unwrap_or_else(|| syscall.result.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thruway_trace::call::Call;

    fn line(call: &str, result: i64, names: [&[u8]; 2]) -> String {
        let call = Call::named(call).expect("a call");
        let syscall = Syscall { call, duration_ns: 5, result, flags: 0, names, stack: None };
        let kind = EventKind::Syscall(syscall);
        let mut lines = CallLines::new(false);
        lines.add(&Event { at_ns: 1_234_567_891, process: 7, thread: 9, kind });
        std::mem::take(&mut lines.text)
    }

    #[test]
    fn a_line_has_the_time_the_thread_the_call_the_result_and_the_names() {
        assert_eq!(
            line("openat", 3, [b"/etc/passwd", b""]),
            "   1.234568       9 openat     3       /etc/passwd\n"
        );
        assert_eq!(
            line("rename", -2, [b"/a", b"/b"]),
            "   1.234568       9 rename     ENOENT  /a -> /b\n"
        );
        assert_eq!(line("fchdir", 0, [b"", b""]), "   1.234568       9 fchdir     0\n");
        assert_eq!(line("stat", -512, [b"", b""]), "   1.234568       9 stat       -512\n");
    }

    #[test]
    fn names_do_not_steer_the_terminal() {
        let line = line("stat", -2, [b"/\x1b]0;x\x07\n\xff", b""]);
        assert!(line.ends_with("ENOENT  /\\033]0;x\\a\\n\\377\n"), "{line}");
    }
}
