//! `thruway ctl`: sends commands to a running server, as `pumactl` does.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use thruway_sys::printable;

use crate::output::{Answer, Failure, print};

/// The longest time in which a server may respond.
const RESPONSE_MAX: Duration = Duration::from_secs(30);

/// The pause between the two interrupts that halt a server. Without a pause, the kernel could merge both signals into
/// one.
const HALT_PAUSE: Duration = Duration::from_millis(100);

/// Control a running server: show its statistics, restart it, or stop it
///
/// The command goes to the server's control application (activate_control_app). If only the process number is known,
/// a signal is sent instead.
#[derive(Debug, Args)]
pub(crate) struct Ctl {
    /// The command to send
    #[arg(value_name = "COMMAND")]
    command: Command,
    /// For purge: a URL, or a path at all hosts; a * at the end matches everything that begins so, and * alone
    /// everything
    #[arg(value_name = "PAGE")]
    page: Option<String>,
    /// Address of the control application: tcp://HOST:PORT or unix://PATH
    #[arg(short = 'C', long, value_name = "URL")]
    control_url: Option<String>,
    /// Token of the control application
    #[arg(short = 'T', long, value_name = "TOKEN")]
    control_token: Option<String>,
    /// State file with the address, the token and the process number (state_path)
    #[arg(short = 'S', long, value_name = "PATH")]
    state: Option<PathBuf>,
    /// File with the server's process number (pidfile)
    #[arg(short = 'P', long, value_name = "PATH")]
    pidfile: Option<PathBuf>,
    /// The server's process number
    #[arg(short = 'p', long, value_name = "PID")]
    pid: Option<i32>,
}

/// The words of `pumactl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Command {
    /// Exit with 0 if the server runs, and with 1 otherwise
    Status,
    /// Print the server's statistics as JSON
    Stats,
    /// Stop after the requests in progress have been answered
    Stop,
    /// Stop at once
    Halt,
    /// Restart the server and keep its listeners open
    Restart,
    /// Replace the workers one after another
    PhasedRestart,
    /// Replace all workers by forks of a warm worker
    Refork,
    /// Accepted, but without effect: a phased restart follows symbolic links anyway
    ReloadWorkerDirectory,
    /// Run the garbage collector in the process that responds
    Gc,
    /// Print Ruby's garbage collection statistics (GC.stat)
    GcStats,
    /// Print the backtrace of each thread
    ThreadBacktraces,
    /// Remove responses from the cache, and print how many
    Purge,
}

/// The ways to reach a server.
#[derive(Debug, Default)]
struct Target {
    url: Option<String>,
    token: Option<String>,
    pid: Option<i32>,
}

impl Ctl {
    pub(crate) fn run(self) -> Answer {
        self.check_page()?;
        let target = self.target()?;
        let page = self.page.as_deref();
        match (&target.url, target.pid) {
            (Some(url), _) if self.command != Command::Status => {
                ask(url, target.token.as_deref(), self.command, page)
            }
            (Some(url), None) => {
                ask(url, target.token.as_deref(), Command::Stats, None).map(|_| ExitCode::SUCCESS)
            }
            (_, Some(pid)) => tell(pid, self.command),
            (None, None) => Err(Failure::new("no server is named").hint(
                "give the address of its control application (-C), its state file (-S) or its process number (-p)",
            )),
        }
    }

    /// Fails if `purge` has no page, or if another command has one.
    fn check_page(&self) -> Result<(), Failure> {
        match (&self.page, self.command) {
            (None, Command::Purge) => {
                let failure = Failure::new("purge needs a page");
                Err(failure
                    .hint("give a URL, a path, a prefix such as '/blog/*', or '*' for everything"))
            }
            (Some(page), command) if command != Command::Purge => {
                Err(Failure::new(format_args!("{} takes no page: {page}", command.path())))
            }
            _ => Ok(()),
        }
    }

    /// Reads the target from the options and from the files that they name.
    fn target(&self) -> Result<Target, Failure> {
        let mut target = match &self.state {
            Some(path) => {
                let target = read_state(path)?;
                if target.url.is_none() && target.pid.is_none() {
                    let path = printable::path(&path);
                    return Err(Failure::new(format_args!(
                        "{path} is not a state file of a server"
                    ))
                    .hint("name the file that state_path in the server's configuration names"));
                }
                target
            }
            None => Target::default(),
        };
        if let Some(path) = &self.pidfile {
            let text = read(path)?;
            let number = text.trim().parse();
            let wrong = |_| {
                Failure::new(format_args!("{} contains no process number", printable::path(&path)))
            };
            target.pid = Some(number.map_err(wrong)?);
        }
        target.url = self.control_url.clone().or(target.url);
        target.token = self.control_token.clone().or(target.token);
        target.pid = self.pid.or(target.pid);
        Ok(target)
    }
}

