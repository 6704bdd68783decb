//! The client's end of the socket: asks a template for a fork, and represents the fork in the shell's job.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use thruway_sys::descriptor;
use thruway_sys::peer;
use thruway_sys::process::{die_of, send_signal};
use thruway_sys::signal::{Mask, SignalFd, number};

use crate::template_folder::{KeyFile, TemplateFolder};
use crate::terminal::{self, Terminal};
use crate::wire::{Kind, Message, encoded};

/// The time that a template has to answer. Templates answer in milliseconds, or in seconds on a busy machine;
/// a stopped template never answers.
pub const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Signals that the client does not forward: they cannot be blocked, or the client itself causes them.
/// Signals from the terminal reach the child directly if it is in the client's group.
const NOT_FORWARDED: [i32; 8] = [
    number::SIGPIPE,
    number::SIGKILL,
    number::SIGSTOP,
    number::SIGCHLD,
    number::SIGBUS,
    number::SIGFPE,
    number::SIGILL,
    number::SIGSEGV,
];
/// The highest signal of the kernel. Signals that libc reserves are left out of the mask.
const SIGNAL_MAX: i32 = 64;

fn forwarded_signals() -> Mask {
    Mask::of(&(1..=SIGNAL_MAX).filter(|signal| !NOT_FORWARDED.contains(signal)).collect::<Vec<_>>())
}

/// A command, for the child that runs it.
#[derive(Debug)]
pub struct Command<'a> {
    /// The words of the command.
    pub words: &'a [OsString],
    /// The environment of the command.
    pub environment: &'a [(OsString, OsString)],
    /// The session, group and terminal of the client.
    pub terminal: &'a Terminal,
}

/// The answer of a template.
#[derive(Debug)]
pub enum Answer {
    /// There is no template.
    NoTemplate,
    /// The template refused, for this reason.
    Refused(String),
    /// The command runs.
    Started(RunningCommand),
}

/// A command that runs as a fork.
#[derive(Debug)]
pub struct RunningCommand {
    socket: UnixStream,
    /// Blocked signals, to be forwarded to the command.
    signals: SignalFd,
    process: i32,
    /// A description of the template, for display.
    pub template: String,
    /// Whether the terminal's signals reach the command directly.
    shares_group: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The command exited with this status.
    Exited(u8),
    /// This signal killed the command.
    Killed(i32),
    /// The template ended before the command, so the status is unknown.
    Unknown,
}

/// Connects to the template of a key; `None` without one. Reads from the socket time out after `patience`.
fn connect(
    place: &TemplateFolder,
    key: u128,
    patience: Duration,
) -> io::Result<Option<UnixStream>> {
    let socket = match UnixStream::connect(place.file(key, KeyFile::Socket)) {
        Ok(socket) => socket,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(error),
            };
        }
    };
    if peer::of(socket.as_fd())?.uid != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    socket.set_read_timeout(Some(patience))?;
    Ok(Some(socket))
}

/// Asks the template of a key to run a command, and waits up to `patience` for the answer.
///
/// The command may start before its answer is read, so signals are kept for the command from the request on.
/// If a signal arrives before the answer and no command has started, the wait ends and the signal is
/// delivered to this process.
///
/// # Errors
/// The socket's error; the command has not started then.
pub fn ask(
    place: &TemplateFolder,
    key: u128,
    command: &Command<'_>,
    patience: Duration,
) -> io::Result<Answer> {
    let Some(socket) = connect(place, key, patience)? else { return Ok(Answer::NoTemplate) };
    let mask = forwarded_signals();
    let signals = SignalFd::new(&mask)?;
    let before = mask.block();
    let answer = send(&socket, command).and_then(|()| {
        let silence = await_answer(&socket, &signals, patience)?;
        if let Some(Silence::Patience) = silence {
            // Later commands must not wait for a template that does not answer.
            place.remove(key, KeyFile::Socket);
        }
        if silence.is_some() {
            // The fork starts the command only after its message is sent, which now fails.
            socket.shutdown(Shutdown::Both)?;
        }
        match (Message::receive(&socket)?, silence) {
            (Some((message, _)), _) => answer_of(&message, socket, signals, command),
            (None, Some(silence)) => Ok(Answer::Refused(silence.reason().to_owned())),
            (None, None) => Ok(Answer::NoTemplate),
        }
    });
    if !matches!(answer, Ok(Answer::Started(_))) {
        before.set();
    }
    answer
}

fn send(socket: &UnixStream, command: &Command<'_>) -> io::Result<()> {
    let numbers = terminal::descriptors()?;
    let copies: Vec<OwnedFd> = numbers
        .iter()
        .filter_map(|number| descriptor::with(*number, |one| one.try_clone_to_owned()))
        .collect::<io::Result<_>>()?;
    let borrowed: Vec<BorrowedFd<'_>> = copies.iter().map(AsFd::as_fd).collect();
    request(command, &numbers).send(socket, &borrowed)
}

/// The reason why the wait for an answer ended.
#[derive(Debug, Clone, Copy)]
enum Silence {
    Signal,
    Patience,
}

impl Silence {
    fn reason(self) -> &'static str {
        match self {
            Self::Signal => "a signal came before the template's answer",
            Self::Patience => "the template does not answer",
        }
    }
}

/// Waits up to `patience` for an answer or a signal.
fn await_answer(
    socket: &UnixStream,
    signals: &SignalFd,
    patience: Duration,
) -> io::Result<Option<Silence>> {
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    let mut polled = [PollFd::new(socket, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut polled, Some(&patience)))?;
    Ok(match polled.map(|one| !one.revents().is_empty()) {
        [true, _] => None,
        [false, true] => Some(Silence::Signal),
        [false, false] => Some(Silence::Patience),
    })
}

