//! A started program.

use std::fs::File;
use std::io::{self, Read};
use std::process::ExitStatus;

#[cfg(target_os = "linux")]
use crate::linux::Process;
#[cfg(all(unix, not(target_os = "linux")))]
use crate::posix::Process;
#[cfg(windows)]
use crate::windows::Process;

/// A running program. Dropping the value neither ends the program nor waits for the end.
#[derive(Debug)]
pub struct Child {
    /// The writing end of the program's standard input, if the input is a pipe.
    pub stdin: Option<File>,
    /// The reading end of the program's standard output, if the output is a pipe.
    pub stdout: Option<File>,
    /// The reading end of the program's standard error, if the error stream is a pipe.
    pub stderr: Option<File>,
    process: Process,
    status: Option<ExitStatus>,
}

/// The output and the exit status of a finished program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit status.
    pub status: ExitStatus,
    /// The bytes written to standard output; empty unless standard output was a pipe.
    pub stdout: Vec<u8>,
    /// The bytes written to standard error; empty unless standard error was a pipe.
    pub stderr: Vec<u8>,
}

impl Child {
    pub(crate) fn new(process: Process, [stdin, stdout, stderr]: [Option<File>; 3]) -> Self {
        Self { stdin, stdout, stderr, process, status: None }
    }

    /// The process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Closes the program's standard input and waits for the program to end. Later calls return the same
    /// status.
    ///
    /// # Errors
    /// The system's error: another thread has waited for the program, or the parent ignores `SIGCHLD`.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        match self.status {
            Some(status) => Ok(status),
            None => Ok(*self.status.insert(self.process.wait()?)),
        }
    }

    /// Returns the exit status if the program has ended, without waiting.
    ///
    /// # Errors
    /// See [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.process.try_wait()?;
        }
        Ok(self.status)
    }

    /// Kills the program (`SIGKILL`, `TerminateProcess`). Has no effect on a finished program.
    ///
    /// # Errors
    /// The system's error.
    pub fn kill(&mut self) -> io::Result<()> {
        if self.status.is_some() { Ok(()) } else { self.process.kill() }
    }

    /// Reads both outputs to their ends and waits for the program.
    ///
    /// # Errors
    /// The error of reading or waiting.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let read = |pipe: Option<File>| {
            let mut bytes = Vec::new();
            pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes)).map(|_| bytes)
        };
        // One thread reads each pipe. Otherwise a program that fills one pipe would block while the other is
        // being read.
        let (stdout, stderr) = std::thread::scope(|scope| {
            let errors = scope.spawn(|| read(stderr));
            let output = read(stdout);
            (output, errors.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
        });
        Ok(Output { status: self.wait()?, stdout: stdout?, stderr: stderr? })
    }
}
