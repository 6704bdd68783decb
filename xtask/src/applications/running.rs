//! The servers that serve the application.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::application::{Application, last_lines};
use super::way::Way;

/// The time in which a server has to announce its port. A large application boots for a minute on a slow machine.
const BOOT_MAX: Duration = Duration::from_secs(300);
/// The time between SIGTERM and SIGKILL.
const STOP_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// A server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    Puma,
    Threads,
    Fibers,
}

/// A server's process, which leads a group of its own. The process ends when the value is dropped.
pub(super) struct RunningServer {
    child: Child,
    log: PathBuf,
    pub(super) port: u16,
}

impl Server {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Puma => "Puma",
            Self::Threads => "threads",
            Self::Fibers => "fibers",
        }
    }

    /// Returns the command. The server takes any free port.
    fn words(self, application: &Application) -> Vec<String> {
        let thruway = application.thruway().display().to_string();
        let text = match self {
            Self::Puma if application.has_bundle() => "bundle exec puma -b tcp://127.0.0.1:0",
            Self::Puma => "puma -b tcp://127.0.0.1:0",
            Self::Threads => "{thruway} serve . -b tcp://127.0.0.1:0 -t 2",
            Self::Fibers => "{thruway} serve . -b tcp://127.0.0.1:0 -t 2 --fibers 20",
        };
        // The path of a checkout may have spaces.
        text.split(' ')
            .map(|word| if word == "{thruway}" { thruway.clone() } else { word.to_owned() })
            .collect()
    }

    /// Returns the reason why Thruway refuses to run an application in fibers; `None` for any other error.
    pub(super) fn refusal(self, error: &str) -> Option<&str> {
        let refused = error.lines().find_map(|line| line.strip_prefix("thruway: cannot run "))?;
        (self == Self::Fibers && refused.contains(" in fibers: ")).then_some(refused)
    }

    /// Starts the server with the application's own configuration, and waits until it announces its port.
    pub(super) fn start(self, application: &Application) -> Result<RunningServer, String> {
        use std::os::unix::process::CommandExt;
        application.restore()?;
        let log = application.beside(&format!("{}.log", self.name()));
        let failed = |error: std::io::Error| format!("{}: {error}", log.display());
        let output = File::create(&log).map_err(failed)?;
        let environment = application.environment.as_str();
        let words = self.words(application);
        let mut command = application.command(Way::Plain, environment, &words);
        command.args(["-e", environment]).process_group(0).stdin(Stdio::null());
        command.stdout(output.try_clone().map_err(failed)?).stderr(output);
        let child = command.spawn();
        let child = child.map_err(|error| format!("cannot start {}: {error}", words.join(" ")))?;
        let mut server = RunningServer { child, log, port: 0 };
        server.await_port().map_err(|error| format!("{}: {error}", words.join(" ")))?;
        Ok(server)
    }
}

impl RunningServer {
    fn await_port(&mut self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(port) = port(&said) {
                self.port = port;
                return Ok(());
            }
            let ended = self.child.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                return Err(format!(
                    "ended before it listened ({status}):\n{}",
                    last_lines(&said, 12)
                ));
            }
            if start.elapsed() > BOOT_MAX {
                return Err(format!("does not say where it listens:\n{}", last_lines(&said, 12)));
            }
            sleep(POLL);
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let signal = |signal| group.map(|group| kill_process_group(group, signal));
        let start = Instant::now();
        let _ = signal(Signal::TERM);
        while start.elapsed() < STOP_MAX && matches!(self.child.try_wait(), Ok(None)) {
            sleep(POLL);
        }
        let _ = signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Parses the port in a server's log: `Listening on http://127.0.0.1:80`, `serving app on http://127.0.0.1:80`.
fn port(said: &str) -> Option<u16> {
    said.lines()
        .filter(|line| line.contains("Listening on ") || line.contains("serving "))
        .find_map(|line| {
            let (_, rest) = line.split_once("http://127.0.0.1:")?;
            let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
            // A line that is still being written may have the port's first digits alone.
            let is_whole = said.contains(&format!("{line}\n"));
            rest[..end].parse().ok().filter(|_| is_whole)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fibers_may_be_refused_and_threads_may_not() {
        let error = "ended\nthruway: cannot run Rails before 7.0 in fibers: it keeps connections by thread\n\nhint: x";
        let refused = Some("Rails before 7.0 in fibers: it keeps connections by thread");
        assert_eq!(Server::Fibers.refusal(error), refused);
        assert_eq!(Server::Threads.refusal(error), None);
        assert_eq!(
            Server::Fibers.refusal("ended\nthruway: cannot run config.ru: SyntaxError"),
            None
        );
    }

    #[test]
    fn a_port_is_read_from_a_whole_line() {
        assert_eq!(port("* Listening on http://127.0.0.1:4567\nUse Ctrl-C\n"), Some(4567));
        assert_eq!(port("thruway: serving shop on http://127.0.0.1:89 (1 worker)\n"), Some(89));
        assert_eq!(port("* Listening on http://127.0.0.1:45"), None);
        assert_eq!(port("GET http://127.0.0.1:45/\n"), None);
    }
}
