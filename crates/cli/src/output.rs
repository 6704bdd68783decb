//! What the user reads: data on stdout, everything else on stderr.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};

/// Exit status of our own failure.
const FAILED: u8 = 2;

/// A verb's answer, or what kept it from answering.
pub(crate) type Answer = Result<ExitCode, Failure>;

/// One line that names the thing, and the cure where there is one.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    status: u8,
}

impl Failure {
    /// `message` is lower-case, without a full stop, and names what it is about.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None, status: FAILED }
    }

    /// What the user can do about it.
    pub(crate) fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Another exit status, where a convention has one.
    #[cfg(unix)]
    pub(crate) fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Writes the failure to stderr and gives its exit status.
    pub(crate) fn report(&self) -> ExitCode {
        self.show();
        ExitCode::from(self.status)
    }

    /// Writes it to stderr.
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

/// Prints the help that was asked for, or what is wrong with the arguments: clap's text, our name.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let help = styled(error, &io::stdout());
        return print(help.as_bytes())
            .map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS);
    }
    let text = styled(error, &io::stderr()).replacen("error:", "thruway:", 1);
    // A closed stderr has no reader.
    let _ = io::stderr().write_all(text.as_bytes());
    ExitCode::from(FAILED)
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

/// Writes what is no data to stderr. A closed stderr has no reader, so that is no error.
pub(crate) fn print_error(bytes: &[u8]) {
    let _ = io::stderr().write_all(bytes);
}

/// Whether `stream` wants colour: it is a terminal that knows more than text (`TERM` is not `dumb`), and
/// `NO_COLOR` is not set (no-color.org).
pub(crate) fn colourful(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    stream.is_terminal() && !refused && !is_dumb
}
