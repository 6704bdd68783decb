//! A server that runs until its value is dropped.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::contender::Contender;
use super::server::App;
use super::slow_service;
use crate::process;

/// How long a server may take until its first response.
const BOOT_MAX: Duration = Duration::from_secs(60);
/// How long a server may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// The settings of a server's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) app: App,
    pub(crate) workers: u32,
    pub(crate) threads: u32,
    /// The folder of `config.ru`.
    pub(crate) application: &'a Path,
    /// The folder of files.
    pub(crate) folder: &'a Path,
}

/// A server's process, its port, and the folder that it works in.
#[derive(Debug)]
pub(crate) struct RunningServer {
    child: Child,
    scheme: &'static str,
    pub(crate) port: u16,
    run: PathBuf,
}

impl RunningServer {
    /// Starts `contender` and waits until it responds.
    pub(crate) fn start(contender: &Contender, start: Start<'_>) -> Result<Self, String> {
        let running = Self::spawn(contender, start).map_err(|error| error.to_string());
        let ready = running.and_then(|mut running| running.wait_until_ready().map(|()| running));
        ready.map_err(|error| format!("{}: {error}", contender.name))
    }

    fn spawn(contender: &Contender, start: Start<'_>) -> io::Result<Self> {
        let port = free_port()?;
        let run = std::env::temp_dir().join(format!("thruway-bench-{port}"));
        let fill = |text: &str| {
            text.replace("{port}", &port.to_string())
                .replace("{workers}", &start.workers.to_string())
                .replace("{threads}", &start.threads.to_string())
                .replace("{app}", &start.application.display().to_string())
                .replace("{folder}", &start.folder.display().to_string())
                .replace("{run}", &run.display().to_string())
        };
        fs::create_dir_all(&run)?;
        fs::write(run.join("config"), fill(contender.server.config))?;
        let output = File::create(run.join("output"))?;
        let arguments = contender.server.arguments(start.app).unwrap_or_default();
        // The server stays in the task's process group, so that a signal that ends the task ends
        // the server, too.
        let service = match start.app {
            App::RailsWaits => Some(("SERVICE_PORT", slow_service::port()?.to_string())),
            _ => None,
        };
        let child = contender
            .command(start.application)
            .args(arguments.split_whitespace().map(fill))
            .envs([("RACK_ENV", "production"), ("RAILS_ENV", "production"), ("LOG_LEVEL", "warn")])
            .envs(service)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        let scheme = if contender.server.is_secure { "https" } else { "http" };
        Ok(Self { child, scheme, port, run })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://127.0.0.1:{}{path}", self.scheme, self.port)
    }

    /// All processes of the server.
    pub(crate) fn processes(&self) -> Vec<u32> {
        process::family(self.child.id())
    }

    /// Returns the output of the server so far.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.run.join("output")).unwrap_or_default()
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.child.id(), which);
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while !self.answers() {
            let ended = self.child.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                return Err(format!("ended before it answered ({status}): {}", self.last_words()));
            }
            if start.elapsed() > BOOT_MAX {
                return Err(format!("does not answer: {}", self.last_words()));
            }
            sleep(POLL);
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        let answer = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            stream.read(&mut [0; 16])
        });
        answer.is_ok_and(|bytes| bytes > 0)
    }

    /// The end of the server's output.
    pub(crate) fn last_words(&self) -> String {
        let output = self.output();
        let lines: Vec<_> = output.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let processes = self.processes();
        signal(self.child.id(), Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < STOP_MAX && matches!(self.child.try_wait(), Ok(None)) {
            sleep(POLL);
        }
        processes.into_iter().for_each(|process| signal(process, Signal::KILL));
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.run);
    }
}

/// Sends a signal to one process, which may have ended already.
fn signal(process: u32, signal: Signal) {
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = kill_process(process, signal);
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
