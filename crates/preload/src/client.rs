//! The command line's end: it asks a template for a fork, and stands for it in the shell's job.

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

use crate::place::{Part, Place};
use crate::terminal::{self, Terminal};
use crate::wire::{Kind, Message, encoded};

/// A template answers in milliseconds, or in seconds on a busy machine. A stopped template never does.
pub const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A client hands on all signals but these: they cannot be held back, or are of its own doing. Those that the terminal
/// sends reach the child by themselves, if it is in the client's group.
const KEPT: [i32; 8] = [
    number::SIGPIPE,
    number::SIGKILL,
    number::SIGSTOP,
    number::SIGCHLD,
    number::SIGBUS,
    number::SIGFPE,
    number::SIGILL,
    number::SIGSEGV,
];
/// The kernel has no others; those that libc keeps for itself are left out.
const SIGNAL_MAX: i32 = 64;

fn handed_on() -> Mask {
    Mask::of(&(1..=SIGNAL_MAX).filter(|signal| !KEPT.contains(signal)).collect::<Vec<_>>())
}

/// What a command is, for the child that takes it over.
#[derive(Debug)]
pub struct Command<'a> {
    /// Its words.
    pub words: &'a [OsString],
    /// Its environment.
    pub environment: &'a [(OsString, OsString)],
    /// Where this process stands.
    pub terminal: &'a Terminal,
}

/// What a template answers.
#[derive(Debug)]
pub enum Answer {
    /// There is none.
    NoTemplate,
    /// It would not be right, since this has changed.
    Refused(String),
    /// The command runs.
    Started(Running),
}

/// A command that runs as a fork.
#[derive(Debug)]
pub struct Running {
    socket: UnixStream,
    /// Those that this process holds back, for the command.
    signals: SignalFd,
    process: i32,
    /// The template, in words.
    pub template: String,
    /// Whether the terminal's signals reach it by themselves.
    shares_group: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited(u8),
    /// By a signal.
    Killed(i32),
    /// Its template went first: nothing is known.
    Unknown,
}

/// Connects to the template of a key, whose answers are waited for so long; `None` if there is none.
fn connect(place: &Place, key: u128, patience: Duration) -> io::Result<Option<UnixStream>> {
    let socket = match UnixStream::connect(place.file(key, Part::Socket)) {
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

/// Asks the template of a key to run a command, and waits for its answer for so long.
///
/// The command may begin before its answer is read. So from the request on signals are kept for it. What comes before
/// the answer, and no command has begun, is this process's own: no more is waited for, and it is delivered.
///
/// # Errors
/// Whatever the system reports; the command has not been started then.
pub fn ask(
    place: &Place,
    key: u128,
    command: &Command<'_>,
    patience: Duration,
) -> io::Result<Answer> {
    let Some(socket) = connect(place, key, patience)? else { return Ok(Answer::NoTemplate) };
    let mask = handed_on();
    let signals = SignalFd::new(&mask)?;
    let before = mask.block();
    let answer = send(&socket, command).and_then(|()| {
        let silence = await_answer(&socket, &signals, patience)?;
        if let Some(Silence::Patience) = silence {
            // No command finds it any more.
            place.remove(key, Part::Socket);
        }
        if silence.is_some() {
            // What the fork says from now on does not arrive, so it does not begin.
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

/// What ended the wait for an answer.
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

/// Waits for so long until there is an answer, or a signal.
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
            Ok(Answer::Started(Running { socket, signals, process, template, shares_group }))
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

impl Running {
    /// Stands for the command until it ends: hands signals on, and stops when it stops.
    ///
    /// # Errors
    /// Whatever the system reports.
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
                self.hand_on(received.signal, received.from_process);
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

    fn hand_on(&self, signal: i32, from_process: bool) {
        // What a shell lets go on is the whole group: the command goes on by itself then.
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
                // The news may be old: this process may have been stopped when they came.
                if is_stopped(self.process) {
                    stop(number);
                }
                None
            }
            _ => None,
        }
    }
}

/// Stops this process as `signal` does, once: the terminal's own signal, if it has not been read yet, is the same.
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
    /// The exit status, for a process that ends as the command did; a signal ends this one too.
    #[must_use]
    pub fn status(self) -> Option<u8> {
        match self {
            Self::Exited(status) => Some(status),
            Self::Killed(signal) => die_of(signal),
            Self::Unknown => None,
        }
    }
}

/// Asks the template of a key how it is: names and values in turn. `None` if there is none.
///
/// # Errors
/// Whatever the system reports.
pub fn status(place: &Place, key: u128) -> io::Result<Option<Vec<Vec<u8>>>> {
    let Some(socket) = connect(place, key, ANSWER_MAX)? else { return Ok(None) };
    Message::new(Kind::Status).send(&socket, &[])?;
    Ok(Message::receive(&socket)?.map(|(message, _)| message.fields))
}

/// Ends the template of a key. Answers whether there was one.
///
/// # Errors
/// Whatever the system reports.
pub fn stop_template(place: &Place, key: u128) -> io::Result<bool> {
    let Some(socket) = connect(place, key, ANSWER_MAX)? else { return Ok(false) };
    Message::new(Kind::Stop).send(&socket, &[])?;
    // It closes the socket when it has ended.
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
        let place = Place::at(&above.path().join("a/b")).unwrap();
        let _listener = UnixListener::bind(place.file(7, Part::Socket)).unwrap();
        let terminal = Terminal::of_process().unwrap();
        let command = Command { words: &[], environment: &[], terminal: &terminal };
        let answer = ask(&place, 7, &command, Duration::from_millis(20)).unwrap();
        assert!(matches!(answer, Answer::Refused(reason) if reason.contains("does not answer")));
        assert_eq!(place.keys(Part::Socket), [], "the next command does not ask it");
    }
}
