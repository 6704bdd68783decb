//! Output for the user: data on stdout, everything else on stderr.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use thruway_sys::printable;

use crate::screen;

/// The exit status of a failure of Thruway itself.
const FAILED: u8 = 2;

/// The exit status of a verb or an option that this system lacks.
#[cfg(not(target_os = "linux"))]
const UNSUPPORTED: u8 = 3;

/// The result of a verb: an exit status, or the failure that prevented one.
pub(crate) type Answer = Result<ExitCode, Failure>;

/// An error message of one line, with a hint if there is a cure.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    status: u8,
}

impl Failure {
    /// Creates a failure. `message` is lower-case, without a full stop, and names its subject. Control characters are
    /// escaped, so the message stays on one line.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        let message = printable::text(&message.to_string()).into_owned();
        Self { message, hint: None, status: FAILED }
    }

    /// Creates the failure of a verb or an option that exists on Linux only.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of_linux(what: impl fmt::Display) -> Self {
        Self::new(format_args!("{what} works on Linux only")).status(UNSUPPORTED)
    }

    /// Adds a hint that tells the user how to cure the failure.
    pub(crate) fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(printable::text(&hint.to_string()).into_owned());
        self
    }

    /// Sets another exit status, where a convention demands one.
    pub(crate) fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Writes the failure to stderr and returns its exit status.
    pub(crate) fn report(&self) -> ExitCode {
        self.show();
        ExitCode::from(self.status)
    }

    /// Writes the failure to stderr.
    pub(crate) fn show(&self) {
        let (red, bold) = if colourful(&io::stderr()) {
            (Style::new().fg_color(Some(AnsiColor::Red.into())).bold(), Style::new().bold())
        } else {
            (Style::new(), Style::new())
        };
        let is_ascii = screen::is_ascii();
        let shown = |text| screen::printable(text, is_ascii);
        let mut text = format!("{red}thruway:{red:#} {}\n", shown(&self.message));
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n{bold}hint:{bold:#} {}\n", shown(hint)));
        }
        print_error(text.as_bytes());
    }
}

/// Prints the requested help, or the error in the arguments, in clap's words and with this program's name.
pub(crate) fn usage(mut error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let help = styled(&error, &io::stdout());
        return print(help.as_bytes())
            .map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS);
    }
    if error.kind() == ErrorKind::InvalidUtf8 {
        return not_text(std::env::args_os()).report();
    }
    escape(&mut error);
    print_error(styled(&error, &io::stderr()).replacen("error:", "thruway:", 1).as_bytes());
    ExitCode::from(FAILED)
}

/// The failure of a command line with words that are not text, where an option takes only text.
fn not_text(words: impl Iterator<Item = OsString>) -> Failure {
    let odd: Vec<_> = words
        .filter(|word| word.to_str().is_none())
        .map(|word| printable::bytes(word.as_encoded_bytes()).into_owned())
        .collect();
    Failure::new(format_args!("an option's value is not text in UTF-8: {}", odd.join(" ")))
}

/// Escapes control characters in the user's words, so that the message's styles are its only escape sequences.
fn escape(error: &mut clap::Error) {
    let is_ascii = screen::is_ascii();
    let escaped = |text: &String| screen::printable(text, is_ascii).into_owned();
    let values: Vec<(ContextKind, ContextValue)> = error
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) => Some((kind, ContextValue::String(escaped(text)))),
            ContextValue::Strings(texts) => {
                Some((kind, ContextValue::Strings(texts.iter().map(escaped).collect())))
            }
            _ => None,
        })
        .collect();
    for (kind, value) in values {
        error.insert(kind, value);
    }
}

fn styled(error: &clap::Error, stream: &impl IsTerminal) -> String {
    let text = error.render();
    if colourful(stream) { text.ansi().to_string() } else { text.to_string() }
}

/// Writes data to stdout. A reader that has gone away (`| head`) is not an error.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format_args!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a report for people to stdout. A terminal gets lines that fit.
pub(crate) fn print_report(text: &str) -> Result<(), Failure> {
    let (width, is_ascii) = (screen::width(&io::stdout()), screen::is_ascii());
    let mut lines = String::with_capacity(text.len());
    for whole in text.split_inclusive('\n') {
        let line = screen::printable(whole.strip_suffix('\n').unwrap_or(whole), is_ascii);
        match width {
            Some(width) => lines.push_str(&screen::folded(&line, width).join("\n")),
            None => lines.push_str(&line),
        }
        if whole.ends_with('\n') {
            lines.push('\n');
        }
    }
    print(lines.as_bytes())
}

/// Writes names to stdout, one per line: escaped for a terminal, and byte for byte otherwise.
pub(crate) fn print_names(names: &[Vec<u8>]) -> Result<(), Failure> {
    let (is_read_by_people, is_ascii) = (io::stdout().is_terminal(), screen::is_ascii());
    let mut lines = Vec::new();
    for name in names {
        let shown = printable::bytes(name);
        match is_read_by_people {
            true => lines.extend_from_slice(screen::printable(&shown, is_ascii).as_bytes()),
            false => lines.extend_from_slice(name),
        }
        lines.push(b'\n');
    }
    print(&lines)
}

/// Writes a message to stderr. Nobody reads a closed stderr, so a failure to write is no error.
pub(crate) fn print_error(bytes: &[u8]) {
    let _ = io::stderr().write_all(bytes);
}

/// Whether `stream` takes colour: a terminal whose `TERM` is not `dumb`, unless `NO_COLOR` is set (no-color.org).
pub(crate) fn colourful(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_capable(stream) && !refused
}

/// Whether `stream` obeys escape sequences: a terminal whose `TERM` is not `dumb`.
pub(crate) fn is_capable(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}
