//! `thruway run --preload` and `thruway preload`: commands as forks of a booted application.

mod maker;
mod status;

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use thruway_boot::Options;
use thruway_preload::client::{self, Answer, RunningCommand};
use thruway_preload::history::{History, Miss};
use thruway_preload::key::{Invocation, Key};
use thruway_preload::one_shot::one_shot_word;
use thruway_preload::role::{self, Assignment, Role};
use thruway_preload::template_folder::{KeyFile, TemplateFolder};
use thruway_preload::terminal::Terminal;
use thruway_spawn::{Command, variables_of};
use thruway_sys::printable;

pub(crate) use status::Preload;

use crate::output::{Failure, print_error};

/// The pause after a template could not be made, before the next attempt.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Runs the command as a fork and breaks with its exit status, or continues with the command that the caller has to
/// start.
pub(crate) fn run(
    words: &[OsString],
    options: &Options,
    command: Command,
) -> Result<ControlFlow<ExitCode, Command>, Failure> {
    match PreloadedCommand::new(words, options) {
        Some(preloaded) => preloaded.run(command),
        None => Ok(ControlFlow::Continue(command)),
    }
}

/// A command that may run as a fork of a template.
struct PreloadedCommand<'a> {
    words: &'a [OsString],
    explains: bool,
}

impl<'a> PreloadedCommand<'a> {
    /// Returns `None` if the user or the machine rules out a fork. Prints the reason if `options` ask for explanations.
    fn new(words: &'a [OsString], options: &Options) -> Option<Self> {
        let preloaded = Self { words, explains: options.explain };
        match objection(options).or_else(|| passing(words)) {
            None => Some(preloaded),
            Some(reason) => {
                preloaded.explain(format_args!("booted, since {reason}"));
                None
            }
        }
    }

    /// Runs the command as a fork, or starts to make a template for the next such command.
    fn run(&self, command: Command) -> Result<ControlFlow<ExitCode, Command>, Failure> {
        match self.try_run(&command) {
            Ok(Attempt::Running(running)) => {
                self.explain(format_args!("forked from template {}", running.template));
                return Ok(ControlFlow::Break(wait(running)?));
            }
            Ok(Attempt::Learn(post, reason)) => {
                self.explain(format_args!("booted, since {reason}"));
                let role = Role::Learner(post).value();
                return Ok(ControlFlow::Continue(command.env(role::VARIABLE, role)));
            }
            Ok(Attempt::Alone(reason)) => self.explain(format_args!("booted, since {reason}")),
            Err(error) => {
                self.explain(format_args!("booted, since a template cannot be asked: {error}"))
            }
        }
        Ok(ControlFlow::Continue(command))
    }

    fn try_run(&self, started: &Command) -> io::Result<Attempt> {
        let place = TemplateFolder::of_user(|name| std::env::var_os(name))?;
        let terminal = Terminal::of_process()?;
        let environment = variables_of(started);
        let version = version();
        let invocation =
            Invocation { words: self.words, environment: &environment, version: &version };
        let key = Key::of_process(&invocation, &terminal)?;
        let number = key.number();
        let command =
            client::Command { words: self.words, environment: &environment, terminal: &terminal };
        let reason = match client::ask(&place, number, &command, client::ANSWER_MAX)? {
            Answer::Started(running) => return Ok(Attempt::Running(running)),
            Answer::Refused(reason) => reason,
            Answer::NoTemplate if is_being_made(&place, number) => {
                "a template is being made".to_owned()
            }
            Answer::NoTemplate => match refusal(&place, number) {
                Some(reason) => {
                    self.note(&place, number, &reason);
                    return Ok(Attempt::Alone(format!("there is no template: {reason}")));
                }
                None => missing(&place, &key),
            },
        };
        self.note(&place, number, &reason);
        let Some(lock) = place.lock(number)? else {
            return Ok(Attempt::Alone(reason));
        };
        let order =
            maker::Order { place: &place, key: &key, lock, words: self.words, command: started };
        let post = maker::start(&order)?;
        Ok(Attempt::Learn(post, reason))
    }

    /// Records the reason why this command is not a fork, for reports.
    fn note(&self, place: &TemplateFolder, key: u128, reason: &str) {
        let history = History::of(place, key).unwrap_or_else(|| {
            let words: Vec<_> = self.words.iter().map(|word| word.to_string_lossy()).collect();
            let folder = std::env::current_dir().unwrap_or_default();
            let folder = folder.to_string_lossy().into_owned();
            History { command: words.join(" "), folder, ..History::default() }
        });
        history.add(place, key, Miss::now(reason));
    }

