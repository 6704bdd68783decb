//! A program that was started.

use std::fs::File;
use std::io::{self, Read};
use std::process::ExitStatus;

#[cfg(target_os = "linux")]
use crate::linux::Process;
#[cfg(all(unix, not(target_os = "linux")))]
use crate::posix::Process;
#[cfg(windows)]
use crate::windows::Process;

/// A program that was started. Dropping it neither waits for the program nor ends it.
#[derive(Debug)]
pub struct Child {
    /// The other end of its standard input, if that is a pipe.
    pub stdin: Option<File>,
    /// The other end of its standard output, if that is a pipe.
    pub stdout: Option<File>,
    /// The other end of its standard error, if that is a pipe.
    pub stderr: Option<File>,
    process: Process,
    status: Option<ExitStatus>,
}

/// What a program that has ended wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to its standard output, if that was a pipe.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error, if that was a pipe.
    pub stderr: Vec<u8>,
}

impl Child {
    pub(crate) fn new(process: Process, [stdin, stdout, stderr]: [Option<File>; 3]) -> Self {
        Self { stdin, stdout, stderr, process, status: None }
    }

    /// The number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for its end, after closing its standard input.
    ///
    /// # Errors
    /// Whatever the system reports: another thread has waited for it, or this process ignores
    /// `SIGCHLD`.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        match self.status {
            Some(status) => Ok(status),
            None => Ok(*self.status.insert(self.process.wait()?)),
        }
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.process.try_wait()?;
        }
        Ok(self.status)
    }

    /// Ends it at once (`SIGKILL`, `TerminateProcess`). A process that has ended is left alone.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn kill(&mut self) -> io::Result<()> {
        if self.status.is_some() { Ok(()) } else { self.process.kill() }
    }

    /// Reads both of its outputs to their end, and waits for it.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let read = |pipe: Option<File>| {
            let mut bytes = Vec::new();
            pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes)).map(|_| bytes)
        };
        // Each pipe has a thread that reads it: a program that has filled one would wait for the other.
        let (stdout, stderr) = std::thread::scope(|scope| {
            let errors = scope.spawn(|| read(stderr));
            let output = read(stdout);
            (output, errors.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
        });
        Ok(Output { status: self.wait()?, stdout: stdout?, stderr: stderr? })
    }
}