impl Command {
    /// Returns the command's path at the control application, which equals its name on the command line.
    fn path(self) -> &'static str {
        match self {
            Self::Status | Self::Stats => "stats",
            Self::Stop => "stop",
            Self::Halt => "halt",
            Self::Restart => "restart",
            Self::PhasedRestart => "phased-restart",
            Self::Refork => "refork",
            Self::ReloadWorkerDirectory => "reload-worker-directory",
            Self::Gc => "gc",
            Self::GcStats => "gc-stats",
            Self::ThreadBacktraces => "thread-backtraces",
            Self::Purge => "purge",
        }
    }

    /// Returns the signals with the same effect as the command.
    fn signals(self) -> &'static [Signal] {
        match self {
            Self::Stop => &[Signal::TERM],
            Self::Halt => &[Signal::INT, Signal::INT],
            Self::Restart => &[Signal::USR2],
            Self::PhasedRestart => &[Signal::USR1],
            Self::Refork => &[Signal::URG],
            Self::ThreadBacktraces => &[Signal::POWER],
            Self::Status
            | Self::Stats
            | Self::ReloadWorkerDirectory
            | Self::Gc
            | Self::GcStats
            | Self::Purge => &[],
        }
    }

    /// Whether the response is printed for the user.
    fn has_data(self) -> bool {
        matches!(self, Self::Stats | Self::GcStats | Self::ThreadBacktraces | Self::Purge)
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed =
        |error| Failure::new(format_args!("cannot read {}: {error}", printable::path(&path)));
    std::fs::read_to_string(path).map_err(failed)
}

/// Reads the address, the token and the process number from a state file of `name: value` lines.
fn read_state(path: &Path) -> Result<Target, Failure> {
    let mut target = Target::default();
    for (name, value) in read(path)?.lines().filter_map(|line| line.split_once(": ")) {
        let value = value.trim().trim_matches('"').to_owned();
        match name {
            "pid" => target.pid = value.parse().ok(),
            "control_url" if !value.is_empty() => target.url = Some(value),
            "control_auth_token" if !value.is_empty() => target.token = Some(value),
            _ => {}
        }
    }
    Ok(target)
}

/// Sends a command to the control application.
fn ask(url: &str, token: Option<&str>, command: Command, page: Option<&str>) -> Answer {
    let token = token.map(|token| format!("token={token}"));
    let page = page.map(|page| format!("url={}", escaped(page)));
    let parameters: Vec<_> = token.into_iter().chain(page).collect();
    let mark = if parameters.is_empty() { "" } else { "?" };
    let query = format!("{mark}{}", parameters.join("&"));
    let request = format!("GET /{}{query} HTTP/1.0\r\n\r\n", command.path());
    let response = exchange(url, &request)
        .map_err(|error| Failure::new(format_args!("cannot ask {url}: {error}")).status(1))?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    match head.split(' ').nth(1) {
        Some("200") if command.has_data() => {
            print(format!("{body}\n").as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Some("200") => Ok(ExitCode::SUCCESS),
        Some("403") => Err(Failure::new("the server does not accept this token")
            .hint("give the right token with -T, or the state file with -S")),
        Some(_) => Err(Failure::new(format_args!(
            "the server refused {}: {}",
            command.path(),
            body.trim()
        ))),
        None => Err(Failure::new(format_args!("no response from {url}"))),
    }
}

/// Escapes the value of a query parameter.
fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:*".contains(&byte);
    let escape = |byte| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(escape).collect()
}

fn exchange(url: &str, request: &str) -> std::io::Result<String> {
    let mut response = Vec::new();
    if let Some(path) = url.strip_prefix("unix://") {
        let mut socket = UnixStream::connect(path.split('?').next().unwrap_or(path))?;
        socket.set_read_timeout(Some(RESPONSE_MAX))?;
        socket.write_all(request.as_bytes())?;
        socket.read_to_end(&mut response)?;
    } else {
        let mut socket = TcpStream::connect(url.strip_prefix("tcp://").unwrap_or(url))?;
        socket.set_read_timeout(Some(RESPONSE_MAX))?;
        socket.write_all(request.as_bytes())?;
        socket.read_to_end(&mut response)?;
    }
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Sends the signals of a command to the process.
fn tell(pid: i32, command: Command) -> Answer {
    let wrong = || Failure::new(format_args!("{pid} is not a process number"));
    let process = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw).ok_or_else(wrong)?;
    if let Err(error) = test_kill_process(process) {
        return Err(
            Failure::new(format_args!("process {pid} cannot be reached: {error}")).status(1)
        );
    }
    if command == Command::Status {
        return Ok(ExitCode::SUCCESS);
    }
    let signals = command.signals();
    if signals.is_empty() {
        let message = format!("{} needs the control application", command.path());
        return Err(Failure::new(message)
            .hint("set activate_control_app and state_path in the configuration, and use -S"));
    }
    for (at, signal) in signals.iter().enumerate() {
        if at > 0 {
            std::thread::sleep(HALT_PAUSE);
        }
        kill_process(process, *signal)
            .map_err(|error| Failure::new(format_args!("cannot signal process {pid}: {error}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_file_is_read_as_puma_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::write(&path, "---\npid: 42\ncontrol_url: \"unix:///a b\"\ncontrol_auth_token: f0\nrunning_from: /x\n")
            .unwrap();
        let target = read_state(&path).unwrap();
        assert_eq!((target.pid, target.url.as_deref()), (Some(42), Some("unix:///a b")));
        assert_eq!(target.token.as_deref(), Some("f0"));
    }

    #[test]
    fn groups_of_processes_get_no_signal() {
        for pid in [0, -1, i32::MIN] {
            assert!(tell(pid, Command::Stop).is_err(), "{pid}");
        }
    }

    #[test]
    fn a_command_is_called_as_its_path() {
        for command in Command::value_variants() {
            let name = command.to_possible_value().unwrap();
            let expected = if *command == Command::Status { "stats" } else { name.get_name() };
            assert_eq!(command.path(), expected);
        }
    }
}