    fn explain(&self, text: std::fmt::Arguments<'_>) {
        if self.explains {
            let text = text.to_string();
            print_error(format!("thruway: preload: {}\n", printable::text(&text)).as_bytes());
        }
    }
}

enum Attempt {
    Running(RunningCommand),
    Learn(Assignment, String),
    Alone(String),
}

/// Returns a reason not to fork that holds whatever templates exist.
fn objection(options: &Options) -> Option<String> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if variable("THRUWAY_PRELOAD").is_some_and(|value| value == "0") {
        return Some("THRUWAY_PRELOAD is 0".to_owned());
    }
    if options.is_frozen() {
        return Some("a frozen pack asks no questions that could be compared".to_owned());
    }
    if options.portable {
        return Some("the portable mode cannot observe the queries of a boot".to_owned());
    }
    if variable("RUBY_BOX").is_some_and(|value| value == "1") {
        return Some("RUBY_BOX=1 gives each box features that a template cannot have".to_owned());
    }
    if variable("CI").is_some() {
        return Some("CI is set".to_owned());
    }
    let folder = std::fs::metadata(".").ok()?;
    let is_open = folder.mode() & 0o022 != 0 || folder.uid() != 0;
    let is_root = rustix::process::geteuid().is_root();
    (is_root && is_open)
        .then(|| "root does not run code from a folder that others can write".to_owned())
}

/// Returns a reason not to fork a command that reads a pipe or a device. A template would consume the command's input.
fn passing(words: &[OsString]) -> Option<String> {
    let word = one_shot_word(words)?;
    Some(format!("{} can be read once", word.to_string_lossy()))
}

/// Whether the environment requests preloading.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os("THRUWAY_PRELOAD").is_some_and(|value| !value.is_empty() && value != "0")
}

/// The variable that lists further files that a boot reads unobserved, in the form of `PATH`.
const FURTHER_FILES: &str = "THRUWAY_PRELOAD_FILES";

/// Adds files with absolute paths to the files that the command's boot reads unobserved.
pub(crate) fn with_files(command: Command, files: Vec<PathBuf>) -> Result<Command, Failure> {
    let given = std::env::var_os(FURTHER_FILES).unwrap_or_default();
    let given = std::env::split_paths(&given).filter(|path| !path.as_os_str().is_empty());
    let files = std::env::join_paths(given.chain(files));
    let failed = |error| Failure::new(format_args!("--preload-file: {error}"));
    Ok(command.env(FURTHER_FILES, files.map_err(failed)?))
}

/// Returns the identity of this program. Templates depend on the program as well as on Ruby.
fn version() -> String {
    let program = std::fs::metadata("/proc/self/exe").ok();
    let stamp = program.map(|stat| (stat.dev(), stat.ino(), stat.mtime(), stat.mtime_nsec()));
    format!("{} {stamp:?}", env!("CARGO_PKG_VERSION"))
}

/// Whether a process is making the template. Such a process holds the lock.
fn is_being_made(place: &TemplateFolder, key: u128) -> bool {
    matches!(place.lock(key), Ok(None))
}

/// Returns the reason why a recent attempt made no template.
fn refusal(place: &TemplateFolder, key: u128) -> Option<String> {
    let modified = std::fs::metadata(place.file(key, KeyFile::Refusal)).ok()?.modified().ok()?;
    let is_recent = modified.elapsed().is_ok_and(|age| age < REFUSED_FOR);
    let reason = place.read(key, KeyFile::Refusal).filter(|_| is_recent)?;
    Some(String::from_utf8_lossy(&reason).into_owned())
}

/// Describes how this command differs from the most similar command that has a template.
fn missing(place: &TemplateFolder, key: &Key) -> String {
    let others = place.keys(KeyFile::Socket).into_iter();
    let others = others.filter_map(|number| Key::decoded(&place.read(number, KeyFile::Key)?));
    let nearest = others.max_by_key(|other| key.likeness(other));
    match nearest.as_ref().and_then(|other| key.differs_in(other)) {
        Some(name) => format!("no template has the same {name}"),
        None => "there is no template yet".to_owned(),
    }
}

fn wait(running: RunningCommand) -> Result<ExitCode, Failure> {
    let end = running.wait().map_err(|error| Failure::new(format_args!("cannot wait: {error}")))?;
    end.status().map(ExitCode::from).ok_or_else(|| {
        Failure::new(
            "the template ended before the command, so the command's exit status is unknown",
        )
    })
}