fn answer_of(
    message: &Message,
    socket: UnixStream,
    signals: SignalFd,
    command: &Command<'_>,
) -> io::Result<Answer> {
    let text = |place: usize| {
        let field = message.fields.get(place).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(field).into_owned()
    };
    match (message.kind, message.number(0)) {
        (Kind::Refused, _) => Ok(Answer::Refused(text(0))),
        (Kind::Started, Some(process)) => {
            let template = text(1);
            let shares_group = command.terminal.is_there();
            Ok(Answer::Started(RunningCommand { socket, signals, process, template, shares_group }))
        }
        (Kind::Exited | Kind::Killed, _) => {
            Ok(Answer::Refused("the fork ended before the command began".to_owned()))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn request(command: &Command<'_>, numbers: &[i32]) -> Message {
    let words = command.words.iter().map(|word| word.as_bytes().to_vec());
    let variable = |(name, value): &(OsString, OsString)| {
        [name.as_os_str(), value].map(|text: &OsStr| text.as_bytes().to_vec())
    };
    let environment = command.environment.iter().flat_map(variable);
    let numbers = numbers.iter().map(|number| number.to_le_bytes().to_vec());
    Message::new(Kind::Run)
        .with(encoded(&words.collect::<Vec<_>>()))
        .with(encoded(&environment.collect::<Vec<_>>()))
        .with(encoded(&numbers.collect::<Vec<_>>()))
        .with_number(if command.terminal.is_there() { command.terminal.group } else { 0 })
}

impl RunningCommand {
    /// Represents the command until it ends: forwards signals, and stops when the command stops.
    ///
    /// # Errors
    /// A signal cannot be read.
    pub fn wait(self) -> io::Result<End> {
        let process =
            Pid::from_raw(self.process).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        loop {
            let mut polled = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            let _ = rustix::io::retry_on_intr(|| poll(&mut polled, None))?;
            let [has_news, has_signals] = polled.map(|one| !one.revents().is_empty());
            while let (true, Some(received)) = (has_signals, self.signals.receive()?) {
                self.forward(received.signal, received.from_process);
            }
            if !has_news {
                continue;
            }
            match Message::receive(&self.socket) {
                Ok(Some((message, _))) => {
                    if let Some(end) = self.follow(&message) {
                        return Ok(end);
                    }
                }
                Ok(None) | Err(_) => {
                    wait_for(process.as_ref());
                    return Ok(End::Unknown);
                }
            }
        }
    }

    fn forward(&self, signal: i32, from_process: bool) {
        // A shell that continues a job sends `SIGCONT` to the whole group, so a running command has received
        // it already.
        let is_needless = signal == number::SIGCONT && !is_stopped(self.process);
        if (from_process || !self.shares_group) && !is_needless {
            let _ = send_signal(self.process, signal);
        }
    }

    fn follow(&self, message: &Message) -> Option<End> {
        let number = message.number(0)?;
        match message.kind {
            Kind::Exited => Some(End::Exited(u8::try_from(number).unwrap_or(u8::MAX))),
            Kind::Killed => Some(End::Killed(number)),
            Kind::Stopped => {
                // The message may be old: the command may have continued while this process was stopped.
                if is_stopped(self.process) {
                    stop(number);
                }
                None
            }
            _ => None,
        }
    }
}

/// Stops this process once by `signal`. If the terminal has sent the same signal, which is pending, the two signals
/// merge into one.
fn stop(signal: i32) {
    let _ = send_signal(i32::try_from(std::process::id()).unwrap_or(0), signal);
    Mask::of(&[signal]).unblock().set();
}

fn is_stopped(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

fn wait_for(process: Option<&OwnedFd>) {
    if let Some(process) = process {
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        let _ = rustix::io::retry_on_intr(|| poll(&mut polled, None));
    }
}

impl End {
    /// Returns the exit status with which the client must exit. For a killed command, kills this process with
    /// the same signal.
    #[must_use]
    pub fn status(self) -> Option<u8> {
        match self {
            Self::Exited(status) => Some(status),
            Self::Killed(signal) => die_of(signal),
            Self::Unknown => None,
        }
    }
}

/// Asks the template of a key for its state: names and values in turn; `None` without a template.
///
/// # Errors
/// The socket's error.
pub fn status(place: &TemplateFolder, key: u128) -> io::Result<Option<Vec<Vec<u8>>>> {
    let Some(socket) = connect(place, key, ANSWER_MAX)? else { return Ok(None) };
    Message::new(Kind::Status).send(&socket, &[])?;
    Ok(Message::receive(&socket)?.map(|(message, _)| message.fields))
}

/// Ends the template of a key. Returns whether there was one.
///
/// # Errors
/// The socket's error.
pub fn stop_template(place: &TemplateFolder, key: u128) -> io::Result<bool> {
    let Some(socket) = connect(place, key, ANSWER_MAX)? else { return Ok(false) };
    Message::new(Kind::Stop).send(&socket, &[])?;
    // The template closes the socket when it has ended.
    let _ = Message::receive(&socket);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_template_that_does_not_answer_is_not_waited_for() {
        let above = tempfile::tempdir().unwrap();
        let place = TemplateFolder::at(&above.path().join("a/b")).unwrap();
        let _listener = UnixListener::bind(place.file(7, KeyFile::Socket)).unwrap();
        let terminal = Terminal::of_process().unwrap();
        let command = Command { words: &[], environment: &[], terminal: &terminal };
        let answer = ask(&place, 7, &command, Duration::from_millis(20)).unwrap();
        assert!(matches!(answer, Answer::Refused(reason) if reason.contains("does not answer")));
        assert_eq!(place.keys(KeyFile::Socket), [], "the next command does not ask it");
    }
}
