//! Starting a command, and what its caller gets.

use std::process::ExitStatus;

use thruway_resolve::search::{Lister, Plan, Search};

use crate::command::Prepared;
#[cfg(target_os = "linux")]
use crate::linux::{Process, Started};
#[cfg(all(unix, not(target_os = "linux")))]
use crate::posix::{Process, Started};
#[cfg(windows)]
use crate::windows::{Process, Started};
use crate::{Child, Command, Error, Output, Stdio, Tried};

impl Command {
    /// Starts it.
    ///
    /// # Errors
    /// What kept it from being started, with every candidate that was tried.
    pub fn spawn(&self) -> Result<Child, Error> {
        let plan = self.plan()?;
        let prepared = self.prepare()?;
        let started = prepared.start_any(&plan)?;
        Ok(prepared.into_child(started))
    }

    /// Starts it from what `lister` finds, such as an index that is kept up to date.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn); candidates that the lister passed over are not among those tried.
    pub fn spawn_by(&self, lister: &mut impl Lister) -> Result<Child, Error> {
        let plan = self.plan()?;
        let prepared = self.prepare()?;
        let started = prepared.start_found(&plan, lister)?;
        Ok(prepared.into_child(started))
    }

    /// Starts it and waits for its end.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn), and whatever the system reports of the wait.
    pub fn status(&self) -> Result<ExitStatus, Error> {
        self.spawn()?.wait().map_err(|error| self.failed("wait", error))
    }

    /// Starts it, with pipes for its outputs unless they are set, and reads them to their end. Its
    /// standard input is empty unless it is set.
    ///
    /// # Errors
    /// As [`status`](Self::status).
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

impl Prepared<'_> {
    /// Starts the first candidate that `lister` finds and that can be started.
    pub(crate) fn start_found(
        &self,
        plan: &Plan,
        lister: &mut impl Lister,
    ) -> Result<Started, Error> {
        let mut tried = Vec::new();
        let mut search = Search::new(plan, lister);
        for found in search.by_ref() {
            let path = found.map_err(|error| Error::search(&self.name, error))?.path;
            match self.start(&path)? {
                Ok(started) => return Ok(started),
                Err(error) => {
                    let code = error.raw_os_error().unwrap_or(0);
                    let goes_on = plan.rules().passes_over(&path, code);
                    tried.push(Tried { path, error });
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        tried.extend(search.denied().iter().map(|path| Tried::denied(path)));
        Err(Error::candidates(&self.name, tried, plan.bases().len()))
    }

    fn into_child(self, started: Started) -> Child {
        Child::new(Process::new(started), self.stdio.map(|ends| ends.ours))
    }
}
