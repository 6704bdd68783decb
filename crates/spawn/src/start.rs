//! The public functions for starting a command.

use std::process::ExitStatus;

use thruway_resolve::search::{Lister, Plan, Search};

use crate::command::PreparedCommand;
#[cfg(target_os = "linux")]
use crate::linux::{Process, StartedProcess};
#[cfg(all(unix, not(target_os = "linux")))]
use crate::posix::{Process, StartedProcess};
#[cfg(windows)]
use crate::windows::{Process, StartedProcess};
use crate::{Child, Command, Error, Output, Stdio, TriedCandidate};

impl Command {
    /// Starts the command.
    ///
    /// # Errors
    /// No candidate could be started. The error lists each candidate with the system's error.
    pub fn spawn(&self) -> Result<Child, Error> {
        let plan = self.plan()?;
        let prepared = self.prepare()?;
        let started = prepared.start_any(&plan)?;
        Ok(prepared.into_child(started))
    }

    /// Starts the command with candidates from `lister`, such as a watched index.
    ///
    /// # Errors
    /// See [`spawn`](Self::spawn). Candidates skipped by the lister do not count as tried.
    pub fn spawn_by(&self, lister: &mut impl Lister) -> Result<Child, Error> {
        let plan = self.plan()?;
        let prepared = self.prepare()?;
        let started = prepared.start_found(&plan, lister)?;
        Ok(prepared.into_child(started))
    }

    /// Starts the command and waits for the end of the program.
    ///
    /// # Errors
    /// See [`spawn`](Self::spawn); also the error of waiting.
    pub fn status(&self) -> Result<ExitStatus, Error> {
        self.spawn()?.wait().map_err(|error| self.failed("wait", error))
    }

    /// Starts the command, reads both outputs to the end, and waits for the program. Unless set otherwise, the
    /// outputs are pipes and the input is empty.
    ///
    /// # Errors
    /// See [`status`](Self::status).
    pub fn output(mut self) -> Result<Output, Error> {
        let unset = [Stdio::Null, Stdio::Pipe, Stdio::Pipe];
        for (stdio, unset) in self.stdio.iter_mut().zip(unset) {
            if matches!(stdio, Stdio::Inherit) {
                *stdio = unset;
            }
        }
        self.spawn()?.wait_with_output().map_err(|error| self.failed("wait", error))
    }
}

impl PreparedCommand<'_> {
    /// Starts the first startable candidate of `lister`.
    pub(crate) fn start_found(
        &self,
        plan: &Plan,
        lister: &mut impl Lister,
    ) -> Result<StartedProcess, Error> {
        let mut tried = Vec::new();
        let mut search = Search::new(plan, lister);
        for found in search.by_ref() {
            let path = found.map_err(|error| Error::search(&self.name, error))?.path;
            match self.start(&path)? {
                Ok(started) => return Ok(started),
                Err(error) => {
                    let code = error.raw_os_error().unwrap_or(0);
                    let goes_on = plan.rules().passes_over(&path, code);
                    tried.push(TriedCandidate { path, error });
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        tried.extend(search.denied().iter().map(|path| TriedCandidate::denied(path)));
        Err(Error::candidates(&self.name, tried, plan.bases().len()))
    }

    fn into_child(self, started: StartedProcess) -> Child {
        Child::new(Process::new(started), self.stdio.map(|ends| ends.ours))
    }
}
