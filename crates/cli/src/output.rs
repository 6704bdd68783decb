//! Output for the user: data on stdout, everything else on stderr.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::error::{ContextKind, ContextValue};
use thruway_sys::printable;

/// The exit status of a failure of Thruway itself.
const FAILED: u8 = 2;

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
        let mut text = format!("{red}thruway:{red:#} {}\n", self.message);
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n{bold}hint:{bold:#} {hint}\n"));
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
    escape(&mut error);
    print_error(styled(&error, &io::stderr()).replacen("error:", "thruway:", 1).as_bytes());
    ExitCode::from(FAILED)
}

/// Escapes control characters in the user's words, so that the message's styles are its only escape sequences.
fn escape(error: &mut clap::Error) {
    let escaped = |text: &String| printable::text(text).into_owned();
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

/// Writes a report for people to stdout, with control characters escaped.
pub(crate) fn print_report(text: &str) -> Result<(), Failure> {
    let lines = text.split_inclusive('\n').map(|line| match line.strip_suffix('\n') {
        Some(line) => format!("{}\n", printable::text(line)),
        None => printable::text(line).into_owned(),
    });
    print(lines.collect::<String>().as_bytes())
}

/// Writes names to stdout, one per line: escaped for a terminal, and byte for byte otherwise.
pub(crate) fn print_names(names: &[Vec<u8>]) -> Result<(), Failure> {
    let is_read_by_people = io::stdout().is_terminal();
    let mut lines = Vec::new();
    for name in names {
        match is_read_by_people {
            true => lines.extend_from_slice(printable::bytes(name).as_bytes()),
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
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    stream.is_terminal() && !refused && !is_dumb
}

/// Whether the locale restricts the terminal to ASCII. Without a locale, the terminal counts as UTF-8, as the terminals
/// of containers are.
#[cfg(target_os = "linux")]
pub(crate) fn is_ascii(variable: impl Fn(&str) -> Option<String>) -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable);
    let said = said.map(|name| name.to_ascii_lowercase()).find(|name| !name.is_empty());
    said.is_some_and(|name| !name.contains("utf-8") && !name.contains("utf8"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_whether_a_terminal_shows_ascii_only() {
        let locale = |all: &'static str, lang: &'static str| {
            is_ascii(move |name| match name {
                "LC_ALL" => Some(all.to_owned()),
                "LANG" => Some(lang.to_owned()),
                _ => None,
            })
        };
        assert!(
            locale("C", "en_US.UTF-8") && locale("", "POSIX") && locale("de_DE.ISO-8859-1", "")
        );
        assert!(!locale("C.UTF-8", "C") && !locale("", "en_US.utf8") && !locale("", ""));
    }
}
